"""The Append stream at a shutdown."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.appends.router import AppendRouter
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.enode.log.results import AppendResult
from ortoo.enode.log.settings import FlushMode
from ortoo.enode.rpc.streams import append
from ortoo.enode.rpc.streams.append import AppendStream
from ortoo.enode.rpc.streams.runner import StreamRunner
from ortoo.v1 import enode_pb2, record_pb2


class SlowDisk:
    """Accepts every batch and topic; the test completes the appends."""

    def __init__(self) -> None:
        self.taken: list[asyncio.Future[AppendResult]] = []

    def begin(self, *_: object) -> asyncio.Future[AppendResult]:
        self.taken.append(asyncio.get_running_loop().create_future())
        return self.taken[-1]

    def is_missing(self, topic_id: int, queue_id: int) -> bool:
        return False


def asked(number: int, batch: SealedBatch) -> BulkMessage:
    envelope = record_pb2.SealedBatch(records_crc32c=batch.records_crc32c, count=1, body_inflated_bytes=1)
    return BulkMessage(enode_pb2.AppendRequest(request_id=number, topic_id=7, batch=envelope), (batch.records,))


async def test_a_stop_while_the_stream_is_full_answers_what_was_taken_and_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch that waits for memory is not accepted, and the stream ends without its answer, and without waiting."""
    monkeypatch.setattr(append, "BYTES_IN_FLIGHT_MAX", 1)
    disk, draining, asking = SlowDisk(), asyncio.Event(), asyncio.Event()

    async def requests() -> AsyncIterator[BulkMessage]:
        for number in (1, 2):
            yield asked(number, encode([Message(b"x")], now_ms=1))
        await asking.wait()

    async with asyncio.timeout(60), Background("test") as background:
        stream: Any = AppendStream(cast(AppendRouter, disk), cast(TopicCopies, disk))
        answers = StreamRunner(background, draining).run("append", stream, requests())
        first = background.spawn("first", cast(Any, anext(answers)))
        while not disk.taken:
            await SystemClock().sleep(0)
        draining.set()
        await SystemClock().sleep(0.01)
        disk.taken[0].set_result(AppendResult(0, 5, FlushMode.SYNC))
        assert (await first).request_id == 1
        assert [answer async for answer in answers] == []
    assert len(disk.taken) == 1
