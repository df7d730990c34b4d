"""Name servers with different clocks over one PostgreSQL: grace periods last their whole time."""

from pathlib import Path

import pytest

from ortoo.common.directory.group import Group
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.decisions.process_leases import Enode
from ortoo.namesrv.decisions.topics import NewTopic
from ortoo.namesrv.directory.directory import Directory
from ortoo.verification.servers.postgres import postgres

DAY_MS = 86_400_000


class WrongClock(SystemClock):
    """A clock that is `days` ahead, or behind."""

    def __init__(self, days: int) -> None:
        self._days = days

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, and the error."""
        return super().now_ms() + self._days * DAY_MS


async def directory(catalog: Catalog, days: int) -> Directory:
    """The directory of a name server with such a clock, as it is after its start."""
    return Directory(
        catalog,
        await catalog.load_all(),
        lease_s=10,
        deletion_grace_ms=DAY_MS,
        group_deletion_grace_ms=DAY_MS,
        watchers_max=10,
        clock=WrongClock(days),
        randomness=Randomness(),
    )


@pytest.mark.parametrize("days", [3, -3])
async def test_a_clock_that_is_wrong_ends_no_deletion_early(days: int, tmp_path: Path) -> None:
    """G15: data that an enode dropped cannot be restored, so the database's clock decides when a deletion is due."""
    async with postgres() as server:
        catalog = await Catalog.open(server.url, tmp_path, "00000000-0000-4000-8000-000000000001")
        deleting = await directory(catalog, min(days, 0))
        deleting.register_enode(Enode("e", "h:1", "s"), "", (), 0)
        await deleting.create_topic(NewTopic("t"))
        await deleting.put_group(Group("g", 0), create_only=False)
        await deleting.delete_topic("t")
        await deleting.delete_group("g")
        ending = await directory(catalog, max(days, 0))
        assert [one.topic.name for one in ending.deleted_topics()] == ["t"]
        await ending.expire_deletions()
        later = await directory(catalog, 0)
        assert [one.topic.name for one in later.deleted_topics()] == ["t"]
        assert [one.name for one in later.deleted_groups()] == ["g"]
        assert (await later.undelete_topic("t", 0)).name == "t"
        await catalog.close()
