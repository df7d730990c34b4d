"""Heartbeats, departures and expiry of clients."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from apache.rocketmq.v2 import service_pb2 as pb
from apache.rocketmq.v2.definition_pb2 import ClientType
from ortoo.common.grpc.layers.arrival import RepeatCaller
from ortoo.common.grpc.layers.repeats import Repeatable
from ortoo.common.process.clock import Clock
from ortoo.snode.rocketmq.clients.registration import ClientRegistration
from ortoo.snode.rocketmq.clients.settings_reply import CONSUMER_TYPES
from ortoo.snode.rocketmq.clients.table import ClientTable, ConnectedClient
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscriptions
from ortoo.snode.rocketmq.protocol.caller import LANGUAGE, VERSION, Caller, address_in
from ortoo.snode.rocketmq.protocol.codes import ok_status
from ortoo.snode.rocketmq.protocol.names import group_name
from ortoo.snode.rocketmq.receive.auto_renewal import AutoRenewedLeases
from ortoo.snode.rocketmq.receive.open_polls import OpenPolls
from ortoo.snode.rocketmq.send.transactions import TransactionActivity


def _is_consumer(request: pb.HeartbeatRequest) -> bool:
    return request.client_type in CONSUMER_TYPES


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
        await self.registration.register(self._touch(caller, request))
        return pb.HeartbeatResponse(status=ok_status())

    def start_heartbeat(
        self, caller: Caller, request: pb.HeartbeatRequest, done: Callable[[Repeatable | Exception], None]
    ) -> bool:
        """Answer at once; False if the members of the client's group are not known yet. Errors: as `heartbeat`."""
        client = self._touch(caller, request)
        if not self.registration.register_now(client):
            return False
        holds = partial(self._holds, client.group if _is_consumer(request) else "", request.client_type)
        done(Repeatable(pb.HeartbeatResponse(status=ok_status()), holds))
        return True

    def _touch(self, caller: Caller, request: pb.HeartbeatRequest) -> ConnectedClient:
        group = group_name(request.group) if _is_consumer(request) else ""
        client = self.clients.touch(caller, self.clock.monotonic_s())
        client.client_type, client.peer = request.client_type, caller.peer()
        client.group = group or client.group
        return client

    def _holds(self, group: str, client_type: ClientType.ValueType, caller: RepeatCaller) -> bool:
        """Record that a client is alive if its heartbeat changes nothing else."""
        headers = caller.headers
        client = self.clients.get(headers.get("x-mq-client-id", "").strip())
        if (
            client is None
            or client.client_type != client_type
            or (group and client.group != group)
            or client.peer != address_in(caller.peer())
            or headers.get(LANGUAGE, client.language) != client.language
            or headers.get(VERSION, client.client_version) != client.client_version
            or not self.registration.is_current(client)
        ):
            return False
        client.last_active_s = self.clock.monotonic_s()
        return True

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
