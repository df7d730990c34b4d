"""A registration whose offers are refused: what was taken of it is told."""

from pathlib import Path

import pytest

from ortoo.common.errors import Invalid
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.decisions.leases import Enode
from ortoo.namesrv.decisions.offers import HeldTopic
from ortoo.namesrv.directory.directory import Directory


async def test_who_has_a_lease_is_in_the_routes_whatever_it_offers(tmp_path: Path) -> None:
    """Its topics may have names that this name server does not take; its messages can be read all the same."""
    catalog = await Catalog.open("", tmp_path, "")
    directory = Directory(
        catalog,
        await catalog.contents(),
        lease_s=100,
        deletion_grace_ms=86_400_000,
        watchers_max=10,
        clock=SystemClock(),
        randomness=Randomness(),
    )
    watcher = directory.watches.follow()
    await anext(watcher)
    enode = Enode("e", "h:1", "s")
    with pytest.raises(Invalid):
        directory.register_enode(enode, directory.directory_id, [HeldTopic(1, "no topic", 1)], 0)
    assert (await anext(watcher)).enodes == (enode,)
    await watcher.aclose()
    await catalog.close()
