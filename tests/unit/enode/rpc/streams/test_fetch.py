"""The FetchBatches stream: small batches, and a peer that has disconnected."""

import weakref
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ortoo.common.errors import NotLeader
from ortoo.common.grpc.bulk_calls import FETCH_BATCHES_RESPONSE
from ortoo.common.records.batch import Message, encode
from ortoo.enode.rpc.streams.fetch import CommittedStream, FetchStream
from ortoo.enode.store.batch_write import BatchWrite
from ortoo.v1 import enode_pb2
from tests.contract.one_store import SETTINGS, TOPIC, OneStore


def test_a_stream_of_a_member_that_follows_goes_with_its_call() -> None:
    """It holds unread answers, which must be freed without a run of the garbage collector."""
    engine: Any = SimpleNamespace(work=None)
    stream = CommittedStream(engine, lambda: NotLeader("there is no leader"))
    left = weakref.ref(stream)
    del stream
    assert left() is None


@pytest.mark.parametrize("pushdown", [None, enode_pb2.Pushdown(columns=[8])], ids=["all", "pushdown"])
async def test_thousands_of_small_batches_can_be_read(pushdown: enode_pb2.Pushdown | None) -> None:
    """The bytes of an answer have room for more batches than its reader accepts, so several answers have them."""
    one = OneStore(settings=replace(SETTINGS, segment_bytes=8 << 20, recent_bytes=8 << 20))
    store = await one.open()
    small = encode([Message(b"x")], now_ms=1)
    for _ in range(3):
        await store.append_all([BatchWrite(TOPIC, 0, small)] * 1_000)
    topics: Any = SimpleNamespace(is_missing=lambda topic_id, queue_id: False)
    stream, offset = FetchStream(store, topics), 0
    while offset < 3_000:
        request = enode_pb2.FetchBatchesRequest(request_id=1, topic_id=TOPIC, from_offset=offset, pushdown=pushdown)
        answer, reserved = await stream._read(request)
        stream.outbox.release(reserved)
        response, records = FETCH_BATCHES_RESPONSE.read(FETCH_BATCHES_RESPONSE.write(answer))
        assert [batch.first_offset for batch in response.batches] == list(range(offset, response.next_offset))
        assert len(records) == len(response.batches) > 0
        offset = response.next_offset
    await store.close()
