"""Leases that the server renews."""

from collections.abc import Sequence
from typing import Any

from ortoo.common.errors import Unavailable
from ortoo.snode.pop.receipt_handle import ReceiptHandle
from ortoo.snode.rocketmq.receive.auto_renewal import LEASE_MS, AutoRenewedLease, AutoRenewedLeases
from ortoo.verification.time.virtual_clock import VirtualClock


class TwoEnodes:
    """Settles messages of reachable enodes."""

    def __init__(self) -> None:
        self.away = {"a"}
        self.renewed: list[str] = []

    async def settle(self, receipts: Sequence[tuple[ReceiptHandle, Sequence[int]]], verdict: Any) -> list[set[int]]:
        """Nothing is stale."""
        enodes = [handle.enode for handle, _ in receipts]
        if self.away.intersection(enodes):
            raise Unavailable("away")
        self.renewed += enodes
        return [set() for _ in receipts]


async def test_an_enode_that_is_away_once_costs_no_lease() -> None:
    """The other enode's leases are renewed, and its own are retried before they end."""
    clock, enodes = VirtualClock(), TwoEnodes()
    leases = AutoRenewedLeases(enodes, clock)  # type: ignore[arg-type]
    for enode in ("a", "b"):
        leases.add(AutoRenewedLease("client", ReceiptHandle(enode, "g", 1, 0, 7, 0, 1), clock.monotonic_s()))
    clock.advance(LEASE_MS / 1000 - 15)
    await leases.renew()
    assert enodes.renewed == ["b"]
    enodes.away.clear()
    clock.advance(5)
    await leases.renew()
    assert enodes.renewed == ["b", "a"]
