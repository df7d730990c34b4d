"""The order of a comparison: every system is warmed up, and then measured in each round while the others are paused."""

import asyncio
import contextlib
import os
import resource
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers.load import LoadFailed
from bench.peers.servers import DidNotStart, state_of
from bench.processes import cpu_s
from bench.report import Figures

STARTS_MAX = 3
SETTLE_MAX_S, SETTLE_PAUSE_S = 120.0, 1.0
PAUSE_MAX_S, LOOK_S = 10.0, 0.01
STEADY_WINDOWS, STEADY_SPREAD = 3, 0.05
"""A load is warm when this many windows in a row differ by less than this share."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long each part of a comparison takes."""

    rounds: int
    seconds: float
    """Of each figure; half of it in bulk."""
    warm_up_min_s: float
    warm_up_max_s: float
    idle_s: float
    """Pause after the start, before idle processor time and memory are measured."""
    stored_messages: int
    """The smallest backlog that is read in bulk."""

    @property
    def window_s(self) -> float:
        """Length of a window of the warm-up: a sixth of the shortest warm-up."""
        return self.warm_up_min_s / 6


class System(ABC):
    """A system that is measured: its servers and its load programs, which run through all rounds."""

    name: str

    @abstractmethod
    def running(self, folder: Path, plan: Plan) -> contextlib.AbstractAsyncContextManager[Figures]:
        """Start it in an empty folder; the figures of the start. Errors: DidNotStart, LoadFailed."""

    @abstractmethod
    async def warm_up(self, plan: Plan) -> Figures:
        """Apply each load until its rate is steady; the windows of each. Errors: LoadFailed."""

    @abstractmethod
    async def settle(self) -> None:
        """Do once what the next measurement does, after a pause. Errors: LoadFailed, if it does not work yet."""

    @abstractmethod
    async def measure(self, plan: Plan) -> Figures:
        """The figures of one round. Errors: LoadFailed."""

    @abstractmethod
    def process_ids(self) -> list[int]:
        """All its processes, those of the load programs too."""


def is_steady(rates: Sequence[float]) -> bool:
    """Whether the last windows differ by less than 5 %."""
    last = rates[-STEADY_WINDOWS:]
    return len(last) == STEADY_WINDOWS and min(last) > (1 - STEADY_SPREAD) * max(last)


async def warm_up(
    window: Callable[[], Awaitable[Figures]], plan: Plan, now_s: Callable[[], float] = time.perf_counter
) -> Figures:
    """Repeat a window, whose figures have its rate, until the rates are steady, within the times of the plan."""
    rates: list[float] = []
    began = now_s()
    while True:
        rates.append(round((await window())["per_s"], 1))
        elapsed = now_s() - began
        if elapsed >= plan.warm_up_max_s or (elapsed >= plan.warm_up_min_s and is_steady(rates)):
            return {"rates": rates, "steady": is_steady(rates), "seconds": round(elapsed, 1)}


def pause(process_ids: Sequence[int]) -> None:
    """Stop processes where they are (SIGSTOP), and return when all are stopped."""
    for process_id in process_ids:
        os.kill(process_id, signal.SIGSTOP)
    _wait(process_ids, stopped=True)


def resume(process_ids: Sequence[int]) -> None:
    """Continue paused processes (SIGCONT), and return when none is stopped."""
    for process_id in process_ids:
        with contextlib.suppress(ProcessLookupError):  # it was stopped while the benchmark ended
            os.kill(process_id, signal.SIGCONT)
    _wait(process_ids, stopped=False)


def _wait(process_ids: Sequence[int], *, stopped: bool) -> None:
    give_up = time.perf_counter() + PAUSE_MAX_S
    while any((state_of(one) == "T") is not stopped for one in process_ids):
        if time.perf_counter() > give_up:
            raise DidNotStart(f"a process did not {'stop' if stopped else 'go on'} within {PAUSE_MAX_S:g} s")
        time.sleep(LOOK_S)


async def compare(systems: Sequence[System], plan: Plan, folder: Path) -> Figures:
    """Start and warm up all systems, and measure them in turn; the start, warm-up and rounds of each by its name.

    In each round another system is the first. Errors: DidNotStart, LoadFailed.
    """
    found: Figures = {}
    async with AsyncExitStack() as stack:
        for system in systems:
            with _told(f"{system.name}: start and warm-up"):
                started = await stack.enter_async_context(_started(system, folder, plan))
                found[system.name] = {"start": started, "warm_up": await system.warm_up(plan), "rounds": []}
            stack.callback(resume, system.process_ids())  # before its context ends it
            pause(system.process_ids())
        for number in range(plan.rounds):
            first = number % len(systems)
            for system in (*systems[first:], *systems[:first]):
                with _told(f"round {number + 1} of {plan.rounds}: {system.name}"):
                    resume(system.process_ids())
                    await _settled(system)
                    found[system.name]["rounds"].append(await _measured(system, plan))
                    pause(system.process_ids())
    return found


@asynccontextmanager
async def _started(system: System, folder: Path, plan: Plan, attempt: int = 1) -> AsyncIterator[Figures]:
    """Start a system. It is tried again, because RocketMQ's proxy may exit while its broker is not registered."""
    own = folder / f"{system.name}-{attempt}".replace(" ", "-")
    own.mkdir()
    async with AsyncExitStack() as stack:
        try:
            figures = await stack.enter_async_context(system.running(own, plan))
        except DidNotStart:
            if attempt == STARTS_MAX:
                raise
            print("did not start, once more ...", end=" ", flush=True)
            figures = await stack.enter_async_context(_started(system, folder, plan, attempt + 1))
        yield figures


async def _settled(system: System) -> None:
    """Wait until a resumed system works again. Errors: LoadFailed."""
    give_up = time.perf_counter() + SETTLE_MAX_S
    while True:
        try:
            return await system.settle()
        except LoadFailed:
            if time.perf_counter() > give_up:
                raise
        await asyncio.sleep(SETTLE_PAUSE_S)


async def _measured(system: System, plan: Plan) -> Figures:
    """One round of a system, with the load average and the share that other programs took meanwhile."""
    process_ids = system.process_ids()
    load_average, busy_s, own_s = os.getloadavg()[0], machine_busy_s(), used_s(process_ids)
    began = time.perf_counter()
    figures = await system.measure(plan)
    others_s = (machine_busy_s() - busy_s) - (used_s(process_ids) - own_s)
    machine_s = (time.perf_counter() - began) * len(os.sched_getaffinity(0))
    return {
        **figures,
        "load_average": {"before": load_average, "after": os.getloadavg()[0]},
        "others_share": round(max(0.0, others_s / machine_s), 3),
    }


def machine_busy_s() -> float:
    """Processor seconds of the whole machine that were not idle, including time stolen by its host."""
    _, user, nice, system, _, _, *others = Path("/proc/stat").read_text().splitlines()[0].split()[:9]
    return sum(map(int, (user, nice, system, *others))) / os.sysconf("SC_CLK_TCK")


def used_s(process_ids: Sequence[int]) -> float:
    """Processor seconds of these processes and of this one."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime + sum(map(cpu_s, process_ids))


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Print what is done, and how long it took."""
    print(f"{what} ...", end=" ", flush=True)
    began = time.perf_counter()
    yield
    print(f"{time.perf_counter() - began:.0f} s", flush=True)
