"""Pins a process to one core while one is enough, so that its threads wake each other without waking another core.

A call crosses half a dozen threads of gRPC and of ours, one at a time. On one core each wake-up is a context switch;
across cores it is an interrupt, and the interpreter's lock moves as well. A process that needs more than one core gets
all.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

LOOK_S = 1.0
"""Interval between measurements of all cores."""
IDLE_S = 4.0
"""Interval between measurements of an idle process, which cost a third of a millisecond each."""
IDLE_LOOKS = 5
"""Number of measurements without load after which the process is idle."""
GLANCE_S = 0.2
"""Interval at which a pinned process measures only itself (a glance)."""
LITTLE = 0.05
"""Load, in cores, below which pinning saves nothing, so that the core is left to other processes."""
NOTHING = 0.02
"""Load below which the core is released. It is below LITTLE, so that a steady load does not alternate."""
ENOUGH = 0.7
"""Maximum load for which one core is chosen, because threads wait long for a busier core."""
TOO_MUCH = 0.85
"""Load of a pinned process above which it may need more than its core."""
GLANCES = 2
"""Number of consecutive glances that must find that. One may be a flush of a segment; three take too long."""
ROOM = 0.5
"""Maximum load of other processes on a chosen core. It may be high, because unpinned processes move away."""
FULL = 0.95
"""Total load of a core from which a pinned process leaves it."""
BETTER = 0.1
"""Difference in the load of others for which a core is left for another one."""
LOOKS_BEFORE = 2
"""Number of consecutive measurements that must find that a core is enough."""
LOOKS_AFTER = 8
"""The same number after all cores were needed. It doubles each time that this happens again soon, up to the next
limit."""
LOOKS_AFTER_MAX = 256
LOOKS_BETTER = 5
"""Number of consecutive measurements that must find a better core, because single ones differ by more than that."""


class Cores(Protocol):
    """The system's cores, by the system's numbers."""

    def used_s(self) -> float:
        """The processor time that the process has used."""

    def given(self) -> frozenset[int]:
        """The cores that the process may run on now."""

    def busy_s(self) -> Mapping[int, float]:
        """The busy time of each core of the machine, for all processes."""

    def keep_to(self, core: int) -> bool:
        """Pin the process to the core; False when another process has claimed it. Errors: OSError."""

    def use_all(self) -> None:
        """Use all cores that the system allows. Errors: OSError, after which `settle` completes it."""

    def settle(self) -> None:
        """Change also the threads that were being started during the last change. Errors: OSError."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load between two measurements, in cores: 1.0 = one core, all the time."""

    own: float
    """The load of the process."""
    busy: Mapping[int, float]
    """The load of each core that it may use; empty when that was not measured."""


@dataclass(slots=True)
class OneCore:
    """Decides on the core to pin to, from measurements."""

    core: int | None = None
    """The core that the process is pinned to; None = all cores."""
    _kept: int = field(default=0, init=False)
    """Measurements since it was pinned to a core, also to another one."""
    _left: int = field(default=LOOKS_BEFORE, init=False)
    """Measurements that must still find that one core is enough."""
    _pause: int = field(default=0, init=False)
    """Measurements waited after all cores were last needed."""
    _glances: int = field(default=0, init=False)
    """Consecutive glances that found that a core is not enough."""
    _better: int = field(default=0, init=False)
    """Consecutive measurements that found a better core."""

    def took(self, core: int) -> None:
        """Note that the process is pinned to this core."""
        self.core, self._glances, self._better = core, 0, 0

    def glance(self, own: float) -> None:
        """Take the load of the process since the last glance."""
        self._glances = self._glances + 1 if own > TOO_MUCH else 0
        if self._glances == GLANCES:
            self.leave()

    def leave(self) -> None:
        """Use all cores. If they are needed again within the last waiting time, that time doubles."""
        self._pause = min(2 * self._pause, LOOKS_AFTER_MAX) if self._kept < self._pause else LOOKS_AFTER
        self.core, self._left, self._kept = None, self._pause, 0

    def choices(self, load: Load) -> Sequence[int]:
        """The cores to pin to, in order of preference; empty = use all cores."""
        if self.core is None:
            return self._free(load)
        self._kept += 1
        busy = load.busy.get(self.core, 1.0)  # a core that disappeared counts as full
        if busy > FULL:
            self.leave()
        elif load.own < NOTHING:
            self.core, self._left, self._kept = None, LOOKS_BEFORE, 0
        if self.core is None:
            return []
        better = [core for core in _idlest(load) if load.busy[core] < busy - load.own - BETTER]
        self._better = self._better + 1 if better else 0
        return [*better, self.core] if self._better >= LOOKS_BETTER else [self.core]

    def _free(self, load: Load) -> list[int]:
        if not LITTLE <= load.own <= ENOUGH:
            self._left = max(self._left, LOOKS_BEFORE)
            return []
        self._left -= 1
        if self._left > 0:
            return []
        # Load is not counted by process and core, so that the process's own is assumed to be spread evenly.
        return [core for core in _idlest(load) if load.busy[core] - load.own / len(load.busy) <= ROOM]


def _idlest(load: Load) -> list[int]:
    return sorted(load.busy, key=load.busy.__getitem__)


@dataclass(frozen=True, slots=True)
class _Seen:
    at_s: float
    used_s: float
    busy_s: Mapping[int, float]


class Keeper:
    """Pins the process to the core that `OneCore` chooses."""

    def __init__(self, cores: Cores) -> None:
        """Do nothing before the first measurement."""
        self._cores = cores
        self._decision = OneCore()
        self._given = frozenset[int]()
        self._glanced_s, self._used_s, self._idle_looks = float("-inf"), 0.0, 0
        self._seen: _Seen | None = None
        self._is_settled = True

    def look(self, now_s: float) -> float:
        """Measure and choose. Returns the seconds until the next call.

        A process with little load measures only its own processor time.
        """
        try:
            if not self._is_settled:
                self._cores.settle()
                self._is_settled = True
            self._look(now_s)
        except OSError:  # refused, or no free file descriptor; the next call settles it
            self._decision.leave()
            with contextlib.suppress(OSError):
                self.end()
        if self._decision.core is not None:
            return GLANCE_S
        return IDLE_S if self._idle_looks > IDLE_LOOKS else LOOK_S

    def end(self) -> None:
        """Use all cores again. Errors: OSError."""
        self._decision.core, self._seen, self._is_settled = None, None, False
        self._cores.use_all()

    def _look(self, now_s: float) -> None:
        used_s = self._cores.used_s()
        own = (used_s - self._used_s) / (now_s - self._glanced_s) if now_s > self._glanced_s else 0.0
        self._glanced_s, self._used_s = now_s, used_s
        self._idle_looks = self._idle_looks + 1 if own < NOTHING else 0
        was = self._decision.core
        if was is not None:
            self._decision.glance(own)
        elif own < LITTLE:
            self._seen = None  # a later measurement must begin again
            self._decision.choices(Load(own, {}))
            return
        if self._decision.core == was and self._is_due(now_s):
            self._look_around(now_s, used_s)
        if was is not None and self._decision.core is None:
            self.end()

    def _is_due(self, now_s: float) -> bool:
        return self._decision.core is None or self._seen is None or now_s - self._seen.at_s > LOOK_S - GLANCE_S

    def _look_around(self, now_s: float, used_s: float) -> None:
        given, core = self._cores.given(), self._decision.core
        if core is None:
            self._given = given
        elif given != {core}:  # an operator, or the kernel because the core is no longer ours
            self._decision.leave()
            return
        if len(self._given) < 2:
            return
        before, self._seen = self._seen, _Seen(now_s, used_s, self._cores.busy_s())
        if before is None:
            return
        both = self._given & before.busy_s.keys() & self._seen.busy_s.keys()
        if core is None and both != self._given:
            return  # the system counts other cores than ours, as in some containers
        took_s = now_s - before.at_s
        busy = {one: (self._seen.busy_s[one] - before.busy_s[one]) / took_s for one in both}
        for choice in self._decision.choices(Load((used_s - before.used_s) / took_s, busy)):
            if choice == core:
                break
            if self._cores.keep_to(choice):
                self._decision.took(choice)
                self._is_settled = False
                break
