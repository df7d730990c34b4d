"""`kill -9` while messages wait: delayed ones come once and never early, transactions end or are parked visibly."""

from pathlib import Path

import pytest

from ortoo.verification.runs.timer_run import TimerRun
from ortoo.verification.runs.transaction_run import TransactionRun


async def test_delayed_messages_outlive_a_kill_and_steps_of_the_clock(tmp_path: Path) -> None:
    """The enode killed and its clock set back and forward by an hour: none early, lost or twice (G6, E-176)."""
    seen = await TimerRun(tmp_path, timers=8_000, seconds=6.0, kills=1).run()
    assert (seen["early"], seen["lost"], seen["duplicates"]) == (0, 0, 0)
    assert seen["kills"] == 1
    assert seen["late_ms"]["p50"] < 500


async def test_transactions_of_killed_producers_end_or_are_parked(tmp_path: Path) -> None:
    """Producers and the enode killed between half and verdict: no verdict is lost or changed (G7, E-223)."""
    seen = await TransactionRun(tmp_path, kills=4).run()
    assert FAULTS & seen.keys() == FAULTS
    assert {name: seen[name] for name in FAULTS if seen[name]} == {}
    assert seen["begun"] >= 4


@pytest.mark.crash
@pytest.mark.timeout(900)
async def test_three_hundred_killed_producers_leave_nothing_open(tmp_path: Path) -> None:
    """The long form of the above."""
    seen = await TransactionRun(tmp_path, kills=300, enode_kills=3).run()
    assert {name: seen[name] for name in FAULTS if seen[name]} == {}


FAULTS = {
    "rolled_back_but_seen",
    "seen_without_commit",
    "seen_twice",
    "undecided_that_somebody_knew",
    "neither_ended_nor_parked",
}
