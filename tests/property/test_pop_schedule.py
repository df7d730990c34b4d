"""Random schedules of pops, acknowledgements, returns, renewals, crashes and starts against a model."""

import pytest

from ortoo.enode.pops.line import PopLine
from ortoo.verification.runs.pop_model import PopViolation
from ortoo.verification.runs.pop_schedule import PopSchedule


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("in_order", [False, True])
def test_nothing_is_lost_nothing_acknowledged_comes_back_attempts_are_right(seed: int, in_order: bool) -> None:
    """G5, G8, G9: the run of `make crash`, which takes a million steps."""
    counts = PopSchedule(seed, in_order).run(12_000)
    assert counts.crashes
    assert counts.parked
    assert counts.redelivered
    assert counts.lost_ends


def test_the_schedule_notices_a_line_that_forgets_its_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that never fails proves nothing."""
    monkeypatch.setattr("ortoo.enode.pops.line.PopLine._is_owned_by", lambda *_: True)
    with pytest.raises(PopViolation):
        PopSchedule(1).run(12_000)


@pytest.mark.parametrize("in_order", [False, True])
def test_the_schedule_notices_leases_that_outlive_a_lost_end(monkeypatch: pytest.MonkeyPatch, in_order: bool) -> None:
    """They would finish messages that were stored later at the same offsets."""
    start = PopLine.__init__
    monkeypatch.setattr(
        PopLine, "__init__", lambda line, queue, **given: start(line, queue, **given | {"first_number": 0})
    )
    with pytest.raises(PopViolation, match="acknowledging"):
        PopSchedule(1, in_order).run(12_000)
