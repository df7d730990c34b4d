"""Heartbeats, departures and expiry of clients."""

from dataclasses import dataclass

from apache.rocketmq.v2 import service_pb2 as pb
from ortoo.common.process.clock import Clock
from ortoo.snode.rocketmq.clients.registration import Registration
from ortoo.snode.rocketmq.clients.settings_reply import CONSUMER_TYPES
from ortoo.snode.rocketmq.clients.table import Clients
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscriptions
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import ok
from ortoo.snode.rocketmq.protocol.names import group_name
from ortoo.snode.rocketmq.receive.auto_renewal import Leases
from ortoo.snode.rocketmq.send.transactions import Transacting


@dataclass(frozen=True, slots=True)
class Presence:
    """Heartbeat and NotifyClientTermination."""

    clients: Clients
    leases: Leases
    transacting: Transacting
    registration: Registration
    lite_subscriptions: LiteSubscriptions
    clock: Clock

    async def heartbeat(self, caller: Caller, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        """A client is alive; after a restart of the server this registers it again. Errors: Refused."""
        is_consumer = request.client_type in CONSUMER_TYPES
        group = group_name(request.group) if is_consumer else ""
        client = self.clients.seen(caller, self.clock.monotonic_s())
        client.client_type, client.peer = request.client_type, caller.peer()
        client.group = group or client.group
        self.registration.register(client)
        return pb.HeartbeatResponse(status=ok())

    async def leave(
        self, caller: Caller, request: pb.NotifyClientTerminationRequest
    ) -> pb.NotifyClientTerminationResponse:
        """A client leaves, registered or not. Errors: Refused."""
        if request.HasField("group") and request.group.name:
            group_name(request.group)
        client = self.clients.leave(caller.client_id)
        if client is not None:
            self.registration.leave(client)
            self.transacting.listens_no_more(client)
        self.lite_subscriptions.drop(caller.client_id)
        await self.leases.client_left(caller.client_id, counts=False)
        return pb.NotifyClientTerminationResponse(status=ok())

    async def sweep(self) -> None:
        """Remove clients that have been silent for too long."""
        for client in self.clients.expired(self.clock.monotonic_s()):
            self.registration.leave(client)
            self.transacting.listens_no_more(client)
            self.lite_subscriptions.drop(client.client_id)
        for client_id, group in self.leases.holders():
            # A client that moved to another snode still works on messages from here.
            if self.clients.get(client_id) is None and self.registration.member(group, client_id) is None:
                await self.leases.client_left(client_id, counts=True)
        self.lite_subscriptions.drop_silent(self.clock.monotonic_s())
        for client in self.clients.all():
            self.transacting.listens(client)
