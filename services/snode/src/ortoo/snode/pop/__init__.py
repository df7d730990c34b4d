"""Pop: leases of single messages over all enodes, ack and nack, receipt handles, dead letters.

It takes pop requests and receipt handles, and returns leased messages. The gRPC services import it; the policy package
reads its handles.
"""

from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.pop.dead_letters import DeadLetters, SendingBack
from ortoo.snode.pop.processor import Popping
from ortoo.snode.pull.queue_reader import Reading
from ortoo.snode.topics import Topics


class Pop:
    """Leases of messages, and the dead letters of messages that failed every attempt."""

    def __init__(self, runtime: Runtime, cluster: Cluster, links: EnodeLinks, topics: Topics, reading: Reading) -> None:
        """`topics` has the settings, retry topics and dead-letter topics of groups."""
        self.popping = Popping(runtime, cluster, links, topics)
        self.sending_back = SendingBack(cluster.watch, links, topics.groups, topics.of_groups)
        self.dead_letters = DeadLetters(cluster.watch, links, topics.of_groups, reading, runtime.clock)
