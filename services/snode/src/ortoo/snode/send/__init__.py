"""Sends: checks, batches and stores messages at their enode, and returns receipts. It also has delays and transactions.

The packages rpc and rocketmq import it.
"""

from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.send.delayed import Delayed
from ortoo.snode.send.publisher import Publisher
from ortoo.snode.send.transactions import Transactions
from ortoo.snode.topics.creation import SendableTopics


class Sending:
    """Single messages, delayed messages and transactions."""

    def __init__(self, runtime: Runtime, cluster: Cluster, sendable: SendableTopics, links: EnodeLinks) -> None:
        """Waiting messages have a memory share of their own."""
        memory = runtime.memory.share("messages that wait")
        self.publisher = Publisher(runtime, cluster.directory, sendable, links, memory)
        self.delayed = Delayed(cluster.watch, links, cluster.directory.seals)
        self.transactions = Transactions(runtime, cluster, sendable, links)
