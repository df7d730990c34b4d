"""Heartbeats, departures and expiry of clients."""

from dataclasses import dataclass

from apache.rocketmq.v2 import service_pb2 as pb
from ortoo.common.process.clock import Clock
from ortoo.snode.rocketmq.clients.registration import ClientRegistration
from ortoo.snode.rocketmq.clients.settings_reply import CONSUMER_TYPES
from ortoo.snode.rocketmq.clients.table import ClientTable
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscriptions
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import ok_status
from ortoo.snode.rocketmq.protocol.names import group_name
from ortoo.snode.rocketmq.receive.auto_renewal import AutoRenewedLeases
from ortoo.snode.rocketmq.receive.open_polls import OpenPolls
from ortoo.snode.rocketmq.send.transactions import TransactionActivity


@dataclass(frozen=True, slots=True)
class ClientActivity:
    """The calls Heartbeat and NotifyClientTermination."""

    clients: ClientTable
    leases: AutoRenewedLeases
    transactions: TransactionActivity
    registration: ClientRegistration
    lite_subscriptions: LiteSubscriptions
    open_polls: OpenPolls
    clock: Clock

    async def heartbeat(self, caller: Caller, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        """Record that a client is alive; an unknown client is registered. Errors: GrpcProxyError."""
        is_consumer = request.client_type in CONSUMER_TYPES
        group = group_name(request.group) if is_consumer else ""
        client = self.clients.touch(caller, self.clock.monotonic_s())
        client.client_type, client.peer = request.client_type, caller.peer()
        client.group = group or client.group
        await self.registration.register(client)
        return pb.HeartbeatResponse(status=ok_status())

    async def terminate(
        self, caller: Caller, request: pb.NotifyClientTerminationRequest
    ) -> pb.NotifyClientTerminationResponse:
        """Remove a client that ends, end its polls, and release its messages, so that no attempt counts.

        Errors: GrpcProxyError.
        """
        if request.HasField("group") and request.group.name:
            group_name(request.group)
        client = self.clients.remove(caller.client_id)
        if client is not None:
            self.registration.unregister(client)
            self.transactions.unwatch_transactions(client)
        self.lite_subscriptions.remove(caller.client_id)
        self.open_polls.end(caller.client_id)  # otherwise they would take messages for a client that has left
        await self.leases.release_client(caller.client_id, counts=False)
        return pb.NotifyClientTerminationResponse(status=ok_status())

    async def sweep(self) -> None:
        """Remove clients that have been silent for too long."""
        for client in self.clients.remove_expired(self.clock.monotonic_s()):
            self.registration.unregister(client)
            self.transactions.unwatch_transactions(client)
            self.lite_subscriptions.remove(client.client_id)
        for client_id, group in self.leases.holders():
            # A client that moved to another snode still works on messages from here.
            if self.clients.get(client_id) is None and await self.registration.find_member(group, client_id) is None:
                await self.leases.release_client(client_id, counts=True)
        self.lite_subscriptions.remove_expired(self.clock.monotonic_s())
        for client in self.clients.all():
            self.transactions.watch_transactions(client)
