"""Clients' sessions: registered, notified, commanded, ended; the locks they take themselves.

In come registrations and answers, out go members and commands. The doors import it.
"""

from dataclasses import dataclass

from ortoo.snode.clients.directory import ClientDirectory
from ortoo.snode.clients.locks import ClientLocks
from ortoo.snode.clients.sessions import ClientSessions
from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes import Enodes
from ortoo.snode.membership.consumer_groups import ConsumerGroups
from ortoo.snode.push.sessions import Sessions
from ortoo.snode.topics import Topics


@dataclass(frozen=True, slots=True)
class Clients:
    """Clients of this snode, and of all."""

    sessions: ClientSessions
    directory: ClientDirectory
    locks: ClientLocks


def make_clients(
    runtime: Runtime, cluster: Cluster, enodes: Enodes, topics: Topics, groups: ConsumerGroups, pushes: Sessions
) -> Clients:
    """Clients become members of `groups`, and their push sessions end with their own."""
    sessions = ClientSessions(runtime, groups, topics, pushes, enodes.locks)
    runtime.metrics.gauge("ortoo_client_sessions", "Open sessions of clients.", lambda: len(sessions.all()))
    runtime.metrics.counter(
        "ortoo_client_ids_changed_total", "Sessions that took another client id.", lambda: sessions.renamed
    )
    return Clients(
        sessions,
        ClientDirectory(runtime, cluster.directory, groups.membership, sessions, pushes),
        ClientLocks(cluster.watch, enodes.links),
    )
