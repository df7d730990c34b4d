"""Reading for those who ask: pulls, ranges, searches; offsets of groups, how they move, how far behind they are.

In come offsets, times and keys, out go batches and messages as they are stored. Pushes, pops and the
doors import it.
"""

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Pull:
    """What can be asked about what is stored."""

    reading: Reading
    pulling: Pulling
    lag: Lag
    moves: OffsetMoves
    search: MessageSearch


def make_pull(
    runtime: Runtime,
    cluster: Cluster,
    links: EnodeLinks,
    settings: GroupSettings,
    membership: Membership,
    traffic: Traffic,
) -> Pull:
    """Serve groups as `settings` allow, and count in `traffic`."""
    watch, clock = cluster.watch, runtime.clock
    reading = Reading(watch, links, runtime.background)
    return Pull(
        reading,
        Pulling(watch, links, settings, membership, traffic, clock),
        Lag(watch, links, reading, clock),
        OffsetMoves(watch, links, reading),
        MessageSearch(watch, links),
    )
