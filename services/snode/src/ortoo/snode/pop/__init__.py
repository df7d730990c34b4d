"""Pop: leases of single messages over all enodes, ack and nack, receipt handles, dead letters.

The package takes pop requests and receipt handles, and returns leased messages. The gRPC services import it, and the
policy package reads its handles.
"""

from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.membership.group_filters import GroupFilters
from ortoo.snode.observe.traffic import Traffic
from ortoo.snode.pop.dead_letters import DeadLetters, NackProcessor
from ortoo.snode.pop.processor import PopProcessor
from ortoo.snode.pull.operator_parking import OperatorParking
from ortoo.snode.pull.queue_reader import QueueReader
from ortoo.snode.topics import TopicComponents


class PopComponents:
    """The components for pops: leases of messages, and dead letters."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: ClusterView,
        links: EnodeLinks,
        topics: TopicComponents,
        reader: QueueReader,
        traffic: Traffic,
        filters: GroupFilters,
    ) -> None:
        """`topics` has the settings, retry topics and dead-letter topics of groups."""
        self.processor = PopProcessor(runtime, cluster, links, topics, traffic, filters)
        self.nack_processor = NackProcessor(cluster.watch, links, topics.group_settings, topics.group_topics)
        self.dead_letters = DeadLetters(cluster.watch, links, topics.group_topics, reader, runtime.clock)
        self.operator_parking = OperatorParking(cluster.watch, links, topics.group_topics, reader)
