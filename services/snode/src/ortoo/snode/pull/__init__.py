"""Reading for those who ask: pulls, ranges, searches; offsets of groups, how they move, how far behind they are.

In come offsets, times and keys, out go batches and messages as they are stored. Pushes, pops and the
doors import it.
"""

from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.membership.local import Membership
from ortoo.snode.observe.traffic import Traffic
from ortoo.snode.pull.lag import Lag
from ortoo.snode.pull.offsets import OffsetMoves
from ortoo.snode.pull.pulling import Pulling
from ortoo.snode.pull.reading import Reading
from ortoo.snode.pull.searching import MessageSearch
from ortoo.snode.topics.group_settings import GroupSettings


class Pull:
    """What can be asked about what is stored."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: Cluster,
        links: EnodeLinks,
        settings: GroupSettings,
        membership: Membership,
        traffic: Traffic,
    ) -> None:
        """Serve groups as `settings` allow, and count in `traffic`."""
        watch, clock = cluster.watch, runtime.clock
        self.reading = Reading(watch, links, runtime.background)
        self.pulling = Pulling(watch, links, settings, membership, traffic, clock)
        self.lag = Lag(watch, links, self.reading, clock)
        self.moves = OffsetMoves(watch, links, self.reading)
        self.search = MessageSearch(watch, links)
