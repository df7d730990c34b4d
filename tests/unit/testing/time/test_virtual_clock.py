"""Virtual time: no task waits for real time, and sleepers wake in order at their time."""

import asyncio

import pytest

from ortoo.verification.time.virtual_clock import TimeLimitExceeded, VirtualClock


async def test_sleepers_wake_in_the_order_of_their_times() -> None:
    """Advancing wakes those whose time has come, the earliest first, equal ones in the order in which they came."""
    clock = VirtualClock(1000)
    woken: list[tuple[str, int]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.now_ms()))

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("b2", 2.0), ("now", 0.0)):
            group.create_task(sleeper(name, seconds))
        await clock.pass_time(0.5)
        assert woken == [("now", 1000)]
        assert clock.sleeping == 4
        await clock.pass_time(1.6)
        assert woken[1:] == [("a", 2000), ("b", 3000), ("b2", 3000)]
        assert clock.now_ms() == 3100
        assert clock.advance(1) == 1
    assert woken[-1][0] == "c"


async def test_who_sleeps_again_is_woken_again_within_the_same_time() -> None:
    """A loop of sleeps runs as often as it would have in real time."""
    clock = VirtualClock()
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await clock.sleep(1)
            ticks.append(clock.monotonic_s())

    task = asyncio.get_running_loop().create_task(tick())
    await clock.pass_time(4.5)
    assert ticks == [1, 2, 3, 4]
    task.cancel()


async def test_the_wall_clock_jumps_without_waking_anybody() -> None:
    """Sleeps and measurements follow the monotonic clock alone."""
    clock = VirtualClock(5000)
    task = asyncio.get_running_loop().create_task(clock.sleep(10))
    await clock.pass_time(1)
    clock.set_wall(100)
    assert (clock.now_ms(), clock.monotonic_s(), clock.sleeping) == (100, 1.0, 1)
    await clock.pass_time(2)
    assert (clock.now_ms(), clock.sleeping) == (2100, 1)
    task.cancel()


def test_time_moves_by_itself_when_everybody_waits() -> None:
    """Thirty days pass at once. Work in between sees its own time, and the result is returned."""
    clock = VirtualClock(0)
    events: asyncio.Queue[int]

    async def main() -> list[int]:
        nonlocal events
        events = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            return [await events.get() for _ in range(3)]

    async def produce() -> None:
        for days in range(3):
            await clock.sleep(days * 86_400)
            events.put_nowait(clock.now_ms())

    assert clock.run(main) == [0, 86_400_000, 3 * 86_400_000]


def test_a_cancelled_sleeper_holds_nobody_up() -> None:
    """Time moves to the next who still sleeps."""
    clock = VirtualClock()

    async def main() -> float:
        task = asyncio.get_running_loop().create_task(clock.sleep(5))
        await clock.sleep(1)
        task.cancel()
        await clock.sleep(10)
        return clock.monotonic_s()

    assert clock.run(main) == 11


def test_a_run_that_is_stuck_ends() -> None:
    """When time runs out without progress, the run fails instead of spinning forever."""
    clock = VirtualClock()

    async def main() -> None:
        while True:
            await clock.sleep(60)

    with pytest.raises(TimeLimitExceeded):
        clock.run(main, limit_s=3600)


def test_a_run_in_which_nothing_can_happen_any_more_ends_at_once() -> None:
    """A wait for an event that cannot come fails, and no task waits for real time."""
    with pytest.raises(TimeLimitExceeded, match="no timer is pending"):
        VirtualClock().run(asyncio.Event().wait)
