"""Deletions whose grace period has expired, in a name server that knows more of them than its database."""

import dataclasses
from functools import partial
from pathlib import Path

import pytest

from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.decisions import deletions
from ortoo.namesrv.decisions.routes.route_changes import StoredDirectory
from ortoo.namesrv.directory import deletion
from ortoo.namesrv.directory.directory import Directory
from tests.unit.namesrv.catalog.test_change_cost import change, create, opened


def directory(catalog: Catalog, stored: StoredDirectory) -> Directory:
    """The directory of a name server that has read `stored`."""
    return Directory(
        catalog,
        stored,
        lease_s=10,
        deletion_grace_ms=1,
        watchers_max=1,
        clock=SystemClock(),
        randomness=Randomness(),
    )


async def test_deletions_that_a_restored_database_lacks_delay_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enodes are told to delete the messages of the other topics, although all of a search are missing."""
    monkeypatch.setattr(deletions, "DUE_AT_ONCE_MAX", 2)
    deleted_at_ms = SystemClock().now_ms() - 1_000
    async with opened(tmp_path) as catalog:
        for number in range(5):
            await change(catalog, create(number))
            await change(catalog, partial(deletion.delete_topic, f"t{number}", 0, deleted_at_ms, 1))
        known = (await catalog.load_all()).deletions
        await change(catalog, lambda stored: stored.mark_topics_due((), [0, 1]))  # as a restoration of the database
        it = directory(catalog, dataclasses.replace(await catalog.load_all(), deletions=known))
        for _ in range(3):
            await it.expire_deletions()
        stored = await catalog.load_all()
        assert {one.topic_id: one.is_due for one in stored.deletions} == {2: True, 3: True, 4: True}
