"""The parts of the gateway, made from the packages of the snode."""

from ortoo.common.grpc.completion_queue.context import headers_of
from ortoo.snode import send
from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.membership.group_membership import Membership
from ortoo.snode.pop.processor import Popping
from ortoo.snode.pull import Pull
from ortoo.snode.rocketmq.clients.registration import Registration
from ortoo.snode.rocketmq.clients.routes import Routing
from ortoo.snode.rocketmq.clients.table import Clients
from ortoo.snode.rocketmq.lite.expiry import LiteExpiry
from ortoo.snode.rocketmq.lite.owners import LiteOwners
from ortoo.snode.rocketmq.lite.pop_processor import LitePopping
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscriptions, LiteSync
from ortoo.snode.rocketmq.lite.topics import LiteTopics
from ortoo.snode.rocketmq.presence.heartbeats import Presence
from ortoo.snode.rocketmq.presence.telemetry import Telemetry
from ortoo.snode.rocketmq.protocol.caller import Caller, Context, caller_of
from ortoo.snode.rocketmq.receive.auto_renewal import Leases
from ortoo.snode.rocketmq.receive.pull_message import QueueOffsets
from ortoo.snode.rocketmq.receive.receive_message import Receiving, Starting
from ortoo.snode.rocketmq.receive.settlement import Settling
from ortoo.snode.rocketmq.rpc.commands import RocketmqCommands
from ortoo.snode.rocketmq.send.recall_message import Recalling
from ortoo.snode.rocketmq.send.send_message import Sending
from ortoo.snode.rocketmq.send.transactions import Transacting
from ortoo.snode.topics import Topics


class Gateway:
    """One part for each area of the protocol."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: Cluster,
        enodes: EnodeLinks,
        topics: Topics,
        membership: Membership,
        sending: send.Sending,
        pull: Pull,
        popping: Popping,
    ) -> None:
        """Make a translator for each package; nothing runs yet."""
        settings, clock, directory, watch = runtime.settings, runtime.clock, cluster.directory, cluster.watch
        self.clients = clients = Clients(runtime.memory.share("client settings"))
        self.leases = leases = Leases(popping, clock)
        registration = Registration(membership, runtime)
        owners, lite_topics = LiteOwners(directory, enodes, runtime), LiteTopics(cluster, topics.arrival)
        subscriptions = LiteSubscriptions(clients.unsubscribed, owners.release)
        lite_popping = LitePopping(popping, lite_topics, subscriptions, owners, watch, runtime)
        starting = Starting(watch, pull.reading)
        self.routing = Routing(watch, topics.sendable, settings.rocketmq_advertised_address)
        self.transacting = Transacting(sending.transactions, directory)
        self.presence = Presence(clients, leases, self.transacting, registration, subscriptions, clock)
        self.sending = Sending(topics.sendable, sending.publisher, self.transacting, lite_topics, clients, clock)
        self.receiving = Receiving(directory, popping, clients, leases, starting, lite_popping, clock)
        self.settling = Settling(directory, popping, leases, registration)
        self.recalling = Recalling(cluster, sending.delayed)
        self.offsets = QueueOffsets(watch, enodes)
        self.telemetry = Telemetry(clients, directory, self.transacting, registration, runtime)
        self.commands = RocketmqCommands(self.telemetry, pull.search, clock)
        self.lite = LiteSync(watch, subscriptions, lite_topics, owners, clock)
        self.lite_expiry = LiteExpiry(cluster, enodes, subscriptions, clock)

    def admit(self, context: Context) -> Caller:
        """The caller, from the headers; the signature is already checked. Errors: Refused, Forbidden."""
        caller = caller_of(context, headers_of(context))
        self.clients.check_owner(caller)
        return caller
