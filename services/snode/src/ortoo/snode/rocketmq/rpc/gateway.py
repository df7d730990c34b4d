"""The gateway's parts, made from what the snode has."""

from dataclasses import dataclass

from ortoo.common.grpc.signature import SignedCall
from ortoo.snode import send
from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.membership.local import Membership
from ortoo.snode.policy.access import Authentication
from ortoo.snode.policy.principal import PRINCIPAL, Principal
from ortoo.snode.pop.popping import Popping
from ortoo.snode.pull import Pull
from ortoo.snode.rocketmq.clients.registration import Registration
from ortoo.snode.rocketmq.clients.routes import Routing
from ortoo.snode.rocketmq.clients.table import Clients
from ortoo.snode.rocketmq.lite.expiry import LiteExpiry
from ortoo.snode.rocketmq.lite.owners import LiteOwners
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
from ortoo.snode.topics import Topics


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
    lite_expiry: LiteExpiry

    async def admit(self, context: Context) -> Caller:
        """Who calls, once the signature is checked. Errors: Refused, Forbidden."""
        headers = headers_of(context)
        if self.authentication is not None:
            user, _ = await self.authentication.user_of(headers, SignedCall("", None))
            if PRINCIPAL.get().user != user:  # else the rules of access have said more of the same one
                PRINCIPAL.set(Principal(user, may_everything=False))
        caller = caller_of(context, headers)
        self.clients.check_owner(caller)
        return caller

    def drain(self) -> None:
        """End the telemetry streams; their clients connect to another snode."""
        self.clients.end_streams()


def open_gateway(
    runtime: Runtime,
    cluster: Cluster,
    enodes: EnodeLinks,
    topics: Topics,
    membership: Membership,
    sending: send.Sending,
    pull: Pull,
    popping: Popping,
) -> Gateway:
    """Put a translator before each room; nothing runs yet."""
    settings, background, clock, randomness = runtime.settings, runtime.background, runtime.clock, runtime.randomness
    directory, watch, name_server = cluster.directory, cluster.watch, cluster.name_server
    clients = Clients(runtime.memory.share("client settings"))
    results, leases = Results(randomness), Leases(popping, clock)
    transacting = Transacting(sending.transactions, clients, directory)
    registration = Registration(membership, clock, randomness, settings.name, runtime.incarnation)
    lite_topics = LiteTopics(directory, name_server, topics.arrival)
    lite_owners = LiteOwners(directory, enodes, background, runtime.incarnation)
    lite_subscriptions = LiteSubscriptions(clients.unsubscribed, lite_owners.release)
    lite_popping, starting = (
        LitePopping(popping, lite_topics, lambda: watch.changed, background, clock),
        Starting(watch, pull.reading),
    )
    return Gateway(
        clients,
        Authentication(name_server, clock, settings) if settings.rocketmq_signatures_required else None,
        Routing(watch, topics.sendable, settings.rocketmq_advertised_address),
        Presence(clients, leases, transacting, registration, lite_subscriptions, clock),
        Sending(topics.sendable, sending.publisher, transacting, lite_topics, clients, clock),
        transacting,
        Receiving(directory, popping, clients, leases, starting, lite_popping, lite_subscriptions, lite_owners, clock),
        Settling(directory, popping, leases, registration),
        Recalling(directory, watch, sending.delayed),
        QueueOffsets(watch, enodes),
        leases,
        Telemetry(clients, directory, results, transacting, registration, background, clock),
        RocketmqCommands(clients, results, pull.search, clock),
        LiteSync(watch, lite_subscriptions, lite_topics, lite_owners, clock),
        LiteExpiry(directory, name_server, enodes, lite_subscriptions, clients, clock),
    )
