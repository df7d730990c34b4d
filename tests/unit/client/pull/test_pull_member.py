"""Waits for messages of a pull consumer's queues."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ortoo.client.core.closed import ConsumerClosed
from ortoo.client.core.connection import Connection
from ortoo.client.pull.process_queue import ProcessQueue
from ortoo.client.pull.pull_member import PullMember
from ortoo.client.pull.settings import PullSettings
from ortoo.client.requests.requester import Requester
from ortoo.client.sessions.session import Session
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness


class EarlyClock(SystemClock):
    """Each sleep ends after half its time, and takes none."""

    now_s = 0.0
    sleeps = 0

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        self.now_s += seconds / 2 if self.sleeps < 5 else seconds
        await super().sleep(0)


@asynccontextmanager
async def member_without_queues(clock: SystemClock) -> AsyncIterator[PullMember]:
    """A member that sends no requests."""
    connection = Connection(["localhost:1"], clock=clock, randomness=Randomness(1))
    member = PullMember(connection, Session(connection, Requester(connection)), "g", {}, PullSettings())
    async with member._background:
        member.failure = None
        yield member


async def turns(clock: SystemClock) -> None:
    """Run the loop until woken tasks sleep again."""
    for _ in range(4):
        await clock.sleep(0)


async def test_a_wait_that_is_woken_for_nothing_begins_no_task_each_time() -> None:
    """Each arrival for suspended queues wakes it, and each batch is a poll."""
    clock, begun = SystemClock(), []

    def counted(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> Any:
        begun.append(work)
        return asyncio.Task(work, loop=loop, **more)

    async with asyncio.timeout(60), Background("test") as background, member_without_queues(clock) as member:
        waiting = background.start_future("wait", member.next_from(ProcessQueue.take_batch, 3_600.0))
        await turns(clock)
        asyncio.get_running_loop().set_task_factory(counted)
        for _ in range(10):
            member.has_messages.set()
            await turns(clock)
        assert len(begun) == 0
        assert not waiting.done()
        member.failure = ConsumerClosed("left")
        member.has_messages.set()
        with pytest.raises(ConsumerClosed):
            await waiting
        await turns(clock)
        assert len(member._background._tasks) == 0


async def test_a_wait_ends_at_its_time_also_when_a_sleep_ends_early() -> None:
    """The clock of the loop's sleeps differs from the one of deadlines."""
    clock = EarlyClock()
    async with asyncio.timeout(60), member_without_queues(clock) as member:
        assert await member.next_from(ProcessQueue.take_batch, 8.0) is None
        assert clock.now_s == 8.0
        assert await member.next_from(ProcessQueue.take_batch, 0.0) is None
        assert clock.sleeps == 5


async def test_a_wait_that_is_called_off_leaves_nothing_behind() -> None:
    """Also if it is cancelled before it begins."""
    clock = SystemClock()
    async with asyncio.timeout(60), Background("test") as background, member_without_queues(clock) as member:
        for begins in (True, False):
            waiting = background.spawn("wait", member.next_from(ProcessQueue.take_batch, 3_600.0))
            if begins:
                await turns(clock)
                assert len(member._background._tasks) == 1
            waiting.cancel()
            await turns(clock)
            assert waiting.cancelled()
            assert len(member._background._tasks) == 0
