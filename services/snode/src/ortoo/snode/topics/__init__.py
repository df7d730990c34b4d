"""Creation and settings of topics and groups.

The package takes names, and returns topics and groups that exist. Sends, consumers and administration import it.
"""

from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.topics.creation import GroupTopics, ProducerTopics, TopicPropagation
from ortoo.snode.topics.group_settings import DeliveryModes, GroupSettings


class TopicComponents:
    """The components that create topics, and that read settings and delivery modes of groups."""

    def __init__(self, runtime: Runtime, cluster: ClusterView, links: EnodeLinks) -> None:
        """Topics and groups are created automatically where the settings allow it."""
        settings, clock = runtime.settings, runtime.clock
        self.propagation = TopicPropagation(cluster.watch, links, clock=clock)
        self.producer_topics = ProducerTopics(
            cluster,
            self.propagation,
            auto_create=settings.auto_create_topics,
            queue_count=settings.auto_create_queue_count,
        )
        self.group_topics = GroupTopics(cluster, self.propagation)
        self.group_settings = GroupSettings(
            cluster.directory, cluster.name_server, auto_create=settings.auto_create_groups
        )
        self.delivery_modes = DeliveryModes(cluster.directory, cluster.watch, links, clock)
