"""The services of a snode, each with its name and how it is added to a server, and how they end."""

from dataclasses import dataclass

from apache.rocketmq.v2.admin_pb2_grpc import add_AdminServicer_to_server
from apache.rocketmq.v2.service_pb2_grpc import add_MessagingServiceServicer_to_server
from ortoo.common.grpc.server import AddServicer
from ortoo.keda.externalscaler_pb2_grpc import add_ExternalScalerServicer_to_server
from ortoo.snode.clients.locks import ClientLocks
from ortoo.snode.membership.close_reason import CloseReason
from ortoo.snode.membership.members import Member
from ortoo.snode.pop.dead_letters import DeadLetters
from ortoo.snode.pop.sending_back import SendingBack
from ortoo.snode.pull.scaling import Scaling
from ortoo.snode.pull.search import MessageSearch
from ortoo.snode.rocketmq.rpc import admin as rocketmq_admin
from ortoo.snode.rocketmq.rpc import service as rocketmq
from ortoo.snode.rocketmq.rpc.commands import RocketmqCommands
from ortoo.snode.rocketmq.rpc.gateway import Gateway, make_gateway
from ortoo.snode.rpc import admin, consumer, dead_letter, producer, scaler, session
from ortoo.snode.rpc.admin_groups import GroupParts
from ortoo.snode.rpc.long_calls import LongCalls
from ortoo.snode.wiring.ground import Ground
from ortoo.snode.wiring.parts import Parts
from ortoo.v1.admin_pb2_grpc import add_AdminServiceServicer_to_server
from ortoo.v1.dead_letter_pb2_grpc import add_DeadLetterServiceServicer_to_server
from ortoo.v1.session_pb2_grpc import add_SessionServiceServicer_to_server


@dataclass(frozen=True, slots=True)
class Services:
    """What a server serves."""

    added: list[tuple[str, AddServicer]]
    """Full names, and how to add each."""
    gateway: Gateway
    producing: producer.ProducerService
    long_calls: LongCalls
    parts: Parts

    async def drain(self) -> None:
        """End what is open; its clients hear that they shall go to another snode."""
        self.producing.drain()
        self.gateway.drain()
        self.long_calls.end()
        self.parts.clients.close_all(CloseReason.SHUTDOWN, "this snode stops; connect to another one")
        words = "this snode stops; open the session at another one"
        await self.parts.sessions.close_all(CloseReason.SHUTDOWN, words)


def make_services(ground: Ground, parts: Parts) -> Services:
    """Put a service before each group of parts."""
    directory, watch, enodes, background = ground.directory, ground.watch, ground.enodes, ground.background
    long_calls, search, gateway = (
        LongCalls(),
        MessageSearch(watch, enodes),
        make_gateway(
            ground.settings,
            ground.incarnation,
            clock=ground.clock,
            randomness=ground.randomness,
            background=background,
            name_server=ground.name_server,
            directory=directory,
            watch=watch,
            enodes=enodes,
            membership=ground.membership,
            arrival=parts.arrival,
            sendable=parts.sendable,
            publisher=parts.publisher,
            delayed=parts.delayed,
            transactions=parts.transactions,
            reading=parts.reading,
            offsets=parts.offsets,
            popping=parts.popping,
        ),
    )
    producing = producer.ProducerService(
        directory,
        watch,
        parts.sendable,
        enodes,
        parts.publisher,
        parts.delayed,
        parts.transactions,
        long_calls,
        background,
    )
    consuming = consumer.ConsumerService(
        watch,
        parts.sessions,
        parts.clients,
        parts.reading,
        parts.pulling,
        ClientLocks(watch, enodes),
        background,
        long_calls,
        parts.popping,
        SendingBack(watch, enodes, parts.group_settings, parts.group_topics),
        here=Member("", "", ground.settings.name, ground.incarnation),
    )
    operating = admin.AdminService(
        directory,
        ground.name_server,
        parts.arrival,
        parts.reading,
        search,
        parts.lag,
        parts.delayed,
        parts.transactions,
        long_calls,
        GroupParts(
            ground.name_server,
            parts.arrival,
            parts.found_clients,
            parts.moves,
            parts.modes,
            parts.lag,
            parts.flow,
            parts.flow_file,
            ground.channels,
            RocketmqCommands(gateway.commanding, search),
        ),
        ground.clock,
    )
    connecting = session.SessionService(parts.clients, background)
    looking_after = dead_letter.DeadLetterService(
        DeadLetters(watch, enodes, parts.group_topics, parts.reading, ground.clock), long_calls
    )
    scaling = scaler.ExternalScaler(Scaling(parts.lag, watch, enodes, ground.clock), long_calls, ground.clock)
    messaging = rocketmq.MessagingService(gateway)
    added: list[tuple[str, AddServicer]] = [
        (producer.NAME, lambda server: producer.add_to_server(producing, server)),
        (consumer.NAME, lambda server: consumer.add_to_server(consuming, server)),
        (session.NAME, lambda server: add_SessionServiceServicer_to_server(connecting, server)),
        (dead_letter.NAME, lambda server: add_DeadLetterServiceServicer_to_server(looking_after, server)),
        (admin.NAME, lambda server: add_AdminServiceServicer_to_server(operating, server)),
        (scaler.NAME, lambda server: add_ExternalScalerServicer_to_server(scaling, server)),
        (rocketmq_admin.NAME, lambda server: add_AdminServicer_to_server(rocketmq_admin.RocketmqAdmin(), server)),
        (rocketmq.NAME, lambda server: add_MessagingServiceServicer_to_server(messaging, server)),
    ]
    return Services(added, gateway, producing, long_calls, parts)
