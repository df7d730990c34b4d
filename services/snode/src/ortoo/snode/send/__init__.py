"""Sending: messages and batches in, checked and merged, stored at their enode, receipts out; delays, transactions.

The doors, rpc and rocketmq, import it.
"""

from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.send.delayed import Delayed
from ortoo.snode.send.publisher import Publisher
from ortoo.snode.send.transactions import Transactions
from ortoo.snode.topics.arrival import SendableTopics


class Sending:
    """Single messages, those for later, and those that are seen when a transaction commits."""

    def __init__(self, runtime: Runtime, cluster: Cluster, sendable: SendableTopics, links: EnodeLinks) -> None:
        """Messages that wait have a share of the memory of their own."""
        memory = runtime.memory.share("messages that wait")
        self.publisher = Publisher(runtime, cluster.directory, sendable, links, memory)
        self.delayed = Delayed(cluster.watch, links, cluster.directory.seals)
        self.transactions = Transactions(runtime, cluster, sendable, links)
