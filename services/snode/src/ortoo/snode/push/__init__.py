"""Push sessions: credit and acknowledgements in, whole batches in order out, slow ones evicted.

The doors and the clients' sessions import it.
"""

from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes import Enodes
from ortoo.snode.membership.consumer_groups import ConsumerGroups
from ortoo.snode.observe.traffic import Traffic
from ortoo.snode.push.feeder import PushParts
from ortoo.snode.push.sessions import Sessions
from ortoo.snode.topics import Topics


def make_push(
    runtime: Runtime,
    cluster: Cluster,
    enodes: Enodes,
    topics: Topics,
    groups: ConsumerGroups,
    traffic: Traffic,
) -> Sessions:
    """The sessions, none of which is open yet."""
    shared = (runtime.background, runtime.clock, runtime.randomness, traffic, runtime.memory)
    parts = PushParts(cluster.directory, enodes.links, groups, enodes.locks, *shared)
    sessions = Sessions(parts, cluster.watch, topics.groups, topics.modes, runtime.settings.session_expiry_s)
    sessions.register(runtime.metrics)
    return sessions
