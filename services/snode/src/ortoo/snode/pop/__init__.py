"""Messages handed out one by one: pops over all enodes, what becomes of the messages, handles, dead letters.

In come requests for messages and receipts, out go leased messages. The doors import it; the policy reads
its handles.
"""

from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.pop.dead_letters import DeadLetters, SendingBack
from ortoo.snode.pop.popping import Popping
from ortoo.snode.pull.reading import Reading
from ortoo.snode.topics import Topics


class Pop:
    """Leases, and where messages go that nobody could process."""

    def __init__(self, runtime: Runtime, cluster: Cluster, links: EnodeLinks, topics: Topics, reading: Reading) -> None:
        """Groups' settings and their own topics come from `topics`."""
        self.popping = Popping(runtime, cluster, links, topics)
        self.sending_back = SendingBack(cluster.watch, links, topics.groups, topics.of_groups)
        self.dead_letters = DeadLetters(cluster.watch, links, topics.of_groups, reading, runtime.clock)
