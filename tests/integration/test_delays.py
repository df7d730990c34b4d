"""Delayed messages: never early, delivered once, recalled permanently, through restarts and retention."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from ortoo.client import Conflict, ConsumerSettings, DelayedMessage, Invalid, Message, NotFound, blocking, connect
from ortoo.common.groups.handle import HandleKind, read_handle
from ortoo.common.records.batch import encode, open_batch
from ortoo.enode.app import RunningEnode
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.lone_enode import SMALL_STORE, open_single_enode, topic
from ortoo.verification.time.stepped_clock import SteppedClock

DAY_MS = 86_400_000


async def delivered(enode: RunningEnode, queue_id: int, count: int) -> list[Message]:
    """The first messages of a queue of topic 7, when there are `count`."""
    found: list[Message] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            fetched = await enode.store.fetch(7, queue_id, len(found), wait_ms=10_000)
            for one in fetched.batches:
                found += open_batch(one.batch).messages()
    return found


async def test_a_message_comes_at_its_time_and_not_before(tmp_path: Path) -> None:
    """E-079: from the past to a year ahead, delivered unchanged and in order as the wall clock passes them (G6)."""
    clock = SteppedClock()
    async with open_single_enode(tmp_path, topic(7), clock=clock) as enode:
        running, now_ms = enode.running, clock.now_ms()
        sent = [
            Message(b"%d" % at, "t", ("k",), properties={"n": "1"}, message_id=f"m{at}", born_at_ms=5, deliver_at_ms=at)
            for at in (now_ms - 5, now_ms + 3 * DAY_MS, now_ms + 3_600_000, now_ms + 365 * DAY_MS, now_ms + 3_600_001)
        ]
        appended = await running.appends.append(7, 1, encode(sent, now_ms=now_ms))
        assert appended.first_offset == 0
        by_time = sorted(sent, key=lambda one: one.deliver_at_ms or 0)
        assert await delivered(running, 1, 1) == by_time[:1]
        for step_ms, count in ((3_600_010, 3), (3 * DAY_MS, 4), (365 * DAY_MS, 5)):
            assert running.store.describe_queues(7)[1].end_offset < count
            clock.offset_ms = step_ms
            assert await delivered(running, 1, count) == by_time[:count]
        assert running.store.timers.live_count == 0


async def test_the_clock_set_back_makes_nothing_early(tmp_path: Path) -> None:
    """Messages that were due before the clock was set back wait for their time by the new clock."""
    clock = SteppedClock()
    async with open_single_enode(tmp_path, topic(7), clock=clock) as enode:
        due_ms = clock.now_ms() + 60_000
        await enode.running.appends.append(7, 0, encode([Message(b"x", deliver_at_ms=due_ms)], now_ms=1))
        clock.offset_ms = -3_600_000
        fetched = await enode.running.store.fetch(7, 0, 0, wait_ms=1_000)
        assert not fetched.batches
        clock.offset_ms = 60_000
        assert [it.body for it in await delivered(enode.running, 0, 1)] == [b"x"]


async def test_a_recalled_message_never_comes(tmp_path: Path) -> None:
    """Recalled near and far, staged and not, and after a restart; a second recall reports that nothing waits (G6)."""
    clock = SteppedClock()
    async with open_single_enode(tmp_path, topic(7), clock=clock) as enode:
        running, now_ms = enode.running, clock.now_ms()
        due = [now_ms + 1_500, now_ms + 1_500, now_ms + 60_000, now_ms + 30 * DAY_MS, now_ms + 30 * DAY_MS]
        batch = encode([Message(b"%d" % row, deliver_at_ms=at) for row, at in enumerate(due)], now_ms=1)
        await running.appends.append(7, 0, batch)
        for timer_id in (0, 2, 3):
            await running.appends.delays.recall(7, timer_id, due[timer_id])
        with pytest.raises(NotFound):
            await running.appends.delays.recall(7, 3, due[3])
        assert [one.timer_id for one in running.store.timers.select(7, 0, 10)] == [1, 4]
    async with open_single_enode(tmp_path, topic(7), clock=clock) as enode:
        clock.offset_ms = 40 * DAY_MS
        assert [it.body for it in await delivered(enode.running, 0, 2)] == [b"1", b"4"]
        assert enode.running.store.timers.live_count == 0


async def test_a_batch_sent_again_is_delayed_once(tmp_path: Path) -> None:
    """A producer's retry gets the same place, before the time and after (G4)."""
    clock = SteppedClock()
    async with open_single_enode(tmp_path, topic(7), clock=clock) as enode:
        running = enode.running
        messages = [Message(b"a", deliver_at_ms=clock.now_ms() + 3_600_000)] * 2
        batch = dataclasses.replace(encode(messages, now_ms=1), producer_id=9, first_sequence=0)
        first = await running.appends.append(7, 0, batch)
        assert (await running.appends.append(7, 0, batch)).first_offset == first.first_offset
        plain = dataclasses.replace(encode([Message(b"b")], now_ms=1), producer_id=9, first_sequence=2)
        assert (await running.appends.append(7, 0, plain)).first_offset == 0
        clock.offset_ms = 3_700_000
        assert [it.body for it in await delivered(running, 0, 3)] == [b"b", b"a", b"a"]
        assert (await running.appends.append(7, 0, batch)).first_offset == first.first_offset


async def test_a_deleted_topic_takes_its_delayed_messages_along(tmp_path: Path) -> None:
    """They are dropped when their time comes, and nothing is stuck behind them."""
    clock = SteppedClock()
    async with open_single_enode(tmp_path, topic(7), topic(8, "other"), clock=clock) as enode:
        running = enode.running
        due_ms = clock.now_ms() + 60_000
        for topic_id in (8, 7):
            await running.appends.append(topic_id, 0, encode([Message(b"x", deliver_at_ms=due_ms)], now_ms=1))
        await running.store.delete_topics([8])
        clock.offset_ms = 61_000
        await delivered(running, 0, 1)
        async with asyncio.timeout(60):
            while running.store.timers.live_count:
                await clock.sleep(0.01)


async def test_a_time_too_far_away_is_refused(tmp_path: Path) -> None:
    """The error names the column and the range; nothing is stored (G11)."""
    async with open_single_enode(tmp_path, topic(7)) as enode:
        far = encode([Message(b"x", deliver_at_ms=4_000_000_000_000)], now_ms=1)
        with pytest.raises(Invalid) as caught:
            await enode.running.appends.append(7, 0, far)
        assert caught.value.field == "batch.records.deliver_at_ms"
        assert enode.running.store.timers.live_count == 0


async def test_old_segments_go_and_delayed_messages_stay(tmp_path: Path) -> None:
    """A far message does not pin segments: it is rewritten before its segment is deleted, and keeps its id."""
    clock = SteppedClock()
    small = dataclasses.replace(SMALL_STORE, segment_bytes=64 << 10, retention_bytes=256 << 10, recent_bytes=0)
    async with open_single_enode(tmp_path, topic(7), clock=clock, store=small) as enode:
        running, due_ms = enode.running, clock.now_ms() + 200 * DAY_MS
        batch = encode([Message(b"far-%d" % row, deliver_at_ms=due_ms + row) for row in range(20)], now_ms=1)
        await running.appends.append(7, 0, batch)
        await running.appends.delays.recall(7, 3, due_ms + 3)
        for _ in range(3):
            for number in range(40):
                await running.store.append(7, 1, encode([Message(bytes(20_000), f"t{number}")], now_ms=1))
            await running.store.engine.housekeeping.apply_retention()
        assert running.store.describe().log_begin_position > 64 << 10
        assert [one.timer_id for one in running.store.timers.select(7, 0, 100)] == [0, 1, 2, *range(4, 20)]
        await running.appends.delays.recall(7, 5, due_ms + 5)
    async with open_single_enode(tmp_path, topic(7), clock=clock, store=small) as enode:
        clock.offset_ms = 201 * DAY_MS
        bodies = [it.body for it in await delivered(enode.running, 0, 18)]
        assert bodies == [b"far-%d" % row for row in range(20) if row not in (3, 5)]


async def test_the_client_delays_lists_and_recalls(tmp_path: Path) -> None:
    """Through snode and wire: receipts carry handles, ids survive the delay, wrong handles are named errors."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        await mq.admin.create_topic("t", queue_count=1)
        due_ms = cluster.clock.now_ms() + 700
        async with mq.producer("t") as producer:
            late = await producer.send(Message(b"late", deliver_at_ms=due_ms))
            never = await producer.send(Message(b"never", deliver_at_ms=due_ms))
            mixed = [Message(b"now"), Message(b"later", deliver_at_ms=due_ms + 10), Message(b"now too")]
            receipts = await (await producer.send_many(mixed))
        assert [bool(it.recall_handle) for it in receipts] == [False, True, False]
        listed = await mq.admin.list_delayed("t")
        assert [(it.message_id, it.deliver_at_ms) for it in listed] == [
            (late.message_id, due_ms), (never.message_id, due_ms), (receipts[1].message_id, due_ms + 10),
        ]  # fmt: skip
        named = [
            read_handle(text, HandleKind.DELAYED, "recall_handle", await cluster.seals())
            for text in (listed[1].recall_handle, never.recall_handle)
        ]
        assert named[0] == named[1]
        await mq.recall(never.recall_handle)
        with pytest.raises(NotFound):
            await mq.recall(never.recall_handle)
        with pytest.raises(Invalid, match="no handle"):
            await mq.recall(never.recall_handle[:-1])
        async with mq.consumer("g", "t", ConsumerSettings(from_beginning=True)) as consumer:
            got = []
            async for message in consumer:
                got.append((message.body, message.message_id))
                if message.body.startswith(b"late"):
                    assert cluster.clock.now_ms() >= due_ms
                message.ack()
                if len(got) == 4:
                    break
        assert got[:2] == [(b"now", receipts[0].message_id), (b"now too", receipts[2].message_id)]
        assert sorted(got[2:]) == [(b"late", late.message_id), (b"later", receipts[1].message_id)]
        with pytest.raises((NotFound, Conflict)):
            await mq.recall(late.recall_handle)
        assert await asyncio.to_thread(list_blocking, cluster.address) == []


def list_blocking(address: str) -> list[DelayedMessage]:
    """The delayed messages, by the blocking client."""
    with blocking.connect(address) as mq:
        return mq.admin.list_delayed("t")
