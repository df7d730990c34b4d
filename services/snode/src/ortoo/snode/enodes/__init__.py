"""The way to storage: links and streams to enodes, locks of queues, attachment.

In come batches and requests, out go the enodes' answers as plain values, promptly an error when an enode is away. Every
room but the cluster's may import it.
"""

from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks, LinkTo
from ortoo.snode.enodes.queue_locks import QueueLocks
from ortoo.snode.settings import ReadFrom


class Enodes:
    """Links by enode, and the locks that are held over them."""

    def __init__(self, runtime: Runtime, cluster: Cluster, link_to: LinkTo) -> None:
        """Reach the directory's enodes by `link_to`; locks are held for this run of the snode."""
        reads_followers = runtime.settings.read_from is ReadFrom.FOLLOWERS
        self.links = EnodeLinks(cluster.directory, link_to, reads_followers=reads_followers)
        self.locks = QueueLocks(runtime, cluster.directory, self.links)
