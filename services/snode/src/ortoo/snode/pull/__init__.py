"""Pulls, reads of ranges, searches, and offsets, lag and parked messages of groups.

The package takes offsets, times and keys, and returns stored batches and messages. The push and pop packages and the
gRPC services import it.
"""

from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.membership.group_membership import Membership
from ortoo.snode.observe.traffic import Traffic
from ortoo.snode.pull.backlogs import BacklogReader
from ortoo.snode.pull.lag import ConsumerLag
from ortoo.snode.pull.lag_history import LagHistoryReader
from ortoo.snode.pull.message_search import MessageSearch
from ortoo.snode.pull.offsets import OffsetOperations
from ortoo.snode.pull.processor import PullProcessor
from ortoo.snode.pull.queue_reader import QueueReader
from ortoo.snode.pull.sinks import Sinks
from ortoo.snode.pull.topic_trims import TopicTrims
from ortoo.snode.topics.group_settings import GroupSettings


class PullComponents:
    """The components that read stored messages."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: ClusterView,
        links: EnodeLinks,
        settings: GroupSettings,
        membership: Membership,
        traffic: Traffic,
    ) -> None:
        """`settings` has the settings of groups; `traffic` counts delivered messages."""
        watch, clock = cluster.watch, runtime.clock
        self.reader = QueueReader(watch, links, runtime.background)
        self.processor = PullProcessor(watch, links, settings, membership, traffic, clock)
        self.backlogs = BacklogReader(cluster.directory, links)
        self.lag_history = LagHistoryReader(cluster.directory, cluster.watch, links)
        self.lag = ConsumerLag(watch, links, self.reader, self.backlogs, clock)
        self.offset_operations = OffsetOperations(watch, links, self.reader)
        self.search = MessageSearch(watch, links)
        self.trims = TopicTrims(watch, links, self.reader)
        self.sinks = Sinks(cluster, links)
