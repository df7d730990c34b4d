"""Every task has an owner that waits for its end."""

import asyncio
import contextlib
from typing import Any

import pytest

import ortoo.common.process.background as background_module
from ortoo.common.errors import Unavailable
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.containment import CONTAINED_FAILURES


class SteppedClock(SystemClock):
    """A clock whose sleepers the test wakes."""

    def __init__(self) -> None:
        self.ticks: asyncio.Queue[None] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        await self.ticks.get()


async def test_leaving_the_block_ends_its_tasks() -> None:
    """No task outlives its owner."""
    started = asyncio.Event()

    async def forever() -> None:
        started.set()
        await asyncio.Event().wait()

    async with Background("owner") as background:
        task = background.spawn("forever", forever())
        await started.wait()
    assert task.cancelled()


async def test_failure_of_a_task_ends_the_block() -> None:
    """A failed task never stays unnoticed."""

    async def fail() -> None:
        raise ValueError("x")

    with pytest.raises(ExceptionGroup) as caught:
        async with Background("owner") as background:
            background.spawn("fails", fail())
            await asyncio.Event().wait()
    assert caught.group_contains(ValueError)


async def test_periodic_step_survives_its_own_failure() -> None:
    """One failed round does not stop the rounds after it."""
    clock = SteppedClock()
    rounds: asyncio.Queue[int] = asyncio.Queue()
    count = 0

    async def step() -> None:
        nonlocal count
        count += 1
        rounds.put_nowait(count)
        if count == 1:
            raise ValueError("first round fails")

    async with Background("owner") as background:
        background.every("step", 5, step, clock=clock)
        for expected in (1, 2, 3):
            clock.ticks.put_nowait(None)
            async with asyncio.timeout(60):
                assert await rounds.get() == expected


async def test_error_of_the_body_is_the_error_of_the_block() -> None:
    """The body's error is raised unchanged, not in a group, and the tasks end."""
    with pytest.raises(KeyError):
        async with Background("owner") as background:
            task = background.spawn("forever", asyncio.Event().wait())
            raise KeyError("body")
    assert task.cancelled()


async def test_what_is_begun_while_the_block_is_left_does_not_hold_it_up() -> None:
    """A cancelled task may start another one to clean up; that one ends with the block."""
    async with asyncio.timeout(60), Background("test") as background:
        begun = asyncio.Event()

        async def tidying() -> None:
            try:
                begun.set()
                await asyncio.Event().wait()
            finally:
                background.spawn("late", asyncio.Event().wait())

        background.spawn("tidying", tidying())
        await begun.wait()


async def test_a_cancellation_that_a_library_swallowed_is_said_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stop ends, and reports the task that swallowed its cancellation, and the place where it was."""
    monkeypatch.setattr(background_module, "CANCEL_AGAIN_S", 0.01)
    swallowed: list[int] = []

    async def deaf(times: int) -> None:
        for _ in range(times):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            swallowed.append(times)
        await asyncio.Event().wait()

    async with asyncio.timeout(60), Background("test") as background:
        task = background.spawn("deaf", deaf(2))
        await asyncio.wait([task], timeout=0)
    assert (swallowed, task.cancelled()) == ([2, 2], True)
    assert caplog.text.count("task_cancel_timeout") == 2
    assert "test:deaf" in caplog.text
    assert "deaf:" in caplog.text


async def test_who_is_cancelled_ends_also_when_a_task_fails_meanwhile() -> None:
    """Otherwise a loop around the block that retries after failures would never end."""
    began = asyncio.Event()
    rounds = 0

    async def failing() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("not in order")

    async def tries_again() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            with contextlib.suppress(Exception):
                async with Background("block") as block:
                    block.spawn("failing", failing())
                    began.set()
                    await asyncio.Event().wait()

    async with asyncio.timeout(60), Background("test") as background:
        task = background.spawn("loop", tries_again())
        await began.wait()
    assert (rounds, task.cancelled()) == (1, True)


@pytest.mark.parametrize(("error", "told"), [(TimeoutError(), 0), (Unavailable("away"), 0), (KeyError("body"), 1)])
async def test_who_is_cancelled_while_a_peer_falls_silent_tells_of_no_defect(error: Exception, told: int) -> None:
    """A replica that stopped just after a stream to another one went silent reported a defect.

    The body's errors about its peer are dropped in favour of the cancellation; a defect is still reported.
    """
    began = asyncio.Event()

    async def speaking() -> None:
        async with Background("silent peer") as block:
            block.spawn("hearing", asyncio.Event().wait())
            with contextlib.suppress(asyncio.CancelledError):
                began.set()
                await asyncio.Event().wait()
            raise error

    before = CONTAINED_FAILURES["silent peer"]
    async with asyncio.timeout(60), Background("test") as background:
        task = background.spawn("speaking", speaking())
        await began.wait()
    assert task.cancelled()
    assert CONTAINED_FAILURES["silent peer"] - before == told


async def test_a_task_that_starts_after_a_failure_is_cancelled() -> None:
    """A call that is served while the process ends with an error starts work without an error of its own."""
    started: list[asyncio.Task[Any]] = []

    async def failing() -> None:
        raise ValueError("a defect")

    async def late(background: Background) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            started.append(background.run_contained("late", asyncio.Event().wait()))

    with pytest.raises(ExceptionGroup):
        async with Background("test") as background:
            background.spawn("late", late(background))
            background.spawn("failing", failing())
            await asyncio.Event().wait()
    await asyncio.wait(started)
    assert [task.cancelled() for task in started] == [True]
