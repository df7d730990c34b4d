"""Random schedules of pops, acknowledgements, returns, renewals, crashes and starts against a model."""

import pytest

from ortoo.verification.runs.pop_schedule import PopSchedule, PopViolation


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("in_order", [False, True])
def test_nothing_is_lost_nothing_acknowledged_comes_back_attempts_are_right(seed: int, in_order: bool) -> None:
    """G5, G8, G9: the run of `make crash`, which takes a million steps."""
    counts = PopSchedule(seed, in_order).run(12_000)
    assert counts.crashes
    assert counts.parked
    assert counts.redelivered


def test_the_schedule_notices_a_line_that_forgets_its_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that never fails proves nothing."""
    monkeypatch.setattr("ortoo.enode.pops.line.PopLine._is_owned_by", lambda *_: True)
    with pytest.raises(PopViolation):
        PopSchedule(1).run(12_000)
