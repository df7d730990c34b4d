"""The smallest run that still fails: faults and time that are not needed are left out."""

from collections.abc import Callable
from dataclasses import replace

from ortoo.verification.simulation.run.outcome import RunOptions, RunOutcome

Run = Callable[[RunOptions], RunOutcome]
SHORTEST_S = 2.0
MARGIN_S = 1.0


def shrink(options: RunOptions, run: Run, tell: Callable[[str], None]) -> RunOutcome | None:
    """Repeat the run with fewer faults; the outcome of the smallest run that breaks the same promise.

    None if the run does not fail at all. Faults are left out in halves, quarters and so on, then one by one, as long as
    the rest still fails.
    """
    outcome = run(options)
    if not outcome.violations:
        return None
    promises = {finding.promise for finding in outcome.violations}
    tell(f"{len(outcome.faults)} faults: {outcome.violations[0]}")

    def still_fails(changed: RunOptions) -> RunOutcome | None:
        again = run(changed)
        return again if promises & {finding.promise for finding in again.violations} else None

    chunk = max(1, len(outcome.faults) // 2)
    while True:
        at = 0
        while at < len(outcome.faults):
            left_out = [fault.number for fault in outcome.faults[at : at + chunk]]
            fewer = replace(outcome.options, without=tuple(sorted({*outcome.options.without, *left_out})))
            if (smaller := still_fails(fewer)) is not None:
                outcome = smaller
                tell(f"{len(outcome.faults)} faults: {outcome.violations[0]}")
            else:
                at += chunk
        if chunk == 1:
            break
        chunk //= 2
    return _shortened(outcome, still_fails)


def _shortened(outcome: RunOutcome, still_fails: Callable[[RunOptions], RunOutcome | None]) -> RunOutcome:
    """End the faults soon after the last needed fault, if the run still fails then."""
    last_s = max((fault.at_s + fault.lasts_s for fault in outcome.faults), default=SHORTEST_S)
    seconds = round(max(SHORTEST_S, last_s + MARGIN_S), 1)
    if seconds < outcome.options.seconds and (shorter := still_fails(replace(outcome.options, seconds=seconds))):
        return shorter
    return outcome
