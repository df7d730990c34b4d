"""Leaving out unneeded faults, on artificial runs."""

from dataclasses import replace

from ortoo.testing.simulation.violations import Violation
from ortoo.verification.simulation.run.outcome import RunOptions, RunOutcome
from ortoo.verification.simulation.run.plan import PlannedFault
from ortoo.verification.simulation.run.shrink import shrink

FAULTS = [PlannedFault(number, number * 2.0, "kill", "enode-0", "", 1.0, 0.5) for number in range(10)]


def outcome(choices: RunOptions, needed: frozenset[int]) -> RunOutcome:
    """A run that fails if and only if the needed faults happen in it."""
    faults = [one for one in FAULTS if one.number not in choices.without and one.at_s < choices.seconds]
    fails = needed <= {one.number for one in faults}
    findings = (Violation("G1", "lost", 1.0),) if fails else ()
    return RunOutcome(choices, findings, faults, "", 0, 0.0, 0.0, 0, 0)


def test_only_the_faults_that_are_needed_are_left() -> None:
    """Two of ten, and only the time that they take."""
    smallest = shrink(RunOptions(1, 30.0), lambda choices: outcome(choices, frozenset({3, 6})), lambda _: None)
    assert smallest is not None
    assert [fault.number for fault in smallest.faults] == [3, 6]
    assert smallest.options == replace(RunOptions(1, 14.0), without=(0, 1, 2, 4, 5, 7, 8, 9))


def test_a_run_that_fails_without_any_fault_keeps_none() -> None:
    """Then no fault of the plan is the cause."""
    smallest = shrink(RunOptions(1, 30.0), lambda choices: outcome(choices, frozenset()), lambda _: None)
    assert smallest is not None
    assert list(smallest.faults) == []


def test_a_run_that_does_not_fail_is_not_shrunk() -> None:
    """There is no failure."""
    assert shrink(RunOptions(1, 1.0), lambda choices: outcome(choices, frozenset({99})), lambda _: None) is None
