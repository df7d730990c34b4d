"""The services of a snode, each with its name and how it is added to a server, and how they end."""

from dataclasses import dataclass

from apache.rocketmq.v2.admin_pb2_grpc import add_AdminServicer_to_server
from apache.rocketmq.v2.service_pb2_grpc import add_MessagingServiceServicer_to_server
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.server import AddServicer
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.keda.externalscaler_pb2_grpc import add_ExternalScalerServicer_to_server
from ortoo.snode.clients.directory import ClientDirectory
from ortoo.snode.clients.locks import ClientLocks
from ortoo.snode.clients.sessions import ClientSessions
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.name_server import NameServer
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.pool import EnodeLinks
from ortoo.snode.membership.close_reason import CloseReason
from ortoo.snode.membership.members import Member
from ortoo.snode.policy.flow_control import FlowControl
from ortoo.snode.policy.flow_control_file import FlowControlFile
from ortoo.snode.pop.dead_letters import DeadLetters
from ortoo.snode.pop.popping import Popping
from ortoo.snode.pop.sending_back import SendingBack
from ortoo.snode.pull.lag import Lag
from ortoo.snode.pull.offset_moves import OffsetMoves
from ortoo.snode.pull.pulling import Pulling
from ortoo.snode.pull.reading import Reading
from ortoo.snode.pull.scaling import Scaling
from ortoo.snode.pull.search import MessageSearch
from ortoo.snode.push.sessions import Sessions
from ortoo.snode.rocketmq.rpc import service as rocketmq
from ortoo.snode.rocketmq.rpc.gateway import Gateway
from ortoo.snode.rpc import consumer, producer, session
from ortoo.snode.rpc.operators import admin, dead_letter, scaler
from ortoo.snode.rpc.streams import LongCalls
from ortoo.snode.send.delayed import Delayed
from ortoo.snode.send.publisher import Publisher
from ortoo.snode.send.transactions import Transactions
from ortoo.snode.topics.arrival import TopicArrival
from ortoo.snode.topics.delivery_modes import DeliveryModes
from ortoo.snode.topics.group_settings import GroupSettings
from ortoo.snode.topics.group_topics import GroupTopics
from ortoo.snode.topics.sendable import TopicSource
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
    clients: ClientSessions
    sessions: Sessions

    async def drain(self) -> None:
        """End what is open; its clients hear that they shall go to another snode."""
        self.producing.drain()
        self.gateway.drain()
        self.long_calls.end()
        self.clients.close_all(CloseReason.SHUTDOWN, "this snode stops; connect to another one")
        words = "this snode stops; open the session at another one"
        await self.sessions.close_all(CloseReason.SHUTDOWN, words)


def make_services(
    snode: str,
    incarnation: str,
    gateway: Gateway,
    *,
    clock: Clock,
    background: Background,
    channels: Channels,
    name_server: NameServer,
    directory: Directory,
    watch: DirectoryWatch,
    enodes: EnodeLinks,
    sendable: TopicSource,
    arrival: TopicArrival,
    group_settings: GroupSettings,
    group_topics: GroupTopics,
    modes: DeliveryModes,
    publisher: Publisher,
    delayed: Delayed,
    transactions: Transactions,
    reading: Reading,
    pulling: Pulling,
    popping: Popping,
    sessions: Sessions,
    clients: ClientSessions,
    client_directory: ClientDirectory,
    flow: FlowControl,
    flow_file: FlowControlFile,
) -> Services:
    """Put a service before each of the snode's rooms; `snode` is its name, `incarnation` is new at each start."""
    long_calls, lag = LongCalls(), Lag(watch, enodes, reading)
    producing = producer.ProducerService(
        directory, watch, sendable, enodes, publisher, delayed, transactions, long_calls, background
    )
    consuming = consumer.ConsumerService(
        watch=watch,
        sessions=sessions,
        clients=clients,
        reading=reading,
        pulling=pulling,
        popping=popping,
        locks=ClientLocks(watch, enodes),
        sending_back=SendingBack(watch, enodes, group_settings, group_topics),
        background=background,
        long_calls=long_calls,
        here=Member("", "", snode, incarnation),
    )
    operating = admin.AdminService(
        directory=directory,
        name_server=name_server,
        arrival=arrival,
        reading=reading,
        search=MessageSearch(watch, enodes),
        lag=lag,
        delayed=delayed,
        transactions=transactions,
        clients=client_directory,
        moves=OffsetMoves(watch, enodes, reading),
        modes=modes,
        flow=flow,
        flow_file=flow_file,
        channels=channels,
        rocketmq=gateway.commands,
        long_calls=long_calls,
        clock=clock,
    )
    connecting = session.SessionService(clients, background)
    letters = DeadLetters(watch, enodes, group_topics, reading, clock)
    looking_after = dead_letter.DeadLetterService(letters, long_calls)
    scaling = scaler.ExternalScaler(Scaling(lag, watch, enodes, clock), long_calls, clock)
    messaging = rocketmq.MessagingService(gateway)
    added: list[tuple[str, AddServicer]] = [
        (producer.NAME, lambda server: producer.add_to_server(producing, server)),
        (consumer.NAME, lambda server: consumer.add_to_server(consuming, server)),
        (session.NAME, lambda server: add_SessionServiceServicer_to_server(connecting, server)),
        (dead_letter.NAME, lambda server: add_DeadLetterServiceServicer_to_server(looking_after, server)),
        (admin.NAME, lambda server: add_AdminServiceServicer_to_server(operating, server)),
        (scaler.NAME, lambda server: add_ExternalScalerServicer_to_server(scaling, server)),
        (rocketmq.ADMIN_NAME, lambda server: add_AdminServicer_to_server(rocketmq.RocketmqAdmin(), server)),
        (rocketmq.NAME, lambda server: add_MessagingServiceServicer_to_server(messaging, server)),
    ]
    return Services(added, gateway, producing, long_calls, clients, sessions)
