"""Topics and groups as they come to be and are set up: made on demand, awaited, configured.

In come names, out go topics and groups that exist. Sending, consuming and administration import it.
"""

from dataclasses import dataclass

from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.topics.arrival import GroupTopics, SendableTopics, TopicArrival
from ortoo.snode.topics.group_settings import DeliveryModes, GroupSettings


@dataclass(frozen=True, slots=True)
class Topics:
    """Each way to come by a topic or a group."""

    arrival: TopicArrival
    sendable: SendableTopics
    of_groups: GroupTopics
    groups: GroupSettings
    modes: DeliveryModes


def make_topics(runtime: Runtime, cluster: Cluster, links: EnodeLinks) -> Topics:
    """Make topics and groups by use where the settings allow it."""
    settings, clock = runtime.settings, runtime.clock
    arrival = TopicArrival(cluster.watch, links, clock=clock)
    sendable = SendableTopics(
        cluster.watch,
        cluster.name_server,
        arrival,
        auto_create=settings.auto_create_topics,
        queue_count=settings.auto_create_queue_count,
    )
    return Topics(
        arrival,
        sendable,
        GroupTopics(cluster, arrival),
        GroupSettings(cluster.directory, cluster.name_server, auto_create=settings.auto_create_groups),
        DeliveryModes(cluster.directory, cluster.watch, links, clock),
    )
