"""Sending: messages and batches in, checked and merged, stored at their enode, receipts out; delays, transactions.

The doors, rpc and rocketmq, import it.
"""

from dataclasses import dataclass

from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.send.delayed import Delayed
from ortoo.snode.send.publisher import Publisher
from ortoo.snode.send.transactions import Transactions
from ortoo.snode.topics.arrival import SendableTopics


@dataclass(frozen=True, slots=True)
class Sending:
    """Single messages, those for later, and those that are seen when a transaction commits."""

    publisher: Publisher
    delayed: Delayed
    transactions: Transactions


def make_sending(runtime: Runtime, cluster: Cluster, sendable: SendableTopics, links: EnodeLinks) -> Sending:
    """Messages wait for their place on disk as long as an enode may take to answer."""
    clock, randomness, timeout_s = runtime.clock, runtime.randomness, runtime.enode_timeout_s
    memory = runtime.memory.share("messages that wait")
    return Sending(
        Publisher(cluster.directory, sendable, links, runtime.background, memory, clock, randomness, timeout_s),
        Delayed(cluster.watch, links, cluster.directory.seals),
        Transactions(runtime, cluster, sendable, links),
    )
