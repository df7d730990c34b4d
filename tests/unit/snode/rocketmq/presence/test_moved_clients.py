"""Clients that move to another snode with leased messages."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from ortoo.common.groups.pop import Redeliver, Renew
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.snode.membership.group_members import GroupMember
from ortoo.snode.membership.group_membership import Membership
from ortoo.snode.pop.receipt_handle import ReceiptHandle
from ortoo.snode.rocketmq.clients.registration import ClientRegistration
from ortoo.snode.rocketmq.clients.table import EXPIRY_S, ClientTable
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscriptions
from ortoo.snode.rocketmq.presence.heartbeats import ClientActivity
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.receive.auto_renewal import LEASE_MS, AutoRenewedLease, AutoRenewedLeases
from ortoo.snode.rocketmq.receive.open_polls import OpenPolls
from ortoo.verification.time.virtual_clock import VirtualClock


class Verdicts:
    """Records the verdicts on messages."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    async def settle(self, receipts: Sequence[tuple[ReceiptHandle, Sequence[int]]], verdict: Any) -> list[set[int]]:
        """Nothing is stale."""
        self.said.append(verdict)
        return [set() for _ in receipts]


async def test_a_client_that_went_to_another_snode_keeps_what_it_has() -> None:
    """Its lease is renewed while it is a member at any snode, and nacked otherwise."""
    clock, verdicts, clients = VirtualClock(), Verdicts(), ClientTable(MemoryBudget(1 << 30).share("clients"))
    membership, leases = Membership(clock), AutoRenewedLeases(verdicts, clock)  # type: ignore[arg-type]
    settings = SimpleNamespace(name="snode-0.1")
    runtime: Any = SimpleNamespace(settings=settings, incarnation="i", clock=clock, randomness=Randomness())
    registration = ClientRegistration(membership, runtime)
    transactions: Any = SimpleNamespace(
        watch_transactions=lambda client: None, unwatch_transactions=lambda client: None
    )
    presence = ClientActivity(clients, leases, transactions, registration, LiteSubscriptions(), OpenPolls(), clock)
    client = clients.touch(Caller("c"), clock.monotonic_s())
    client.group = "g"
    await registration.register(client)
    leases.add(AutoRenewedLease("c", ReceiptHandle("a", "g", 1, 0, 7, 0, 1), clock.monotonic_s()))

    membership.join("g", GroupMember("c", "elsewhere", "snode-0.2", "j", (), pushed=True, active=False))
    clock.advance(EXPIRY_S + 1)
    await presence.sweep()
    assert clients.get("c") is None
    assert verdicts.said == []
    await leases.renew()
    assert verdicts.said == [Renew(LEASE_MS)]

    membership.leave("g", "c", "elsewhere")
    await presence.sweep()
    assert isinstance(verdicts.said[-1], Redeliver)
    assert leases.holders() == set()
