"""Sends: checks, batches and stores messages at their enode, and returns receipts.

The package also has delays, schedules and transactions. The packages `rpc` and `rocketmq` import it.
"""

from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.send.delayed import DelayedMessages
from ortoo.snode.send.publisher import Publisher
from ortoo.snode.send.schedules import Schedules
from ortoo.snode.send.transactions import TransactionProcessor
from ortoo.snode.topics.creation import ProducerTopics


class SendComponents:
    """The components that send single messages, delayed messages and transactions."""

    def __init__(
        self, runtime: Runtime, cluster: ClusterView, producer_topics: ProducerTopics, links: EnodeLinks
    ) -> None:
        """Waiting messages have a memory share of their own."""
        memory = runtime.memory.share("messages that wait")
        self.publisher = Publisher(runtime, cluster.directory, producer_topics, links, memory)
        self.delayed = DelayedMessages(cluster, links)
        self.schedules = Schedules(cluster, producer_topics, links)
        self.transactions = TransactionProcessor(runtime, cluster, producer_topics, links)
