"""A process keeps to one core while one is enough: its threads then wake each other without waking another core.

A call crosses half a dozen threads of gRPC and of ours, one at a time. On a core of its own each wake-up is a switch;
across cores it is an interrupt, and the interpreter's lock goes with it. Who needs more than a core gets all.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

LOOK_S = 1.0
"""How often it is looked what all cores do."""
IDLE_S = 4.0
"""How often a process that is idle looks at itself: a wake-up costs it a third of a millisecond."""
IDLE_LOOKS = 5
"""After so many looks with nothing done it is idle."""
GLANCE_S = 0.2
"""How often a process that keeps to one core looks at itself alone."""
LITTLE = 0.05
"""Of a core: who uses less has no wake-ups worth saving, and leaves the core to others."""
NOTHING = 0.02
"""Who uses less than this gives its core back. It is below LITTLE, so that a steady load does neither in turn."""
ENOUGH = 0.7
"""Who uses no more of a core can keep to one: what waits for a core that is busier than that waits for long."""
TOO_MUCH = 0.85
"""Who uses more of its core may need another one."""
GLANCES = 2
"""So many glances in turn must find that: one may be a flush of a segment, three take longer than a second."""
ROOM = 0.5
"""How busy others may keep a core that is chosen. Who is not bound to it moves away, so it may seem too much."""
FULL = 0.95
"""A core that is so busy, with whatever, has no room for who keeps to it."""
BETTER = 0.1
"""A core is left for one that is so much less busy with others: more may be all that another process of ours does."""
LOOKS_BEFORE = 2
"""So many looks in turn must find that a core is enough."""
LOOKS_AFTER = 8
"""So many looks must find it after all cores were needed; twice as many each time that was soon again, up to the
next."""
LOOKS_AFTER_MAX = 256
LOOKS_BETTER = 5
"""So many looks in turn must find a better one: one differs from the next by more than that."""


class Cores(Protocol):
    """What the system has to say and to give. Cores go by the system's numbers."""

    def used_s(self) -> float:
        """Processor time that the process has used."""

    def given(self) -> frozenset[int]:
        """The cores that the process may run on now."""

    def busy_s(self) -> Mapping[int, float]:
        """How long each core of the machine has been busy with whatever."""

    def keep_to(self, core: int) -> bool:
        """Run there and nowhere else; False when another process keeps to it. Errors: OSError."""

    def use_all(self) -> None:
        """Run wherever the system allows. Errors: OSError; `settle` does then what is left to do."""

    def settle(self) -> None:
        """Have threads do so too that were on their way while the others were told. Errors: OSError."""


@dataclass(frozen=True, slots=True)
class Load:
    """What was seen between two looks, in cores: 1.0 = one core, all the time."""

    own: float
    """What the process used."""
    busy: Mapping[int, float]
    """How busy each core was that it was given; empty when nobody looked."""


@dataclass(slots=True)
class OneCore:
    """Which core to keep to, by what was seen."""

    core: int | None = None
    """What it keeps to; None = all."""
    _kept: int = field(default=0, init=False)
    """Looks since it keeps to one, whichever."""
    _left: int = field(default=LOOKS_BEFORE, init=False)
    """Looks that must find that one is enough before one is chosen."""
    _pause: int = field(default=0, init=False)
    """Looks that were waited after all cores were needed last."""
    _glances: int = field(default=0, init=False)
    """Glances in turn that found that a core is not enough."""
    _better: int = field(default=0, init=False)
    """Looks in turn that found a better core."""

    def took(self, core: int) -> None:
        """It keeps to this one from now on."""
        self.core, self._glances, self._better = core, 0, 0

    def glance(self, own: float) -> None:
        """The process used so much of its core since the last glance."""
        self._glances = self._glances + 1 if own > TOO_MUCH else 0
        if self._glances == GLANCES:
            self.leave()

    def leave(self) -> None:
        """All cores are needed. Who needs them sooner than it waited for the next try waits longer."""
        self._pause = min(2 * self._pause, LOOKS_AFTER_MAX) if self._kept < self._pause else LOOKS_AFTER
        self.core, self._left, self._kept = None, self._pause, 0

    def choices(self, load: Load) -> Sequence[int]:
        """The cores to keep to from now on, the first that can be had; none = all of them."""
        if self.core is None:
            return self._free(load)
        self._kept += 1
        busy = load.busy.get(self.core, 1.0)  # one that nobody knows any more is none
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
        # Nobody counts who did what where: it itself was everywhere alike.
        return [core for core in _idlest(load) if load.busy[core] - load.own / len(load.busy) <= ROOM]


def _idlest(load: Load) -> list[int]:
    return sorted(load.busy, key=load.busy.__getitem__)


@dataclass(frozen=True, slots=True)
class _Seen:
    at_s: float
    used_s: float
    busy_s: Mapping[int, float]


class Keeper:
    """Has a process keep to what `OneCore` chooses."""

    def __init__(self, cores: Cores) -> None:
        """Nothing is done before the first look."""
        self._cores = cores
        self._decision = OneCore()
        self._given = frozenset[int]()
        self._glanced_s, self._used_s, self._idle_looks = float("-inf"), 0.0, 0
        self._seen: _Seen | None = None
        self._is_settled = True

    def look(self, now_s: float) -> float:
        """Look and choose. Returns after how many seconds to do so again.

        A process that has little to do looks at its own processor time and at nothing else.
        """
        try:
            if not self._is_settled:
                self._cores.settle()
                self._is_settled = True
            self._look(now_s)
        except OSError:  # the system refuses, or no file descriptor is free; the next look settles what did not work
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
            self._seen = None  # what the cores did meanwhile is of no interest
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
            return  # what is counted are not the cores that we are given, as in some containers
        took_s = now_s - before.at_s
        busy = {one: (self._seen.busy_s[one] - before.busy_s[one]) / took_s for one in both}
        for choice in self._decision.choices(Load((used_s - before.used_s) / took_s, busy)):
            if choice == core:
                break
            if self._cores.keep_to(choice):
                self._decision.took(choice)
                self._is_settled = False
                break
