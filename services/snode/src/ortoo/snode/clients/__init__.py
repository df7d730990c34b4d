"""Sessions of clients with registration, notification and commands, and the locks that clients take explicitly.

The package takes registrations and answers, and returns group members and commands. The gRPC services import it.
"""

from ortoo.snode.clients.directory import ClientDirectory
from ortoo.snode.clients.locked_pulls import LockedPulls
from ortoo.snode.clients.locks import ClientLocks
from ortoo.snode.clients.pop_consumers import PopConsumers
from ortoo.snode.clients.replies import ReplyRouter
from ortoo.snode.clients.sessions import ClientSessions
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes import EnodeComponents
from ortoo.snode.membership.consumer_groups import ConsumerGroups
from ortoo.snode.pull.processor import PullProcessor
from ortoo.snode.push.sessions import PushSessions
from ortoo.snode.topics import TopicComponents


class ClientComponents:
    """The components for clients: sessions, locks, and the directory of the clients of all snodes."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: ClusterView,
        enodes: EnodeComponents,
        topics: TopicComponents,
        groups: ConsumerGroups,
        push_sessions: PushSessions,
        processor: PullProcessor,
    ) -> None:
        """Clients become group members in `groups`. The end of a client session ends its push sessions."""
        park = push_sessions.context.park
        self.locked_pulls = LockedPulls(runtime, cluster.watch, enodes, processor, park)
        self.sessions = sessions = ClientSessions(runtime, groups, topics, push_sessions, self.locked_pulls)
        self.directory = ClientDirectory(runtime, cluster.directory, groups.membership, sessions, push_sessions)
        self.pop_consumers = PopConsumers(runtime, groups.membership)
        self.replies = replies = ReplyRouter(runtime, cluster.directory, groups.membership, sessions)
        self.locks = ClientLocks(cluster.watch, enodes.links, self.locked_pulls)
        runtime.metrics.gauge("ortoo_client_sessions", "Open sessions of clients.", lambda: len(sessions.all()))
        runtime.metrics.counter(
            "ortoo_client_ids_changed_total",
            "Sessions that changed to another client id.",
            lambda: sessions.client_ids_changed,
        )
        runtime.metrics.counter(
            "ortoo_replies_delivered_total",
            "Replies that requesters connected to this snode have confirmed.",
            lambda: replies.delivered,
        )
