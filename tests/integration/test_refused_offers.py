"""A registration whose offered topics are refused: the accepted part is reported."""

from pathlib import Path

import pytest

from ortoo.common.errors import Invalid
from ortoo.namesrv.decisions.orphaned_topics import StoredTopic
from ortoo.namesrv.decisions.process_leases import Enode
from tests.integration.test_namesrv_put_back import name_server


async def test_who_has_a_lease_is_in_the_routes_whatever_it_offers(tmp_path: Path) -> None:
    """Its topics may have names that this name server refuses; its messages can still be read."""
    async with name_server("", tmp_path) as directory:
        watcher = directory.watches.watch()
        await anext(watcher)
        enode = Enode("offering", "h:1", "s")
        with pytest.raises(Invalid):
            directory.register_enode(enode, directory.directory_id, [StoredTopic(1, "no topic", 1)], 0)
        assert (await anext(watcher)).enodes == (enode,)
        await watcher.aclose()
