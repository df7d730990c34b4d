"""Locks of push sessions: batched, waited for, and reliably released."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from ortoo.common.errors import Fenced, Unavailable
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.common.telemetry.metrics import Metrics
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.stream_ages import StreamAges
from ortoo.snode.enodes.link import LockRequest, LockResult
from ortoo.snode.enodes.queue_locks import SessionQueueLocks
from ortoo.snode.settings import SnodeSettings
from tests.unit.snode.fake_enode import FakeEnode


class CountingEnode(FakeEnode):
    """An enode that records requests, and is unreachable as often as the test sets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.given_back: list[int] = []
        self.away = 0
        """Number of releases that are not answered."""
        self.is_away = False

    async def take_locks(self, incarnation: str, wishes: Sequence[LockRequest]) -> list[LockResult]:
        self.asked.append(len(wishes))
        if self.is_away:
            raise Unavailable("away")
        return await super().take_locks(incarnation, wishes)

    async def release_locks(self, wishes: Sequence[LockRequest]) -> list[bool]:
        if self.away:
            self.away -= 1
            raise Unavailable("away")
        self.given_back += [wish.queue_id for wish in wishes]
        return await super().release_locks(wishes)


def wish(queue_id: int, owner: str, session: str = "", *, resume: bool = False) -> LockRequest:
    """A request for a lock of group g."""
    return LockRequest("g", 77, queue_id, owner, session or owner, resume)


@contextlib.asynccontextmanager
async def locks() -> AsyncIterator[tuple[SessionQueueLocks, CountingEnode, Background]]:
    """Locks over a reachable enode."""
    enode = CountingEnode()
    async with asyncio.timeout(60), Background("test") as background:
        ages = StreamAges(0, SystemClock(), Randomness(1))
        shared: Any = (Metrics(), SystemClock(), Randomness(1), MemoryBudget(), ages)
        runtime = Runtime(SnodeSettings(), "i", background, Channels(), *shared)
        made = SessionQueueLocks(runtime, enode.links())
        yield made, enode, background


async def test_wishes_of_one_moment_go_in_one_request() -> None:
    """A hundred sessions that get their queues together cost one call."""
    async with locks() as (them, enode, _):
        generations = await asyncio.gather(*(them.acquire("e", wish(number, f"c{number}")) for number in range(100)))
        assert generations == [1] * 100
        assert enode.asked == [100]


async def test_who_waits_goes_on_when_the_lock_is_free() -> None:
    """The report of a free lock wakes its waiters; reports of others do not."""
    async with locks() as (them, enode, background):
        assert await them.acquire("e", wish(0, "a")) == 1
        waiting = background.spawn("hold", them.acquire("e", wish(0, "b")))
        while len(enode.asked) < 2:
            await SystemClock().sleep(0)
        them.on_freed("e", [("g", 77, 1)])
        assert not waiting.done()
        them.release("e", wish(0, "a"))
        while not enode.given_back:
            await SystemClock().sleep(0)
        them.on_freed("e", [("g", 77, 0)])
        assert await waiting == 2


async def test_what_is_given_back_is_given_back_however_long_the_enode_is_away() -> None:
    """A release is retried until it is answered, and goes before later requests."""
    async with locks() as (them, enode, _):
        await them.acquire("e", wish(0, "a"))
        enode.away = 2
        them.release("e", wish(0, "a"))
        assert await them.acquire("e", wish(1, "a")) == 1
        while not enode.given_back:
            await SystemClock().sleep(0.01)
        assert await them.acquire("e", wish(0, "b")) == 2


async def test_a_lock_that_is_taken_again_while_its_release_is_tried_on_stays_with_its_session() -> None:
    """Otherwise the release would free it later, and another session could get it beside its owner."""
    async with locks() as (them, enode, _):
        assert await them.acquire("e", wish(0, "a")) == 1
        enode.away = 2
        them.release("e", wish(0, "a"))
        assert await them.acquire("e", wish(0, "a")) == 2
        assert enode.given_back == [0]
        assert (await enode.take_locks("i", [wish(0, "b")]))[0].owner == "a"


async def test_who_asks_waits_for_no_release_but_of_the_same_lock() -> None:
    """Even if others release without end, or a release cannot reach its enode."""
    async with locks() as (them, enode, _):
        given_back, numbers = enode.release_locks, itertools.count(1)

        async def again(wishes: Sequence[LockRequest]) -> list[bool]:
            await SystemClock().sleep(0.001)
            them.release("e", wish(next(numbers), "others"))
            return await given_back(wishes)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(enode, "release_locks", again)
            them.release("e", wish(0, "others"))
            async with asyncio.timeout(60):
                assert await them.acquire("e", wish(0, "a")) == 1
        enode.away = 1 << 30
        them.release("e", wish(0, "others"))
        enode.is_away = True
        with pytest.raises(Unavailable):
            await them.acquire("e", wish(0, "a"))


async def test_a_session_does_not_take_its_lock_back_from_its_successor() -> None:
    """A fenced session is told that a newer session of the same client has the lock."""
    async with locks() as (them, _, _background):
        assert await them.acquire("e", wish(0, "a", "old")) == 1
        assert await them.acquire("e", wish(0, "a", "new")) == 2
        with pytest.raises(Fenced):
            await them.acquire("e", wish(0, "a", "old", resume=True))
