"""Assembles the gateway from the packages of the snode."""

from ortoo.common.grpc.layers.arrival import headers_of
from ortoo.snode import send
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.membership.group_membership import Membership
from ortoo.snode.pop.processor import PopProcessor
from ortoo.snode.pull import PullComponents
from ortoo.snode.rocketmq.clients.registration import ClientRegistration
from ortoo.snode.rocketmq.clients.routes import RouteActivity
from ortoo.snode.rocketmq.clients.table import ClientTable
from ortoo.snode.rocketmq.lite.expiry import LiteExpiry
from ortoo.snode.rocketmq.lite.owners import LiteOwners
from ortoo.snode.rocketmq.lite.pop_processor import LitePopProcessor
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscriptionActivity, LiteSubscriptions
from ortoo.snode.rocketmq.lite.topics import LiteTopics
from ortoo.snode.rocketmq.presence.heartbeats import ClientActivity
from ortoo.snode.rocketmq.presence.telemetry import TelemetryActivity
from ortoo.snode.rocketmq.protocol.caller import Caller, Context, caller_of
from ortoo.snode.rocketmq.receive.auto_renewal import AutoRenewedLeases
from ortoo.snode.rocketmq.receive.idle_polls import IdlePolls
from ortoo.snode.rocketmq.receive.open_polls import OpenPolls
from ortoo.snode.rocketmq.receive.pull_message import PullMessageActivity
from ortoo.snode.rocketmq.receive.receive_message import InitialPosition, ReceiveMessageActivity
from ortoo.snode.rocketmq.receive.settlement import SettlementActivity
from ortoo.snode.rocketmq.rpc.commands import RocketmqCommands
from ortoo.snode.rocketmq.send.recall_message import RecallMessageActivity
from ortoo.snode.rocketmq.send.send_message import SendMessageActivity
from ortoo.snode.rocketmq.send.transactions import TransactionActivity
from ortoo.snode.topics import TopicComponents


class MessagingActivities:
    """The implementation of RocketMQ's protocol, in one activity for each area."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: ClusterView,
        enodes: EnodeLinks,
        topics: TopicComponents,
        membership: Membership,
        send_components: send.SendComponents,
        pull: PullComponents,
        pop_processor: PopProcessor,
    ) -> None:
        """Make the parts of the gateway; no task is started."""
        settings, clock, directory, watch = runtime.settings, runtime.clock, cluster.directory, cluster.watch
        self.clients = clients = ClientTable(runtime.memory.share("client settings"))
        self.leases = leases = AutoRenewedLeases(pop_processor, clock)
        registration = ClientRegistration(membership, runtime)
        owners, lite_topics = LiteOwners(directory, enodes, runtime), LiteTopics(cluster, topics.propagation)
        subscriptions = LiteSubscriptions(clients.notify_unsubscribed, owners.release)
        lite_pop_processor = LitePopProcessor(pop_processor, lite_topics, subscriptions, owners, watch, runtime)
        open_polls = OpenPolls()
        initial_position = InitialPosition(watch, pull.reader)
        self.route = RouteActivity(watch, topics.producer_topics, settings.rocketmq_advertised_address)
        self.transactions = TransactionActivity(send_components.transactions, directory)
        self.client_activity = ClientActivity(
            clients, leases, self.transactions, registration, subscriptions, open_polls, clock
        )
        self.send_message = SendMessageActivity(
            topics.producer_topics, send_components.publisher, self.transactions, lite_topics, clients, clock
        )
        self.receive_message = ReceiveMessageActivity(
            directory, pop_processor, clients, leases, initial_position, lite_pop_processor, open_polls, clock
        )
        self.idle_polls = IdlePolls(self.receive_message)
        self.settlement = SettlementActivity(directory, pop_processor, leases, registration)
        self.recall_message = RecallMessageActivity(cluster, send_components.delayed)
        self.offsets = PullMessageActivity(watch, enodes)
        self.telemetry = TelemetryActivity(clients, directory, self.transactions, registration, runtime)
        self.commands = RocketmqCommands(self.telemetry, pull.search, clock)
        self.lite_subscription = LiteSubscriptionActivity(watch, subscriptions, lite_topics, owners, clock)
        self.lite_expiry = LiteExpiry(cluster, enodes, subscriptions, clock)

    def authenticate(self, context: Context) -> Caller:
        """Read the caller of a call, whose signature is already checked. Errors: GrpcProxyError, Forbidden."""
        caller = caller_of(context, headers_of(context))
        self.clients.check_owner(caller)
        return caller
