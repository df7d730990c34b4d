"""Rows that a reader filters out stay on the enode: it applies tags, SQL conditions and column lists."""

import asyncio
import dataclasses
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ortoo.client import Filter, Message, Sql, connect
from ortoo.client.read.fetch import fetch
from ortoo.common.records.batch import encode
from ortoo.common.records.columns import NUMBERS
from ortoo.common.records.compression import Codec
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.view import open_batch
from ortoo.enode.disk.disk import RealFile
from ortoo.enode.log.frame import HEADER_BYTES
from ortoo.enode.rpc.streams import pushdown
from ortoo.snode.enodes.wire import append_wire
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import failure_pb2
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.lone_enode import SMALL_STORE, SingleEnode, append_request, open_single_enode, topic

TOPIC = 7
COUNT = 100
ON_DISK = dataclasses.replace(SMALL_STORE, recent_bytes=0)
"""A store whose reads all come from its disk."""


def message(number: int) -> Message:
    """One of a hundred has the tag of the filter."""
    return Message(b"%d " % number * 20, f"tag-{number % COUNT}", properties={"n": str(number)})


async def store(enode: SingleEnode, batches: int, codec: Codec = Codec.NONE) -> None:
    """Batches of 100 messages each."""
    call = enode.stub.Append()
    for at in range(batches):
        sealed = encode([message(at * COUNT + n) for n in range(COUNT)], now_ms=1, codec=codec)
        await call.write(append_request(at, TOPIC, 0, sealed))
    await call.done_writing()
    assert [a.HasField("failure") async for a in call] == [False] * batches


def asked(from_offset: int = 0, wait_ms: int = 0, **wishes: Any) -> pb.FetchBatchesRequest:
    """A read request for queue 0."""
    return pb.FetchBatchesRequest(
        topic_id=TOPIC, from_offset=from_offset, wait_ms=wait_ms, pushdown=pb.Pushdown(**wishes)
    )


def chosen(answer: pb.FetchBatchesResponse) -> list[tuple[int, bytes]]:
    """The offsets and bodies of the matching rows in an answer."""
    assert answer.pushed_down
    found = []
    for part in answer.batches:
        sealed = part.batch
        view = open_batch(SealedBatch(sealed.records, sealed.records_crc32c, sealed.count, sealed.body_inflated_bytes),
                          verify_crc=True)  # fmt: skip
        rows = np.frombuffer(part.rows, "<i4").tolist() or list(range(sealed.count))
        places = range(len(rows)) if len(rows) == sealed.count else rows
        found += [(part.first_offset + row, view.message(at).body) for row, at in zip(rows, places, strict=True)]
    return found


async def answered(call: Any, request: pb.FetchBatchesRequest) -> pb.FetchBatchesResponse:
    """One request and its answer."""
    await call.write(request)
    async with asyncio.timeout(60):
        answer: pb.FetchBatchesResponse = await call.read()
    return answer


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_an_enode_sends_what_is_wanted_and_little_else(tmp_path: Path, codec: Codec) -> None:
    """Of 20 batches 20 messages are sent, by tag and by SQL; the answer is a fraction of the stored bytes."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        await store(enode, 20, codec)
        call = enode.stub.FetchBatches()
        expected = [(n, message(n).body) for n in range(7, 2000, 100)]
        whole = (await answered(call, pb.FetchBatchesRequest(topic_id=TOPIC, bytes_max=8 << 20))).ByteSize()
        each: list[dict[str, Any]] = [{"tag_expression": "tag-7 || none"}, {"sql_expression": "TAGS = 'tag-7'"}]
        for wishes in each:
            answer = await answered(call, asked(**wishes))
            assert chosen(answer) == expected
            assert (answer.next_offset, answer.end_offset) == (2000, 2000)
            assert codec is not Codec.NONE or answer.ByteSize() < whole / 20
        joined = await answered(call, asked(tag_expression="tag-7", coalesce=True))
        assert chosen(joined) == expected
        assert codec is not Codec.NONE or [len(part.row_stored_at_ms) for part in joined.batches] == [20 * 8]
        cut = await answered(call, asked(8, tag_expression="tag-7", to_offset=250))
        assert (chosen(cut), cut.next_offset) == ([expected[1], expected[2]], 250)
        none = await answered(call, asked(tag_expression="nobody's"))
        assert (list(none.batches), none.next_offset) == ([], 2000)


async def test_columns_that_are_not_wanted_do_not_travel(tmp_path: Path) -> None:
    """Bodies are not sent when a reader needs tags only; all rows are there."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        await store(enode, 2)
        answer = await answered(enode.stub.FetchBatches(), asked(columns=[NUMBERS["tag"]]))
        assert [(part.first_offset, part.batch.count, part.rows) for part in answer.batches] == [
            (0, 100, b""),
            (100, 100, b""),
        ]
        assert all(b"1 1 1" not in part.batch.records for part in answer.batches)


async def test_a_read_that_finds_nothing_says_how_far_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers after a bounded range with the position, and a reader that continues there misses nothing."""
    monkeypatch.setattr(pushdown, "PART_BYTES", 1 << 10)
    monkeypatch.setattr(pushdown, "SCANNED_BYTES_MAX", 20 << 10)
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        await store(enode, 20)
        call, at, steps = enode.stub.FetchBatches(), 0, []
        while at < 2000:
            answer = await answered(call, asked(at, tag_expression="nobody's"))
            assert at < answer.next_offset
            at = answer.next_offset
            steps.append(at)
        assert len(steps) > 3


@pytest.mark.parametrize("is_repaired", [False, True])
async def test_a_filtered_read_ends_before_damage_or_has_it_repaired(tmp_path: Path, is_repaired: bool) -> None:
    """Messages before a damaged batch are returned once; a reader that continues there gets the damage as an error."""
    async with open_single_enode(tmp_path, topic(TOPIC), store=ON_DISK) as enode:
        await store(enode, 5)
        reader = enode.running.store.engine.reader
        (segment,) = tmp_path.glob("*.seg")
        whole = segment.read_bytes()
        broken = whole.replace(message(250).body, b"?" * len(message(250).body))
        assert broken != whole
        segment.write_bytes(broken)
        repaired: list[int] = []

        async def repair(position: int, end_position: int, is_other: bool) -> int:
            repaired.append(position)
            segment.write_bytes(whole)
            return end_position

        reader.repair = repair if is_repaired else None
        call = enode.stub.FetchBatches()
        wishes: dict[str, Any] = {"tag_expression": "tag-7", "coalesce": True}
        answer = await answered(call, asked(**wishes))
        expected = [(n, message(n).body) for n in range(7, 500, 100)]
        if is_repaired:
            assert (chosen(answer), answer.next_offset, len(repaired)) == (expected, 500, 1)
            return
        assert (chosen(answer), answer.next_offset) == (expected[:2], 200)
        refused = await answered(call, asked(200, **wishes))
        assert refused.failure.kind == failure_pb2.FAILURE_KIND_DATA_LOSS
        assert chosen(await answered(call, asked(300, **wishes))) == expected[3:]


async def test_what_is_in_memory_is_chosen_while_a_scan_waits_for_the_disk(tmp_path: Path) -> None:
    """A filtered read at the end of a queue does not wait for readers that scan batches on the disk."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        await store(enode, 3)
        may_end = threading.Event()
        scan = asyncio.get_running_loop().create_task(enode.running.store.engine.work.scan(may_end.wait, 60))
        try:
            answer = await answered(enode.stub.FetchBatches(), asked(tag_expression="tag-7", coalesce=True))
            assert [offset for offset, _ in chosen(answer)] == [7, 107, 207]
            assert not scan.done()
        finally:
            may_end.set()
        assert await scan


async def test_the_disk_is_told_what_a_filtered_read_reads_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scans have one thread: while it filters one part the disk can read the next."""
    steps: list[tuple[str, int, int]] = []

    def noted(name: str) -> None:
        plain = getattr(RealFile, name)

        def note(file: RealFile, position: int, length: int) -> Any:
            if file._path.suffix == ".seg":  # an index of a full segment may be written meanwhile
                steps.append((name, position, position + length))
            return plain(file, position, length)

        monkeypatch.setattr(RealFile, name, note)

    monkeypatch.setattr(pushdown, "PART_BYTES", 1 << 10)
    async with open_single_enode(tmp_path, topic(TOPIC), store=ON_DISK) as enode:
        await store(enode, 6)
        noted("read")
        noted("read_ahead")
        assert len(chosen(await answered(enode.stub.FetchBatches(), asked(tag_expression="tag-7")))) == 6
    told = [(begin, end) for name, begin, end in steps if name == "read_ahead"]
    bodies = [(begin, end) for name, begin, end in steps if name == "read" and end - begin > HEADER_BYTES]
    assert told == bodies[1:]
    for each in told:
        assert steps.index(("read_ahead", *each)) < steps.index(("read", *each))


async def test_a_waiting_read_hears_of_what_is_stored_wanted_or_not(tmp_path: Path) -> None:
    """At the end of the queue it waits; then it answers with its position."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        call: Any = enode.stub.FetchBatches()
        await call.write(asked(wait_ms=60_000, tag_expression="nobody's"))
        await store(enode, 1)
        async with asyncio.timeout(60):
            answer = await call.read()
        assert (answer.pushed_down, list(answer.batches), answer.next_offset) == (True, [], 100)


async def test_a_wrong_expression_is_refused_and_the_stream_goes_on(tmp_path: Path) -> None:
    """The error names the field; other reads are answered."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        await store(enode, 1)
        call = enode.stub.FetchBatches()
        refused = await answered(call, asked(sql_expression="n >"))
        assert refused.failure.kind == failure_pb2.FAILURE_KIND_INVALID
        assert refused.failure.field == "pushdown.sql_expression"
        assert len(chosen(await answered(call, asked(tag_expression="tag-1")))) == 1


@pytest.mark.parametrize("is_old", [False, True])
async def test_readers_get_the_same_from_an_enode_that_cannot_choose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    """An enode of an older version sends whole batches; the snode then filters itself."""
    answers: list[bool] = []
    decode = append_wire.decode_fetch_response

    def counted(bulky: Any) -> Any:
        answers.append(bulky.message.pushed_down)
        return decode(bulky)

    monkeypatch.setattr("ortoo.snode.enodes.replica_link.decode_fetch_response", counted)
    if is_old:
        monkeypatch.setattr("ortoo.enode.rpc.streams.fetch.PushdownRead.from_request", lambda request: None)
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        await mq.admin.create_topic("orders", queue_count=1)
        async with mq.producer("orders") as producer:
            await (await producer.send_many([message(number) for number in range(1000)]))
        queue = (await mq.admin.describe_topic("orders")).queues[0].queue
        wishes: list[tuple[Filter, Any]] = [
            ("tag-7 || tag-50", lambda n: n % 100 in (7, 50)),
            (Sql("n BETWEEN 300 AND 450"), lambda n: 300 <= n <= 450),
            ("nobody's", lambda n: False),
        ]
        for wanted, matches in wishes:
            for begin, end in ((0, 0), (5, 777), (350, 351)):
                for joined in (False, True):
                    passed = [0]

                    def went_on(at: int, _: int, passed: list[int] = passed) -> None:
                        passed.append(at)

                    reading = fetch(
                        mq._connection, queue, begin, end, filter=wanted, coalesce=joined, on_progress=went_on
                    )
                    got = [(it.offset, it.body) async for batch in reading for it in batch]
                    assert got == [(n, message(n).body) for n in range(begin, end or 1000) if matches(n)]
                    assert passed[-1] == (end or 1000)
    assert any(answers) is not is_old
