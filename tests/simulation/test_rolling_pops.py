"""Graceful restarts lose no message and no attempt of consumers that pop."""

from typing import Any

import pytest

from tests.simulation.rolling_pops import MEMBERS, rolling_pops


@pytest.mark.parametrize("seed", [1, 2])
def test_restarts_in_good_order_lose_no_popped_message_and_no_attempt(seed: int) -> None:
    """Enodes and snodes in turn, each just when messages are stored, leased and answered."""
    assert rolling_pops(seed) > 200


def test_members_that_hand_over_lose_no_popped_message_and_no_attempt() -> None:
    """The next leader has only the leases of the pops."""
    assert rolling_pops(1, MEMBERS) > 200


def test_an_attempt_that_no_consumer_saw_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that finds nothing proves nothing. The planted defect waits at both enodes, and forgets one answer."""

    async def kept(*_: object) -> None:
        """Release nothing."""

    async def at_all_enodes(self: Any, sources: Any, call: Any, **_: object) -> Any:
        """Wait at the enodes themselves, where several may lease messages for one pop."""
        return await self._direct.pop_or_wait(sources, call)

    monkeypatch.setattr("ortoo.snode.pop.processor.PopProcessor._pop_or_wait", at_all_enodes)

    monkeypatch.setattr("ortoo.snode.pop.lease_release.LeaseReleaser.release", kept)
    monkeypatch.setattr("ortoo.enode.pops.attempts.PopAttempts.cancel", lambda *_: [])
    with pytest.raises(AssertionError, match="the consumer never saw an attempt"):
        rolling_pops(1)
