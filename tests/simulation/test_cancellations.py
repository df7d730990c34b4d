"""Calls that are called off leave nothing behind; `make cancellations` does it with thousands."""

import pytest

from tests.simulation.cancellations import called_off


def test_of_calls_that_are_called_off_at_any_await_nothing_is_left() -> None:
    """No message lost or leased to nobody, no ghost of a member, no open call, no task."""
    called_off(seed=1, count=60)


def test_a_pop_that_keeps_what_it_got_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that finds nothing proves nothing."""
    monkeypatch.setattr("ortoo.enode.pops.attempts.Attempts.call_off", lambda *_: [])
    with pytest.raises(AssertionError, match="never came"):
        called_off(seed=1, count=60)
