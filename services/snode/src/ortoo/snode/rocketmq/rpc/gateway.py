"""The gateway's parts, made from what the snode has."""

from dataclasses import dataclass

from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.name_server import NameServer
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.pool import EnodeLinks
from ortoo.snode.membership.local import Membership
from ortoo.snode.policy.authentication import Authentication
from ortoo.snode.pop.popping import Popping
from ortoo.snode.pull.offsets import Offsets
from ortoo.snode.pull.reading import Reading
from ortoo.snode.pull.search import MessageSearch
from ortoo.snode.rocketmq.clients.registration import Registration
from ortoo.snode.rocketmq.clients.routes import Routing
from ortoo.snode.rocketmq.clients.table import Clients
from ortoo.snode.rocketmq.lite.popping import LitePopping
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscriptions, LiteSync
from ortoo.snode.rocketmq.lite.topics import LiteTopics
from ortoo.snode.rocketmq.presence.heartbeats import Presence
from ortoo.snode.rocketmq.presence.results import Results
from ortoo.snode.rocketmq.presence.telemetry import Telemetry
from ortoo.snode.rocketmq.protocol.caller import Caller, Context, caller_of, headers_of
from ortoo.snode.rocketmq.receive.leases import Leases
from ortoo.snode.rocketmq.receive.pulling import QueueOffsets
from ortoo.snode.rocketmq.receive.receiving import Receiving, Starting
from ortoo.snode.rocketmq.receive.settling import Settling
from ortoo.snode.rocketmq.rpc.commands import RocketmqCommands
from ortoo.snode.rocketmq.send.recalling import Recalling
from ortoo.snode.rocketmq.send.sending import Sending
from ortoo.snode.rocketmq.send.transacting import Transacting
from ortoo.snode.send.delayed import Delayed
from ortoo.snode.send.publisher import Publisher
from ortoo.snode.send.transactions import Transactions
from ortoo.snode.settings import Settings
from ortoo.snode.topics.arrival import TopicArrival
from ortoo.snode.topics.sendable import TopicSource


@dataclass(frozen=True, slots=True)
class Gateway:
    """One part for each concern of the protocol."""

    clients: Clients
    authentication: Authentication | None
    """Where every call must be signed."""
    routing: Routing
    presence: Presence
    sending: Sending
    transacting: Transacting
    receiving: Receiving
    settling: Settling
    recalling: Recalling
    offsets: QueueOffsets
    leases: Leases
    telemetry: Telemetry
    commands: RocketmqCommands
    lite: LiteSync

    async def admit(self, context: Context) -> Caller:
        """Who calls, once the signature is checked. Errors: Refused, Forbidden."""
        headers = headers_of(context)
        if self.authentication is not None:
            await self.authentication.user_of(headers)
        return caller_of(context, headers)

    def drain(self) -> None:
        """End the telemetry streams; their clients connect to another snode."""
        self.clients.end_streams()


def open_gateway(
    settings: Settings,
    incarnation: str,
    *,
    clock: Clock,
    randomness: Randomness,
    background: Background,
    name_server: NameServer,
    directory: Directory,
    watch: DirectoryWatch,
    enodes: EnodeLinks,
    membership: Membership,
    arrival: TopicArrival,
    sendable: TopicSource,
    publisher: Publisher,
    delayed: Delayed,
    transactions: Transactions,
    reading: Reading,
    offsets: Offsets,
    popping: Popping,
) -> Gateway:
    """Put the parts together; nothing runs yet. `incarnation` is that of the snode, new at each start."""
    clients, results, leases = Clients(), Results(randomness), Leases(popping, clock)
    transacting = Transacting(transactions, clients)
    registration = Registration(membership, clock, randomness, settings.name, incarnation)
    lite_topics, lite_subscriptions = LiteTopics(directory, name_server, arrival), LiteSubscriptions()
    lite_popping, starting = LitePopping(popping, lite_topics, background, clock, randomness), Starting(watch, reading)
    return Gateway(
        clients,
        Authentication(name_server, clock) if settings.rocketmq_signatures_required else None,
        Routing(watch, sendable, settings.rocketmq_advertised_address),
        Presence(clients, leases, transacting, registration, lite_subscriptions, clock),
        Sending(sendable, publisher, transacting, lite_topics, clients, clock),
        transacting,
        Receiving(directory, popping, clients, leases, starting, lite_popping, lite_subscriptions, clock),
        Settling(directory, popping, leases),
        Recalling(watch, delayed),
        QueueOffsets(watch, enodes, offsets),
        leases,
        Telemetry(clients, directory, results, transacting, registration, background, clock),
        RocketmqCommands(clients, results, MessageSearch(watch, enodes), clock),
        LiteSync(watch, lite_subscriptions, lite_topics, clock),
    )
