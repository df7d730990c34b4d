"""Creation and settings of topics and groups.

It takes names and returns topics and groups that exist. Sends, consumers and administration import it.
"""

from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.topics.creation import GroupTopics, SendableTopics, TopicArrival
from ortoo.snode.topics.group_settings import DeliveryModes, GroupSettings


class Topics:
    """The creation of topics, and the settings of groups."""

    def __init__(self, runtime: Runtime, cluster: Cluster, links: EnodeLinks) -> None:
        """Topics and groups are created automatically where the settings allow it."""
        settings, clock = runtime.settings, runtime.clock
        self.arrival = TopicArrival(cluster.watch, links, clock=clock)
        self.sendable = SendableTopics(
            cluster,
            self.arrival,
            auto_create=settings.auto_create_topics,
            queue_count=settings.auto_create_queue_count,
        )
        self.of_groups = GroupTopics(cluster, self.arrival)
        self.groups = GroupSettings(cluster.directory, cluster.name_server, auto_create=settings.auto_create_groups)
        self.modes = DeliveryModes(cluster.directory, cluster.watch, links, clock)
