"""Watches: which waiting pop is woken, when, and how often an enode is asked to wait."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from ortoo.common.errors import Conflict, OrtooError, Unavailable, Unsupported
from ortoo.common.groups.pop import AwaitRequest
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.snode.pop import watches as module
from ortoo.snode.pop.watches import PopWatch, PopWatches, WaitingPop

PLACE = ("e", AwaitRequest(1, "g", (0,)))


def late_s() -> float:
    """A monotonic time that does not come during a test. The module may be imported long before its tests run."""
    return SystemClock().monotonic_s() + 600


class Enode:
    """An enode whose waits the test ends."""

    def __init__(self) -> None:
        self.waits: list[asyncio.Future[bool]] = []

    def to(self, enode: str) -> "Enode":
        """The link."""
        return self

    def await_messages(self, request: AwaitRequest) -> "asyncio.Future[bool]":
        """A new wait."""
        self.waits.append(asyncio.get_running_loop().create_future())
        return self.waits[-1]


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[Enode, PopWatches, Background]]:
    """Watches over one enode."""
    enode = Enode()
    async with Background("test") as background:
        runtime: Any = SimpleNamespace(background=background, clock=SystemClock())
        watches = PopWatches(enode, runtime)  # type: ignore[arg-type]
        yield enode, watches, background
        await watches.close()


class Pops:
    """Pops that wait for one watch; an entry for each that was woken, in order."""

    def __init__(self, watches: PopWatches, background: Background) -> None:
        self.woken: list[str] = []
        self.failures: list[OrtooError] = []
        self._watches = watches
        self._background = background

    def start(self, name: str, *, finds: bool = True) -> "asyncio.Task[None]":
        """A pop that waits once. One that finds no message reports this."""

        async def pop() -> None:
            with self._watches.use([PLACE]) as [watch]:
                self.failures += (await self._watches.wait([watch], late_s())).values()
                self.woken.append(name)
                if not finds:
                    watch.on_empty("")

        return self._background.spawn(name, pop())


async def turns() -> None:
    """Let all tasks run until they wait."""
    for _ in range(20):
        await SystemClock().sleep(0)


async def until(done: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    while not done():
        await SystemClock().sleep(0.001)


async def fail_waits(enode: Enode, count: int) -> None:
    """Let all waits fail until there were `count`."""
    for number in range(count):
        await until(lambda number=number: len(enode.waits) > number)  # type: ignore[misc]
        if not enode.waits[number].done():
            enode.waits[number].set_exception(Unavailable("there is no leader"))


async def test_only_the_first_pop_is_woken_and_then_twice_as_many() -> None:
    """While the enode has messages; a pop that finds none ends this."""
    async with opened() as (enode, watches, background):
        pops = Pops(watches, background)
        with watches.use([PLACE]) as [watch]:
            watch.on_empty("")
            for name in "abcdef":
                pops.start(name, finds=name != "b")
            await turns()
            assert (len(enode.waits), pops.woken) == (1, [])
            enode.waits[0].set_result(True)
            await turns()
            # `a` wakes `b` and `c`. `b` finds nothing, and `c` leaves before the enode has reported anything.
            assert pops.woken == ["a", "b", "c"]
            assert (len(enode.waits), watch.is_quiet) == (2, True)
            enode.waits[1].set_result(True)
            await turns()
            assert pops.woken == list("abcdef")


async def test_a_cancelled_pop_passes_its_turn_on() -> None:
    """It was woken and cancelled at the same time."""
    async with opened() as (_, watches, background):
        pops = Pops(watches, background)
        with watches.use([PLACE]) as [watch]:
            watch.on_empty("")
            first = pops.start("a")
            pops.start("b")
            await turns()
            watch.is_quiet = False
            watch.wake(1)
            first.cancel()
            await turns()
            assert pops.woken == ["b"]


async def test_a_wait_is_repeated_while_it_is_used() -> None:
    """A watch without a pop is forgotten when its wait ends, and its next pop asks the enode."""
    async with opened() as (enode, watches, _):
        with watches.use([PLACE]) as [watch]:
            watch.on_empty("the limit")
            await turns()
            enode.waits[0].set_result(False)
            await turns()
            assert (len(enode.waits), watch.is_quiet) == (2, True)
        with watches.use([PLACE]) as [same]:
            assert same is watch
        enode.waits[1].set_result(False)
        await turns()
        assert len(enode.waits) == 2
        with watches.use([PLACE]) as [new]:
            assert new is not watch
            assert not new.is_quiet


async def test_a_wait_that_fails_is_repeated_once_then_all_pops_get_its_error() -> None:
    """Usually another replica leads at the second attempt. A refusal is not repeated."""
    async with opened() as (enode, watches, background):
        pops = Pops(watches, background)
        with watches.use([PLACE]) as [watch]:
            watch.on_empty("")
            pops.start("a")
            pops.start("b")
            await turns()
            enode.waits[0].set_exception(Unavailable("the leader was lost"))
            await turns()
            assert (len(enode.waits), pops.woken) == (2, [])
            enode.waits[1].set_exception(Conflict("another mode"))
            await turns()
            assert pops.woken == ["a", "b"]
            assert [str(one) for one in pops.failures] == 2 * ["another mode"]
            assert (len(enode.waits), watch.is_quiet) == (2, False)


async def test_an_unreachable_enode_is_asked_again_and_its_return_wakes_a_pop(monkeypatch: Any) -> None:
    """Each pop is woken by the first failure only, however long the enode is away."""
    monkeypatch.setattr(module, "UNREACHABLE_PAUSE_S", 0.001)
    async with opened() as (enode, watches, background):
        with watches.use([PLACE]) as [watch]:
            watch.on_unreachable(Unavailable("there is no leader"))
            pop = WaitingPop(asyncio.get_running_loop().create_future())
            first = background.spawn("pop", watches.wait([watch], late_s(), pop=pop))
            await fail_waits(enode, 2)
            assert list(await first) == [watch]
            pop = WaitingPop(asyncio.get_running_loop().create_future(), failed={watch})
            again = background.spawn("pop", watches.wait([watch], late_s(), pop=pop))
            await fail_waits(enode, 6)
            assert (again.done(), watch.is_quiet) == (False, True)
            await until(lambda: len(enode.waits) == 7)
            enode.waits[6].set_result(False)
            await until(lambda: len(enode.waits) == 8)
            assert watch.error is None  # it is reachable, although it has no messages
            enode.waits[7].set_result(True)
            assert await again == {}


async def test_an_enode_that_answers_waits_and_no_pops_is_asked_at_intervals(monkeypatch: Any) -> None:
    """For example, its disk is full. Its waits report at once that there are messages."""
    monkeypatch.setattr(module, "UNREACHABLE_PAUSE_S", 600)
    async with opened() as (enode, watches, _):
        with watches.use([PLACE]) as [watch]:
            watch.on_unreachable(Unavailable("no lease can be stored"))
            await until(lambda: len(enode.waits) == 1)
            enode.waits[0].set_result(True)
            await until(lambda: not watch.is_quiet)
            watch.on_unreachable(Unavailable("no lease can be stored"))
            await turns()
            assert (len(enode.waits), watch.is_quiet) == (1, True)


async def test_an_older_enode_is_asked_at_intervals(monkeypatch: Any) -> None:
    """It has no such call; one pop asks it each time."""
    monkeypatch.setattr(module, "OLDER_ENODE_POLL_S", 0.01)
    async with opened() as (enode, watches, background):
        pops = Pops(watches, background)
        with watches.use([PLACE]) as [watch]:
            watch.on_empty("")
            waiting = pops.start("a")
            await turns()
            enode.waits[0].set_exception(Unsupported("no such method"))
            await waiting
            assert pops.woken == ["a"]


async def test_a_pop_waits_no_longer_than_its_time_or_its_events() -> None:
    """Its enode stays quiet."""
    async with opened() as (_, watches, background):
        changed = asyncio.Event()
        with watches.use([PLACE]) as [watch]:
            watch.on_empty("")
            assert await watches.wait([watch], SystemClock().monotonic_s() + 0.01) == {}
            waiting = background.spawn("pop", watches.wait([watch], late_s(), events=[changed]))
            await turns()
            assert not waiting.done()
            changed.set()
            await waiting
            assert isinstance(watch, PopWatch)
            assert watch.is_quiet
