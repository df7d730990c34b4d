"""Pins a process to one core while one is enough, so that its threads wake each other without waking another core.

A call crosses half a dozen threads of gRPC and of ours, one at a time. On one core each wake-up is a context switch;
across cores it is an interrupt, and the interpreter's lock moves as well. A process that needs more than one core gets
all.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

SAMPLE_INTERVAL_S = 1.0
"""Interval between measurements of all cores."""
IDLE_SAMPLE_INTERVAL_S = 4.0
"""Interval between measurements of an idle process, which cost a third of a millisecond each."""
IDLE_SAMPLES = 5
"""Number of measurements without load after which the process is idle."""
OWN_SAMPLE_INTERVAL_S = 0.2
"""Interval at which a pinned process measures only itself."""
PIN_LOAD_MIN = 0.05
"""Load, in cores, below which pinning saves nothing, so that the core is left to other processes."""
UNPIN_LOAD_MAX = 0.02
"""Load below which the core is released. It is below PIN_LOAD_MIN, so that a steady load does not alternate."""
PIN_LOAD_MAX = 0.7
"""Maximum load for which one core is chosen, because threads wait long for a busier core."""
OVERLOAD = 0.85
"""Load of a pinned process above which it may need more than its core."""
OVERLOAD_SAMPLES = 2
"""Number of consecutive measurements that must find that. One may be a flush of a segment; three take too long."""
OTHERS_LOAD_MAX = 0.5
"""Maximum load of other processes on a chosen core. It may be high, because unpinned processes move away."""
SATURATED = 0.95
"""Total load of a core from which a pinned process leaves it."""
MOVE_GAIN_MIN = 0.1
"""Difference in the load of others for which a core is left for another one."""
SAMPLES_BEFORE_PIN = 2
"""Number of consecutive measurements that must find that a core is enough."""
SAMPLES_AFTER_OVERLOAD = 8
"""The same number after all cores were needed. It doubles each time that this happens again soon, up to the next
limit."""
SAMPLES_AFTER_OVERLOAD_MAX = 256
SAMPLES_BEFORE_MOVE = 5
"""Number of consecutive measurements that must find a better core, because single ones differ by more than that."""


class CpuCores(Protocol):
    """The system's cores, by the system's numbers."""

    def used_s(self) -> float:
        """The processor time that the process has used."""

    def allowed(self) -> frozenset[int]:
        """The cores that the process may run on now."""

    def busy_s(self) -> Mapping[int, float]:
        """The busy time of each core of the machine, for all processes."""

    def pin(self, core: int) -> bool:
        """Pin the process to the core; False when another process has claimed it. Errors: OSError."""

    def unpin(self) -> None:
        """Use all cores that the system allows. Errors: OSError, after which `apply_to_threads` completes it."""

    def apply_to_threads(self) -> None:
        """Change also the threads that were being started during the last change. Errors: OSError."""


@dataclass(frozen=True, slots=True)
class CoreLoad:
    """The load between two measurements, in cores: 1.0 = one core, all the time."""

    own: float
    """The load of the process."""
    busy: Mapping[int, float]
    """The load of each core that it may use; empty when that was not measured."""


@dataclass(slots=True)
class CoreChoice:
    """Decides on the core to pin to, from measurements."""

    core: int | None = None
    """The core that the process is pinned to; None = all cores."""
    _pinned_samples: int = field(default=0, init=False)
    """Measurements since it was pinned to a core, also to another one."""
    _samples_left: int = field(default=SAMPLES_BEFORE_PIN, init=False)
    """Measurements that must still find that one core is enough."""
    _pause_samples: int = field(default=0, init=False)
    """Measurements waited after all cores were last needed."""
    _overload_samples: int = field(default=0, init=False)
    """Consecutive glances that found that a core is not enough."""
    _better_samples: int = field(default=0, init=False)
    """Consecutive measurements that found a better core."""

    def set_pinned(self, core: int) -> None:
        """Note that the process is pinned to this core."""
        self.core, self._overload_samples, self._better_samples = core, 0, 0

    def add_own_sample(self, own: float) -> None:
        """Take the load of the process since the last measurement."""
        self._overload_samples = self._overload_samples + 1 if own > OVERLOAD else 0
        if self._overload_samples == OVERLOAD_SAMPLES:
            self.unpin()

    def unpin(self) -> None:
        """Use all cores. If they are needed again within the last waiting time, that time doubles."""
        self._pause_samples = (
            min(2 * self._pause_samples, SAMPLES_AFTER_OVERLOAD_MAX)
            if self._pinned_samples < self._pause_samples
            else SAMPLES_AFTER_OVERLOAD
        )
        self.core, self._samples_left, self._pinned_samples = None, self._pause_samples, 0

    def choose(self, load: CoreLoad) -> Sequence[int]:
        """The cores to pin to, in order of preference; empty = use all cores."""
        if self.core is None:
            return self._choose_free(load)
        self._pinned_samples += 1
        busy = load.busy.get(self.core, 1.0)  # a core that disappeared counts as full
        if busy > SATURATED:
            self.unpin()
        elif load.own < UNPIN_LOAD_MAX:
            self.core, self._samples_left, self._pinned_samples = None, SAMPLES_BEFORE_PIN, 0
        if self.core is None:
            return []
        better = [core for core in _by_load(load) if load.busy[core] < busy - load.own - MOVE_GAIN_MIN]
        self._better_samples = self._better_samples + 1 if better else 0
        return [*better, self.core] if self._better_samples >= SAMPLES_BEFORE_MOVE else [self.core]

    def _choose_free(self, load: CoreLoad) -> list[int]:
        if not PIN_LOAD_MIN <= load.own <= PIN_LOAD_MAX:
            self._samples_left = max(self._samples_left, SAMPLES_BEFORE_PIN)
            return []
        self._samples_left -= 1
        if self._samples_left > 0:
            return []
        # Load is not counted by process and core, so that the process's own is assumed to be spread evenly.
        return [core for core in _by_load(load) if load.busy[core] - load.own / len(load.busy) <= OTHERS_LOAD_MAX]


def _by_load(load: CoreLoad) -> list[int]:
    return sorted(load.busy, key=load.busy.__getitem__)


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    used_s: float
    busy_s: Mapping[int, float]


class CorePinning:
    """Pins the process to the core that `CoreChoice` chooses."""

    def __init__(self, cores: CpuCores) -> None:
        """Do nothing before the first measurement."""
        self._cores = cores
        self._choice = CoreChoice()
        self._allowed = frozenset[int]()
        self._own_sampled_s, self._used_s, self._idle_samples = float("-inf"), 0.0, 0
        self._last_sample: _Sample | None = None
        self._is_applied = True

    def sample(self, now_s: float) -> float:
        """Measure and choose. Returns the seconds until the next call.

        A process with little load measures only its own processor time.
        """
        try:
            if not self._is_applied:
                self._cores.apply_to_threads()
                self._is_applied = True
            self._sample_own(now_s)
        except OSError:  # refused, or no free file descriptor; the next call settles it
            self._choice.unpin()
            with contextlib.suppress(OSError):
                self.unpin()
        if self._choice.core is not None:
            return OWN_SAMPLE_INTERVAL_S
        return IDLE_SAMPLE_INTERVAL_S if self._idle_samples > IDLE_SAMPLES else SAMPLE_INTERVAL_S

    def unpin(self) -> None:
        """Use all cores again. Errors: OSError."""
        self._choice.core, self._last_sample, self._is_applied = None, None, False
        self._cores.unpin()

    def _sample_own(self, now_s: float) -> None:
        used_s = self._cores.used_s()
        own = (used_s - self._used_s) / (now_s - self._own_sampled_s) if now_s > self._own_sampled_s else 0.0
        self._own_sampled_s, self._used_s = now_s, used_s
        self._idle_samples = self._idle_samples + 1 if own < UNPIN_LOAD_MAX else 0
        before = self._choice.core
        if before is not None:
            self._choice.add_own_sample(own)
        elif own < PIN_LOAD_MIN:
            self._last_sample = None  # a later measurement must begin again
            self._choice.choose(CoreLoad(own, {}))
            return
        if self._choice.core == before and self._is_due(now_s):
            self._sample_all(now_s, used_s)
        if before is not None and self._choice.core is None:
            self.unpin()

    def _is_due(self, now_s: float) -> bool:
        return (
            self._choice.core is None
            or self._last_sample is None
            or now_s - self._last_sample.at_s > SAMPLE_INTERVAL_S - OWN_SAMPLE_INTERVAL_S
        )

    def _sample_all(self, now_s: float, used_s: float) -> None:
        allowed, core = self._cores.allowed(), self._choice.core
        if core is None:
            self._allowed = allowed
        elif allowed != {core}:  # an operator, or the kernel because the core is no longer ours
            self._choice.unpin()
            return
        if len(self._allowed) < 2:
            return
        before, self._last_sample = self._last_sample, _Sample(now_s, used_s, self._cores.busy_s())
        if before is None:
            return
        both = self._allowed & before.busy_s.keys() & self._last_sample.busy_s.keys()
        if core is None and both != self._allowed:
            return  # the system counts other cores than ours, as in some containers
        took_s = now_s - before.at_s
        busy = {one: (self._last_sample.busy_s[one] - before.busy_s[one]) / took_s for one in both}
        for choice in self._choice.choose(CoreLoad((used_s - before.used_s) / took_s, busy)):
            if choice == core:
                break
            if self._cores.pin(choice):
                self._choice.set_pinned(choice)
                self._is_applied = False
                break
