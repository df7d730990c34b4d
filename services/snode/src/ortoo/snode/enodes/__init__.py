"""The connection to storage: links and streams to enodes, and locks of queues.

The package takes batches and requests, and returns the enodes' answers as plain values. If an enode is unreachable,
calls fail promptly. Every package except `cluster` may import it.
"""

from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks, LinkFactory
from ortoo.snode.enodes.queue_locks import SessionQueueLocks
from ortoo.snode.settings import ReadFrom


class EnodeComponents:
    """The links to the enodes, and the locks that push sessions hold through them."""

    def __init__(self, runtime: Runtime, cluster: ClusterView, link_factory: LinkFactory) -> None:
        """`link_factory` gives the links to the directory's enodes. Locks end with this run of the snode."""
        reads_followers = runtime.settings.read_from is ReadFrom.FOLLOWERS
        self.links = EnodeLinks(cluster.directory, link_factory, reads_followers=reads_followers)
        self.locks = SessionQueueLocks(runtime, self.links)
