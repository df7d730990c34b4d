"""Heartbeats, departures and expiry of clients."""

from apache.rocketmq.v2.service_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
)
from ortoo.common.process.clock import Clock
from ortoo.snode.rocketmq.clients.registration import Registration
from ortoo.snode.rocketmq.clients.settings_reply import CONSUMER_TYPES
from ortoo.snode.rocketmq.clients.table import Clients
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscriptions
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import ok
from ortoo.snode.rocketmq.protocol.names import group_name
from ortoo.snode.rocketmq.receive.leases import Leases
from ortoo.snode.rocketmq.send.transacting import Transacting


class Presence:
    """Heartbeat and NotifyClientTermination."""

    def __init__(
        self,
        clients: Clients,
        leases: Leases,
        transacting: Transacting,
        registration: Registration,
        lite_subscriptions: LiteSubscriptions,
        clock: Clock,
    ) -> None:
        self._clients = clients
        self._transacting = transacting
        self._registration = registration
        self._lite_subscriptions = lite_subscriptions
        self._leases = leases
        self._clock = clock

    async def heartbeat(self, caller: Caller, request: HeartbeatRequest) -> HeartbeatResponse:
        """A client lives; after a restart of the server this is how it is known again. Errors: Refused."""
        is_consumer = request.client_type in CONSUMER_TYPES
        group = group_name(request.group) if is_consumer else ""
        client = self._clients.seen(
            caller.client_id,
            self._clock.monotonic_s(),
            language=caller.language,
            version=caller.client_version,
            peer=caller.peer,
        )
        client.client_type = request.client_type
        client.group = group or client.group
        self._registration.register(client)
        return HeartbeatResponse(status=ok())

    async def leave(self, caller: Caller, request: NotifyClientTerminationRequest) -> NotifyClientTerminationResponse:
        """A client goes; one that is not known may go as well. Errors: Refused."""
        if request.HasField("group") and request.group.name:
            group_name(request.group)
        client = self._clients.leave(caller.client_id)
        if client is not None:
            self._registration.leave(client)
        self._lite_subscriptions.drop(caller.client_id)
        self._transacting.producers_changed()
        await self._leases.client_left(caller.client_id, counts=False)
        return NotifyClientTerminationResponse(status=ok())

    async def sweep(self) -> None:
        """Let those go that have been silent for too long."""
        for client in self._clients.expired(self._clock.monotonic_s()):
            self._registration.leave(client)
            self._lite_subscriptions.drop(client.client_id)
            await self._leases.client_left(client.client_id, counts=True)
        self._lite_subscriptions.drop_silent(self._clock.monotonic_s())
        self._transacting.producers_changed()
