"""Pinning of a process to one core, with simulated loads."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.machine.cores import (
    IDLE_SAMPLE_INTERVAL_S,
    IDLE_SAMPLES,
    OWN_SAMPLE_INTERVAL_S,
    PIN_LOAD_MAX,
    PIN_LOAD_MIN,
    SAMPLE_INTERVAL_S,
    SAMPLES_AFTER_OVERLOAD,
    SAMPLES_AFTER_OVERLOAD_MAX,
    UNPIN_LOAD_MAX,
    CoreChoice,
    CoreLoad,
    CorePinning,
)
from ortoo.common.process.randomness import Randomness

STEP_S = 0.05


@dataclass
class MadeUp:
    """A machine of two cores, or more, whose process has the load of a test."""

    own: float = 0.3
    """The load of the process, in cores."""
    others: dict[int, float] = field(default_factory=lambda: {0: 0.1, 1: 0.0})
    taken: set[int] = field(default_factory=set)
    """Cores claimed by another process."""
    kept: int | None = None
    refuses: bool = False
    asked: int = 0
    """The number of requests to pin the process."""
    has_files: bool = True
    """Whether a file can be opened; otherwise threads cannot be listed and cores not measured."""
    stuck: bool = False
    """Whether threads still have to be set to all cores."""
    outside: frozenset[int] | None = None
    """The cores that an operator has set for the process."""
    reads: int = 0
    settled: int = 0
    used: float = 0.0
    done: dict[int, float] = field(default_factory=dict)

    def pass_time(self, seconds: float) -> None:
        self.used += self.own * seconds
        for core, busy in self.others.items():
            mine = self.own / len(self.others) if self.kept is None else self.own * (core == self.kept)
            self.done[core] = self.done.get(core, 0.0) + min(1.0, busy + mine) * seconds

    def used_s(self) -> float:
        return self.used

    def allowed(self) -> frozenset[int]:
        return self.outside or frozenset(self.others if self.kept is None else {self.kept})

    def busy_s(self) -> Mapping[int, float]:
        self.reads += 1
        return dict(self.done) if self.has_files else {}

    def pin(self, core: int) -> bool:
        self.asked += 1
        if self.refuses:
            raise OSError(22, "Invalid argument")
        if core not in self.taken:
            self.kept = core
        return core not in self.taken

    def unpin(self) -> None:
        self.stuck, self.kept = self.stuck or self.kept is not None, None
        self._tell()

    def apply_to_threads(self) -> None:
        self.settled += 1
        self._tell()

    def _tell(self) -> None:
        if not self.has_files:
            raise OSError(24, "Too many open files")
        self.stuck = False


class Run:
    """A keeper and its clock."""

    def __init__(self, machine: MadeUp) -> None:
        self.machine, self.keeper, self.now_s, self.due_s, self.looks = machine, CorePinning(machine), 0.0, 0.0, 0

    def go_on(self, seconds: float, until: "object" = ...) -> float:
        """Run for this time, or until it is pinned to `until`; returns the time that this took."""
        began_s = self.now_s
        while self.now_s < began_s + seconds and self.machine.kept != until:
            self.machine.pass_time(STEP_S)
            self.now_s += STEP_S
            if self.now_s >= self.due_s:
                self.looks += 1
                self.due_s = self.now_s + self.keeper.sample(self.now_s)
        return self.now_s - began_s


def kept(machine: MadeUp) -> Run:
    """A run whose process is pinned to a core."""
    run = Run(machine)
    run.go_on(6)
    assert machine.kept is not None
    return run


def test_a_light_load_comes_onto_the_idlest_core_within_seconds() -> None:
    """The core with less load of others is chosen."""
    assert kept(MadeUp()).machine.kept == 1


def test_a_burst_has_all_cores_within_a_second() -> None:
    """Holds for any start between two measurements."""
    for late in range(20):
        run = kept(MadeUp())
        run.go_on(late * STEP_S)
        run.machine.own = 1.0
        assert run.go_on(5, until=None) <= 1.0


def test_one_busy_moment_is_no_burst() -> None:
    """A flush of a fifth of a second does not unpin the process."""
    run = kept(MadeUp())
    for _ in range(20):
        run.machine.own = 1.0
        run.go_on(OWN_SAMPLE_INTERVAL_S)
        run.machine.own = 0.3
        run.go_on(1)
        assert run.machine.kept == 1


def test_an_idle_process_wakes_every_four_seconds_and_reads_nothing() -> None:
    """It uses all cores, and neither the machine nor its own mask is measured; a load is still detected soon."""
    run = Run(MadeUp(own=0.01))
    run.go_on(100)
    assert run.looks <= IDLE_SAMPLES + 1 + 100 / IDLE_SAMPLE_INTERVAL_S
    assert run.machine.reads == 0
    run.machine.own = 0.3
    assert run.go_on(20, until=1) <= IDLE_SAMPLE_INTERVAL_S + 4 * SAMPLE_INTERVAL_S


def test_who_has_nothing_more_to_do_gives_the_core_back() -> None:
    """The core is free within two seconds, for another process."""
    run = kept(MadeUp())
    run.machine.own = UNPIN_LOAD_MAX / 2
    assert run.go_on(10, until=None) <= 2.5


def test_a_load_at_the_border_neither_takes_nor_leaves_in_turn() -> None:
    """A pinned process stays with a load below the one that is needed for pinning."""
    run = kept(MadeUp())
    run.machine.own = (PIN_LOAD_MIN + UNPIN_LOAD_MAX) / 2
    run.go_on(100)
    assert run.machine.kept == 1


def test_tries_that_fail_soon_become_rare_and_never_end() -> None:
    """For a load that is light until the process is pinned, and heavy after that, waits double up to their limit."""
    run, waits = kept(MadeUp()), []
    for _ in range(9):
        run.machine.own = 1.0
        run.go_on(5, until=None)
        run.machine.own = 0.3
        waits.append(run.go_on(10 * SAMPLES_AFTER_OVERLOAD_MAX * SAMPLE_INTERVAL_S, until=1))
    assert waits == sorted(waits)
    assert SAMPLES_AFTER_OVERLOAD <= waits[0] < 2 * SAMPLES_AFTER_OVERLOAD
    assert waits[-1] == waits[-2]
    assert SAMPLES_AFTER_OVERLOAD_MAX <= waits[-1] < 2 * SAMPLES_AFTER_OVERLOAD_MAX
    run.go_on(2 * SAMPLES_AFTER_OVERLOAD_MAX)
    run.machine.own = 1.0
    run.go_on(5, until=None)
    run.machine.own = 0.3
    assert run.go_on(100, until=1) < 2 * SAMPLES_AFTER_OVERLOAD, "a try that held did not shorten the next wait"


def test_a_core_that_others_fill_is_left() -> None:
    """Pinned processes and stolen time of the host count like any other load."""
    run = kept(MadeUp())
    run.machine.others = {0: 1.0, 1: 1.0}
    assert run.go_on(10, until=None) <= 3
    run.go_on(100)
    assert run.machine.kept is None


def test_a_core_is_left_for_one_with_much_less_of_others_work() -> None:
    """It does not return for a small difference."""
    run = kept(MadeUp())
    run.machine.others = {0: 0.0, 1: 0.5}
    run.go_on(20)
    assert run.machine.kept == 0
    run.machine.others = {0: 0.08, 1: 0.0}
    run.go_on(100)
    assert run.machine.kept == 0
    for _ in range(20):
        run.machine.others = {0: 0.5, 1: 0.0}
        run.go_on(3)
        run.machine.others = {0: 0.0, 1: 0.5}
        run.go_on(2)
        assert run.machine.kept == 0, "a core was left for a momentary load"


class Neighbours:
    """Processes of two containers on a machine of two cores, which do not see each other's claims."""

    def __init__(self, own: float, seed: int) -> None:
        self.runs = [Run(MadeUp(own=own, others={0: 0.0, 1: 0.0})) for _ in range(2)]
        self.chance = Randomness(seed)

    def go_on(self, seconds: float) -> int:
        """Run for this time; returns the number of steps with both on the same core."""
        together = 0
        for _ in range(round(seconds / STEP_S)):
            for run, other in (self.runs, self.runs[::-1]):
                its = other.machine
                where = (0, 1) if its.kept is None else (its.kept,)
                run.machine.others = {one: its.own * (one in where) / len(where) for one in (0, 1)}
            for run in self.runs:
                due_s = run.due_s
                run.go_on(STEP_S)
                if run.due_s != due_s:
                    run.due_s = run.now_s + (run.due_s - run.now_s) * self.chance.uniform(0.75, 1.25)
            one, two = (run.machine.kept for run in self.runs)
            together += one is not None and one == two
        return together


@pytest.mark.parametrize("own", [0.15, 0.3, 0.6])
def test_processes_that_do_not_see_each_others_claims_come_apart(own: float) -> None:
    """They started together and chose the same idle core, which costs more than no pinning."""
    for seed in range(10):
        neighbours = Neighbours(own, seed)
        neighbours.go_on(60)
        assert neighbours.go_on(60) == 0


def test_no_core_that_another_process_keeps_to_is_taken() -> None:
    """The next best core is used, or none if all are claimed."""
    assert kept(MadeUp(taken={1})).machine.kept == 0
    run = Run(MadeUp(taken={0, 1}))
    run.go_on(100)
    assert run.machine.kept is None


def test_a_system_that_refuses_is_asked_less_and_less_often() -> None:
    """All allowed cores are used, and pinning works again after a temporary refusal."""
    run = Run(MadeUp(refuses=True))
    run.go_on(1000)
    assert run.machine.kept is None
    assert 2 <= run.machine.asked <= 12
    run.machine.refuses = False
    assert run.go_on(2 * SAMPLES_AFTER_OVERLOAD_MAX, until=1) < 2 * SAMPLES_AFTER_OVERLOAD_MAX


def test_threads_that_could_not_be_told_are_told_as_soon_as_they_can_be() -> None:
    """A process that needs all its cores, but has no free file descriptor, does not stay pinned for ever."""
    run = kept(MadeUp())
    run.machine.own, run.machine.has_files = 1.0, False
    run.go_on(10)
    assert run.machine.stuck
    run.machine.has_files = True
    run.go_on(2)
    assert (run.machine.kept, run.machine.stuck) == (None, False)


def test_moves_from_core_to_core_are_one_time_of_keeping_to_one() -> None:
    """A process that was pinned for long, also to several cores, does not wait longer before the next attempt."""
    run = kept(MadeUp())
    for _ in range(2):
        run.machine.own = 1.0
        run.go_on(5, until=None)
        run.machine.own, run.machine.others = 0.3, {0: 0.1, 1: 0.0}
        run.go_on(100, until=1)
        run.go_on(SAMPLES_AFTER_OVERLOAD * SAMPLE_INTERVAL_S)
        run.machine.others = {0: 0.0, 1: 0.5}
        run.go_on(20, until=0)
    run.machine.own = 1.0
    run.go_on(5, until=None)
    run.machine.own = 0.3
    run.machine.others = {0: 0.1, 1: 0.0}
    assert run.go_on(100, until=1) < 2 * SAMPLES_AFTER_OVERLOAD


def test_cores_that_somebody_else_chose_are_taken_over() -> None:
    """When the mask is changed from outside, the process unpins itself; with one core left it does nothing."""
    run = kept(MadeUp())
    run.machine.outside = frozenset({0})
    assert run.go_on(5, until=None) <= 2
    run.go_on(100)
    assert run.machine.kept is None


def test_cores_that_nobody_counts_are_not_chosen() -> None:
    """Holds where /proc/stat has other core numbers than the process's mask, as in some containers."""
    run = Run(MadeUp(outside=frozenset({6, 7})))
    run.go_on(100)
    assert run.machine.kept is None


def test_threads_that_were_on_their_way_are_told_a_look_later() -> None:
    """Holds for a pinned process, and for one that was unpinned."""
    run = kept(MadeUp())
    told = run.machine.settled
    assert told == 1
    run.machine.own = 1.0
    run.go_on(5)
    assert run.machine.settled == told + 1


loads = st.builds(CoreLoad, st.floats(0, 4), st.dictionaries(st.integers(0, 3), st.floats(0, 1), min_size=2))


@given(st.lists(loads, max_size=60))
def test_no_core_is_chosen_that_the_load_speaks_against(some: list[CoreLoad]) -> None:
    """After any history, a process with a load above ENOUGH, or below LITTLE, is not pinned."""
    decision = CoreChoice()
    for load in some:
        before, choices = decision.core, decision.choose(load)
        assert set(choices) <= {*load.busy, before}
        if before is None and choices:
            assert PIN_LOAD_MIN <= load.own <= PIN_LOAD_MAX
            decision.set_pinned(choices[0])
        elif before is not None and not choices:
            assert decision.core is None
        elif choices:
            decision.set_pinned(choices[0])
