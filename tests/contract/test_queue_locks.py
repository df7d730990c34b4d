"""Queue locks are in the log: their owners still have them after any restart, with the same generation."""

import asyncio
from dataclasses import replace

import pytest

from ortoo.common.errors import Fenced
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.enode.store.lock_table import LockDenied, LockGranted, LockRequest
from ortoo.testing.disks.disk_image import LOSE_UNSYNCED
from tests.contract.one_store import SETTINGS, TOPIC, OneStore

CLOCK = SystemClock()


def wish(queue_id: int, owner: str) -> LockRequest:
    """A request for the lock of one queue."""
    return LockRequest((TOPIC, "g", queue_id), owner, f"session of {owner}")


async def test_granted_locks_survive_stops_and_power_cuts() -> None:
    """A confirmed owner is still the owner, also if data were not flushed; others are refused (E-127, E-131)."""
    one = OneStore()
    await one.open()
    owners: dict[int, tuple[str, int]] = {}
    for number in range(30):
        queue_id, owner = number % 3, "abc"[number // 3 % 3]
        before = owners.get(queue_id)
        if before is not None:
            assert await one.store.locks.release([((TOPIC, "g", queue_id), f"session of {before[0]}")]) == [True]
        [answer] = await one.store.locks.take([wish(queue_id, owner)])
        assert isinstance(answer, LockGranted)
        assert before is None or answer.generation > before[1]
        owners[queue_id] = (owner, answer.generation)
        if number % 4 == 3:
            store = await (one.crash(number, LOSE_UNSYNCED) if number % 8 == 3 else one.restart())
            for held, (name, generation) in owners.items():
                assert isinstance((await store.locks.take([wish(held, "stranger")]))[0], LockDenied)
                assert (await store.locks.take([wish(held, name)]))[0] == LockGranted(generation, is_new=False)
    await one.store.close()


async def test_an_offset_under_a_lock_that_this_log_never_gave_is_not_stored() -> None:
    """G2: it came from a lost log, or from a deleted topic of the same name."""
    one = OneStore()
    store = await one.open()
    with pytest.raises(Fenced):
        await store.offsets.commit_each(TOPIC, "g", [(0, 9, 1)])
    [granted] = await store.locks.take([wish(1, "a")])
    assert isinstance(granted, LockGranted)
    assert await store.offsets.commit_each(TOPIC, "g", [(0, 9, 1), (1, 4, granted.generation)]) == [0]
    assert store.offsets.of(TOPIC, "g") == {1: 4}
    await one.store.close()


async def test_a_lock_that_moves_during_a_commit_fences_only_its_own_queue() -> None:
    """While a commit waits for room in the log, a lock moves. The offsets of the other queues are stored."""
    one = OneStore()
    store = await one.open()
    granted = await store.locks.take([wish(0, "a"), wish(1, "a")])
    rows = [(number, 4, one.generation) for number, one in enumerate(granted) if isinstance(one, LockGranted)]
    appender = store.engine.appender

    async def move_lock(queue_id: int, waits: asyncio.Event) -> None:
        async with appender._in_turn():
            waits.set()
            while appender._space_waiters < 2:
                await CLOCK.sleep(0)
            store.locks.table.fence((TOPIC, "g", queue_id), 0)

    async with Background("test") as background:
        background.spawn("move", move_lock(0, waits := asyncio.Event()))
        await waits.wait()
        assert await store.offsets.commit_each(TOPIC, "g", rows) == [0]
        assert store.offsets.of(TOPIC, "g") == {1: 4}
        background.spawn("move", move_lock(1, waits := asyncio.Event()))
        await waits.wait()
        with pytest.raises(Fenced):
            await store.offsets.commit_each(TOPIC, "g", rows[1:])
    await one.store.close()


async def test_a_reset_that_only_goes_forward_finds_the_commits_that_waited_before_it() -> None:
    """A commit and a reset wait for room in the log, in this order. The reset does not move the group back."""
    one = OneStore()
    store = await one.open()
    await store.offsets.commit(TOPIC, "g", {0: 1, 1: 1})
    appender = store.engine.appender
    async with Background("test") as background:
        async with appender._in_turn():
            background.spawn("commit", store.offsets.commit(TOPIC, "g", {0: 4}))
            while appender._space_waiters < 2:
                await CLOCK.sleep(0)
            reset = background.spawn("reset", store.offsets.reset(TOPIC, "g", {0: 2, 1: 2}, forward_only=True))
            while appender._space_waiters < 3:
                await CLOCK.sleep(0)
        await reset
    assert store.offsets.of(TOPIC, "g") == {0: 4, 1: 2}
    await one.store.close()


async def test_a_reset_is_whole_or_not_at_all() -> None:
    """E-191: after a power cut both the offset and the generation that fences the owner are kept."""
    one = OneStore(settings=replace(SETTINGS, retention_bytes=20_000, retention_interval_ms=1000))
    store = await one.open()
    [granted] = await store.locks.take([wish(0, "a")])
    assert isinstance(granted, LockGranted)
    await store.offsets.commit(TOPIC, "g", {0: 9}, granted.generation)
    await store.offsets.reset(TOPIC, "g", {0: 4})
    for number in range(100):
        await one.append(b"%d " % number * 200)
        if number % 10 == 0:
            await one.clock.pass_time(3)
    store = await one.crash(1, LOSE_UNSYNCED)
    assert store.offsets.of(TOPIC, "g") == {0: 4}
    with pytest.raises(Fenced):
        await store.offsets.commit(TOPIC, "g", {0: 9}, granted.generation)
    assert (await store.locks.take([wish(0, "a")]))[0] == LockGranted(granted.generation + 1, is_new=False)
    await one.store.close()
