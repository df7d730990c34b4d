"""Sessions of clients with registration, notification and commands, and the locks that clients take explicitly.

It takes registrations and answers, and returns group members and commands. The gRPC services import it.
"""

from ortoo.snode.clients.directory import ClientDirectory
from ortoo.snode.clients.locks import ClientLocks
from ortoo.snode.clients.sessions import ClientSessions
from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes import Enodes
from ortoo.snode.membership.consumer_groups import ConsumerGroups
from ortoo.snode.push.sessions import Sessions
from ortoo.snode.topics import Topics


class Clients:
    """The clients of this snode and of all snodes."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: Cluster,
        enodes: Enodes,
        topics: Topics,
        groups: ConsumerGroups,
        pushes: Sessions,
    ) -> None:
        """Clients become group members in `groups`; their push sessions end with their client sessions."""
        self.sessions = sessions = ClientSessions(runtime, groups, topics, pushes, enodes.locks)
        self.directory = ClientDirectory(runtime, cluster.directory, groups.membership, sessions, pushes)
        self.locks = ClientLocks(cluster.watch, enodes.links)
        runtime.metrics.gauge("ortoo_client_sessions", "Open sessions of clients.", lambda: len(sessions.all()))
        runtime.metrics.counter(
            "ortoo_client_ids_changed_total", "Sessions that changed to another client id.", lambda: sessions.renamed
        )
