"""Pulls, reads of ranges, searches, and offsets and lag of groups.

It takes offsets, times and keys, and returns stored batches and messages. The push and pop packages and the gRPC
services import it.
"""

from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.membership.group_membership import Membership
from ortoo.snode.observe.traffic import Traffic
from ortoo.snode.pull.lag import Lag
from ortoo.snode.pull.offsets import OffsetMoves
from ortoo.snode.pull.processor import Pulling
from ortoo.snode.pull.queue_reader import Reading
from ortoo.snode.pull.message_search import MessageSearch
from ortoo.snode.topics.group_settings import GroupSettings


class Pull:
    """The read operations over stored messages."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: Cluster,
        links: EnodeLinks,
        settings: GroupSettings,
        membership: Membership,
        traffic: Traffic,
    ) -> None:
        """`settings` has the settings of groups; `traffic` counts delivered messages."""
        watch, clock = cluster.watch, runtime.clock
        self.reading = Reading(watch, links, runtime.background)
        self.pulling = Pulling(watch, links, settings, membership, traffic, clock)
        self.lag = Lag(watch, links, self.reading, clock)
        self.moves = OffsetMoves(watch, links, self.reading)
        self.search = MessageSearch(watch, links)
