"""Leases of a pop consumer while an enode is away for a moment."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from ortoo.client.core.received import ReceivedBatch
from ortoo.client.pop.consumer import PopConsumer, PopSettings
from ortoo.client.pop.popped import PopLease
from ortoo.common.errors import Unavailable
from ortoo.common.process.randomness import Randomness
from ortoo.testing.time.virtual_clock import VirtualClock

LEASE_S = 3.0
ENODES = ("enode-0", "enode-1")


class Renewals:
    """Takes renewals; one enode is away until a time."""

    def __init__(self, clock: VirtualClock, away: str, away_until_s: float) -> None:
        self.renewed_s: dict[str, list[float]] = {handle: [] for handle in ENODES}
        self._clock = clock
        self._away = away
        self._away_until_s = away_until_s

    async def renew(
        self, receipts: Sequence[tuple[str, Sequence[int]]], invisible_ms: int, *, timeout_s: float
    ) -> None:
        """Note when each lease was renewed."""
        handles = [handle for handle, _ in receipts]
        now_s = self._clock.monotonic_s()
        if self._away in handles and now_s < self._away_until_s:
            raise Unavailable(f"{self._away} is away")
        for handle in handles:
            self.renewed_s[handle].append(now_s)

    async def settle(self) -> None:
        """Nothing is on its way."""


def lease_on(enode: str, now_s: float) -> PopLease:
    """A lease of one message, whose handle is the enode's name."""
    batch: Any = SimpleNamespace(queue=SimpleNamespace(enode=enode), offset=lambda row: row)
    held: ReceivedBatch = batch
    return PopLease(enode, held, {}, range(1), now_s)


def test_one_enode_that_is_away_once_ends_no_lease() -> None:
    """B-008: the other's are renewed at their time, and its own again and again, before they end."""
    clock = VirtualClock()

    async def scenario() -> None:
        connection: Any = SimpleNamespace(clock=clock, client_id="c", randomness=Randomness(1))
        consumer = PopConsumer(connection, "g", "t", "*", PopSettings(invisible_ms=LEASE_S * 1000))
        begun_s = clock.monotonic_s()
        renewals: Any = Renewals(clock, "enode-0", begun_s + LEASE_S * 0.6)
        consumer._calls = renewals
        consumer._leases = dict.fromkeys(lease_on(enode, begun_s) for enode in ENODES)
        async with consumer:
            await clock.sleep(4 * LEASE_S)
            consumer._leases.clear()
        for enode, times_s in renewals.renewed_s.items():
            gaps_s = [after - before for before, after in zip([begun_s, *times_s], times_s, strict=False)]
            assert times_s, enode
            assert max(gaps_s) < LEASE_S, f"the lease on {enode} ended"
        assert renewals.renewed_s["enode-1"][0] - begun_s <= LEASE_S / 2

    clock.run(scenario, limit_s=60)
