"""Retention with delayed messages: they are kept, and do not block the deletion of others."""

import asyncio
from dataclasses import replace

import pytest

from ortoo.common.records.batch import Message, encode
from ortoo.common.records.sealed_batch import StoredBatch
from tests.contract.deferred_store import DeferredStore
from tests.contract.one_store import QUEUES, SETTINGS, TOPIC

RETENTION_BYTES, DAY_MS = 32 << 10, 86_400_000
SMALL = replace(
    SETTINGS, retention_bytes=RETENTION_BYTES, retention_interval_ms=DAY_MS, disk_check_interval_ms=DAY_MS,
    checkpoint_records=100,
)  # fmt: skip
"""Retention runs only when a test calls it."""


async def fill(one: DeferredStore, size_bytes: int) -> None:
    """Let the log grow by this size of plain messages."""
    for _ in range(size_bytes // 2_000):
        await one.append(bytes(2_000))
    await one.store.engine.appender.flush()
    await one.clock.pass_time(1)


async def delay(one: DeferredStore, count: int, after_ms: int, body_bytes: int = 100) -> list[bytes]:
    """Delay this number of messages, for the queues in turn; returns their bodies."""
    due_ms, bodies = one.clock.now_ms() + after_ms, [b"%06d" % row + bytes(body_bytes) for row in range(count)]
    for row, body in enumerate(bodies):
        batch = encode([Message(body, deliver_at_ms=due_ms + row)], now_ms=1)
        await one.delays.append(TOPIC, row % QUEUES, batch)
    return bodies


async def delayed_bodies(one: DeferredStore, bodies: list[bytes]) -> list[bytes]:
    """The bodies that can be read from the queues, sorted."""
    found = []
    for queue_id in range(QUEUES):
        offset = one.store.describe_queues(TOPIC)[queue_id].begin_offset
        while (fetched := await one.store.fetch(TOPIC, queue_id, offset)).batches:
            found += [body for body in bodies for stored in fetched.batches if body in stored.batch.records]
            offset = fetched.next_offset
    return sorted(found)


@pytest.mark.parametrize("seconds", [5.0, 0.0, 14.0])
async def test_what_is_due_soon_holds_no_segment(seconds: float) -> None:
    """Messages due within seconds are already in memory; their segments are still deleted, and each comes once."""
    one = DeferredStore(settings=SMALL)
    await one.open()
    bodies = await delay(one, 20, 16_000)
    await fill(one, 3 * RETENTION_BYTES)
    await one.clock.pass_time(16.0 - seconds - 1.0)
    keeping = one.store.engine.housekeeping
    before = keeping.deleted_segments
    await keeping.apply_retention()
    assert keeping.deleted_segments > before
    await one.halt()
    await one.restart()
    await one.clock.pass_time(30)
    assert await delayed_bodies(one, bodies) == sorted(bodies)
    assert one.store.timers.live_count == 0
    await one.halt()
    await one.store.close()


async def test_what_comes_due_while_it_is_moved_comes_once() -> None:
    """Segments are deleted repeatedly while their messages are being delivered."""
    one = DeferredStore(settings=SMALL)
    await one.open()
    bodies = await delay(one, 60, 4_000)
    await fill(one, 3 * RETENTION_BYTES)
    keeping = one.store.engine.housekeeping
    for _ in range(80):
        keeping._rescued_bytes = 0
        await keeping.apply_retention()
        await one.append(bytes(4_000))
        await one.clock.pass_time(0.1)
    await one.clock.pass_time(10)
    assert one.store.timers.live_count == 0
    found = await delayed_bodies(one, bodies)
    assert len(found) == len(set(found)), "a delayed message came twice"
    await one.halt()
    await one.store.close()


async def test_what_is_moved_while_it_is_read_is_not_taken_for_damaged() -> None:
    """Their segment is deleted between search and read. Without a remedy they came after a restart or never (G6)."""
    one = DeferredStore(settings=replace(SMALL, recent_bytes=0))
    await one.open()
    bodies = await delay(one, 20, 30_000)
    await fill(one, 3 * RETENTION_BYTES)
    read, may_read, calls = one.store.read_deferred, asyncio.Event(), 0

    async def slow_at_first(system_topic_id: int, place: int, *, bytes_max: int) -> tuple[StoredBatch, ...]:
        nonlocal calls
        calls += 1
        if calls == 1:
            await may_read.wait()
        return await read(system_topic_id, place, bytes_max=bytes_max)

    one.store.read_deferred = slow_at_first  # type: ignore[method-assign]
    await one.clock.pass_time(29)
    assert calls == 1
    keeping = one.store.engine.housekeeping
    await keeping.apply_retention()
    assert keeping.deleted_segments
    may_read.set()
    await one.clock.pass_time(5)
    assert await delayed_bodies(one, bodies) == sorted(bodies)
    await one.halt()
    await one.store.close()


async def test_more_waits_than_the_log_may_hold() -> None:
    """Waiting messages that exceed the retention size are rewritten only as the log grows."""
    one = DeferredStore(settings=SMALL)
    await one.open()
    await delay(one, 60, 86_400_000, body_bytes=1_500)
    await fill(one, RETENTION_BYTES)
    keeping, appender = one.store.engine.housekeeping, one.store.engine.appender
    await keeping.apply_retention()
    await one.clock.pass_time(1)
    begun = appender.appended_position
    for _ in range(20):
        await keeping.apply_retention()
        await one.clock.pass_time(1)
    assert appender.appended_position - begun < 8_192, "there were no new messages, and all was rewritten"
    await fill(one, 4 * RETENTION_BYTES)
    before = keeping.deleted_segments
    await keeping.apply_retention()
    assert keeping.deleted_segments > before
    assert one.store.timers.live_count == 60
    await one.halt()
    await one.store.close()
