"""A process keeps to one core while one is enough: its threads then wake each other without waking another core.

A call crosses half a dozen threads of gRPC and of ours, one at a time. On a core of its own each wake-up is a switch;
across cores it is an interrupt, and the interpreter's lock goes with it. Who needs more than a core gets all.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness

GIVEN = "ORTOO_CORES"
"""Tells a process's own processes which cores it was given, since they inherit the one that it keeps to."""
LOOK_S = 1.0
LITTLE = 0.05
"""Of a core: a process that uses less is let alone."""
ENOUGH = 0.7
"""Who uses no more of a core can keep to one."""
TOO_MUCH = 0.85
"""Who uses more of its core may need another one."""
FULL = 0.95
"""A core that is so busy has no room for who keeps to it."""
BETTER = 0.3
"""A core is left for one that is so much less busy with others."""
LOOKS_BEFORE = 2
"""So many looks in turn must find that a core is enough."""
LOOKS_AFTER = 8
"""So many looks after all cores were needed, none is chosen."""
_SECONDS_A_TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Load:
    """What was seen between two looks, in cores: 1.0 = one core, all the time."""

    own: float
    """What the process used."""
    busy: Mapping[int, float]
    """How busy each core was that it was given, with whatever."""


@dataclass(slots=True)
class OneCore:
    """Which core to keep to, by what was seen; None = all of them."""

    core: int | None = None
    _waits: int = field(default=LOOKS_BEFORE, init=False)

    def choices(self, load: Load) -> Sequence[int | None]:
        """What to keep to from now on: the first of these that can be had."""
        if self.core is None:
            return [*self._free(load), None]
        others = load.busy[self.core] - load.own
        if load.own > TOO_MUCH or load.busy[self.core] > FULL:
            self._waits = LOOKS_AFTER
            return [None]
        if load.own < LITTLE:
            self._waits = LOOKS_BEFORE
            return [None]
        better = [core for core in _by_busyness(load) if load.busy[core] < others - BETTER]
        return [*better, self.core]

    def _free(self, load: Load) -> list[int]:
        if not LITTLE <= load.own <= ENOUGH:
            self._waits = max(self._waits, LOOKS_BEFORE)
            return []
        self._waits -= 1
        if self._waits > 0:
            return []
        return [core for core in _by_busyness(load) if load.busy[core] - load.own / len(load.busy) <= 0.5]


def _by_busyness(load: Load) -> list[int]:
    return sorted(load.busy, key=load.busy.__getitem__)


async def keep_to_one_core(clock: Clock, randomness: Randomness) -> None:
    """Look and choose for ever; returns at once where the system has no such choice, or only one core is given."""
    given = cores_given()
    if len(given) < 2:
        return
    os.environ[GIVEN] = ",".join(map(str, sorted(given)))
    decision, claim = OneCore(), _Claim()
    used_s, busy_s, at_s = time.process_time(), _busy_s(), clock.monotonic_s()
    try:
        while busy_s:
            # Processes that begin together must not choose together.
            await clock.sleep(randomness.uniform(0.75 * LOOK_S, 1.25 * LOOK_S))
            before, used_s = used_s, time.process_time()
            if decision.core is None and used_s - before < LITTLE * LOOK_S / 2:
                at_s = 0.0  # what the cores did meanwhile is of no interest
                continue
            earlier_s, at_s = at_s, clock.monotonic_s()
            busy_before, busy_s = busy_s, _busy_s()
            if not earlier_s:
                continue
            took_s = at_s - earlier_s
            busy = {core: (busy_s[core] - busy_before[core]) / took_s for core in given if core in busy_s and core in busy_before}
            load = Load((used_s - before) / took_s, busy)
            import sys; print(os.getpid(), round(at_s,1), load, decision.core, decision._waits, file=open('/tmp/q/cores.log','a'))
            for core in decision.choices(load):
                if core == decision.core:
                    break
                if core is None or claim.take(core):
                    _keep_to(given if core is None else {core})
                    if core is None:
                        claim.give()
                    decision.core = core
                    break
    finally:
        claim.give()
        _keep_to(given)


def cores_given() -> set[int]:
    """The cores that the process may use; empty where the system does not say. A child knows those of its parent."""
    if not hasattr(os, "sched_setaffinity"):
        return set()
    text = os.environ.get(GIVEN)
    return set(map(int, text.split(","))) if text else set(os.sched_getaffinity(0))


def use_all_cores() -> None:
    """Use what the parent was given, and not only what it keeps to."""
    if given := cores_given():
        _keep_to(given)


def _keep_to(cores: set[int]) -> None:
    """Let all threads run there, also those that one of them begins meanwhile."""
    done: set[str] = set()
    while new := set(os.listdir("/proc/self/task")) - done:
        for thread in new:
            with contextlib.suppress(OSError):  # it has ended
                os.sched_setaffinity(int(thread), cores)
        done |= new


def _busy_s() -> dict[int, float]:
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return {}
    found = dict[int, float]()
    for line in lines[1:]:
        if not line.startswith("cpu"):
            break
        name, *ticks = line.split()
        user, nice, system, _idle, _waiting, *rest = map(int, ticks[:8])
        found[int(name[3:])] = (user + nice + system + sum(rest)) * _SECONDS_A_TICK
    return found


class _Claim:
    """The core that is ours among the processes that keep to one: a name of the kernel's, gone with the process."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def take(self, core: int) -> bool:
        """Whether nobody else has it; what was ours before is given back then."""
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0ortoo core {core}")
        except OSError:
            claim.close()
            return False
        self.give()
        self._socket = claim
        return True

    def give(self) -> None:
        """Let others have it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
