"""Very many deletions: those that an enode has not carried out are told to it later, and no other topic is deleted."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
import sqlalchemy as sa

from ortoo.common.errors import NotFound
from ortoo.common.process.clock import SystemClock
from ortoo.namesrv.catalog import tables, transaction
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.decisions import deletions
from ortoo.namesrv.decisions.deletions import DELETIONS_RETENTION_MS, TopicDeletion
from ortoo.namesrv.decisions.orphaned_topics import StoredTopic
from ortoo.namesrv.decisions.process_leases import Enode
from ortoo.namesrv.decisions.topics import NewTopic, Topic
from ortoo.namesrv.directory.directory import Directory
from tests.unit.namesrv.catalog.test_change_cost import change, opened, topic
from tests.unit.namesrv.directory.test_expired_deletions import directory

ENODE = Enode("e", "h:1", "s")
REPORTED_MAX = 2


@pytest_asyncio.fixture
async def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Catalog]:
    """An empty catalog, in which two deletions are reported at most."""
    monkeypatch.setattr(deletions, "DELETIONS_MAX", REPORTED_MAX)
    monkeypatch.setattr(deletions, "FORGOTTEN_AT_ONCE", 1)
    async with opened(tmp_path) as catalog:
        yield catalog


async def name_server(catalog: Catalog) -> Directory:
    """A name server that has just started, at which the enode is registered."""
    it = directory(catalog, await catalog.load_all())
    register(it, [])
    return it


def register(it: Directory, held: Sequence[Topic], version: int = 0) -> None:
    """Register the enode, which holds topics that the directory lacks, and has applied a version of the directory."""
    it.register_enode(ENODE, it.directory_id, [StoredTopic(one.topic_id, one.name, 1) for one in held], 0, version)


async def created_and_deleted(it: Directory, count: int, *, at_once: bool = True) -> list[Topic]:
    """Topics that were created and deleted, one after another."""
    topics = [await it.create_topic(NewTopic(f"t{number}", 1)) for number in range(count)]
    for one in topics:
        await it.delete_topic(one.name, skip_grace_period=at_once)
    return topics


async def due_ids(it: Directory) -> set[int]:
    """The ids of topics that an enode which connects now is told to delete."""
    watcher = it.watches.watch()
    told = set((await anext(watcher)).due_topic_ids)
    await watcher.aclose()
    return told


async def forgotten(it: Directory, topics: Sequence[Topic]) -> list[Topic]:
    """Those of the deleted topics that are no longer reported, after a check."""
    await it.expire_deletions()
    told = await due_ids(it)
    return [one for one in topics if one.topic_id not in told]


async def test_an_enode_that_was_away_is_told_of_forgotten_deletions(catalog: Catalog) -> None:
    """It offers the topics. They are then deleted, so that they can be created again, also by another name server."""
    it = await name_server(catalog)
    held = await forgotten(it, await created_and_deleted(it, 6))
    assert len(held) == 6 - REPORTED_MAX
    it = await name_server(catalog)
    register(it, held)
    assert await forgotten(it, held) == []
    assert it.orphaned_topics() == []
    assert (await it.create_topic(NewTopic(held[0].name, 1))).topic_id != held[0].topic_id


async def test_an_enode_that_is_told_and_away_again_is_told_once_more(catalog: Catalog) -> None:
    """The deletion that was reported again is forgotten again before the enode has carried it out."""
    it = await name_server(catalog)
    first, *_ = await forgotten(it, await created_and_deleted(it, 4))
    for _ in range(3):
        register(it, [first])
        assert await forgotten(it, [first]) == []
        await created_and_deleted(it, 4)
        await it.expire_deletions()
        assert await forgotten(it, [first]) == []  # the offer is compared again, although it is the same
        register(it, [])
        await created_and_deleted(it, 4)
        assert await forgotten(it, [first]) == [first]


async def test_a_topic_whose_deletion_was_never_due_is_only_offered(catalog: Catalog) -> None:
    """G15: one that no directory has deleted, and one whose deletion could still be undone when it was forgotten."""
    it = await name_server(catalog)
    it.deletion_grace_ms = 86_400_000
    deleted = await created_and_deleted(it, 4, at_once=False)
    await it.expire_deletions()
    restorable = {one.topic_id for one in it.deleted_topics()}
    assert len(restorable) == REPORTED_MAX
    [lost, _] = [one for one in deleted if one.topic_id not in restorable]
    register(it, [lost, topic(99)])
    for _ in range(2):
        await it.expire_deletions()
    assert await due_ids(it) == set()
    assert {one.topic_id for one in it.orphaned_topics()} == {lost.topic_id, 99}


async def test_deletions_that_enodes_have_carried_out_are_not_kept(catalog: Catalog) -> None:
    """An enode that has applied a later version of the directory has deleted the topics."""
    it = await name_server(catalog)
    topics = await created_and_deleted(it, 4)
    register(it, [], it.version)
    later = await created_and_deleted(it, 4)
    unknown = await forgotten(it, later)
    assert len(unknown) == 4 - REPORTED_MAX
    ids = [one.topic_id for one in (*topics, *later)]
    kept = await change(catalog, lambda stored: stored.unconfirmed.find(ids))
    assert kept == {one.topic_id for one in unknown}


async def test_a_topic_whose_deletion_is_final_is_not_adopted(catalog: Catalog) -> None:
    """Between the offer and the next check, too: enodes would delete the adopted topic."""
    it = await name_server(catalog)
    first, *_ = await forgotten(it, await created_and_deleted(it, 4))
    register(it, [first])
    with pytest.raises(NotFound, match="no enode offers a topic"):
        await it.adopt_topics([first.name], all_possible=False)
    assert await it.adopt_topics((), all_possible=True) == ([], [])


async def test_the_forgotten_deletions_are_limited_in_number_and_age(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earliest go first."""
    monkeypatch.setattr(transaction, "UNCONFIRMED_MAX", 3)
    now_ms = SystemClock().now_ms()

    async def kept(*due: tuple[int, int]) -> set[int]:
        added = [TopicDeletion(topic(number), 1, due_at_ms, is_due=True) for number, due_at_ms in due]
        await change(catalog, lambda stored: stored.unconfirmed.add(added, now_ms))
        found: set[int] = await change(catalog, lambda stored: stored.unconfirmed.find(range(10)))
        return found

    assert await kept((1, now_ms), (2, now_ms - 1), (3, now_ms - 2)) == {1, 2, 3}
    assert await kept((4, now_ms + 1)) == {1, 2, 4}
    assert await kept((2, now_ms + 2), (5, now_ms - DELETIONS_RETENTION_MS)) == {1, 2, 4}


async def test_old_deletions_are_removed_in_limited_numbers(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that removes a million of them takes seconds, in which no other change is stored."""
    monkeypatch.setattr(transaction, "REMOVED_AT_ONCE", 2)
    now_ms = SystemClock().now_ms()
    numbers = range(1, 10)
    old = [TopicDeletion(topic(number), 1, now_ms + number, is_due=True) for number in numbers]
    await change(catalog, lambda stored: stored.unconfirmed.add(old, now_ms))
    later_ms = now_ms + 2 * DELETIONS_RETENTION_MS
    for left in (7, 5, 3, 1, 0):
        one = TopicDeletion(topic(100 + left), 1, later_ms, is_due=True)
        await change(catalog, partial(lambda one, stored: stored.unconfirmed.add([one], later_ms), one))
        found = await change(catalog, lambda stored: stored.unconfirmed.find(numbers))
        assert found == set(numbers[len(numbers) - left :])


async def assert_stays_an_orphan(it: Directory, offered: Topic) -> None:
    """An enode offers the topic, and its deletion is not reported."""
    register(it, [offered])
    await it.expire_deletions()
    assert offered.topic_id not in await due_ids(it)
    assert [one.topic_id for one in it.orphaned_topics()] == [offered.topic_id]


async def test_only_the_database_makes_a_forgotten_deletion_final(catalog: Catalog) -> None:
    """G15: in a restored database the topic can be undeleted, which the name server has not read yet."""
    it = await name_server(catalog)
    first, *_ = await created_and_deleted(it, 3)
    table = tables.deleted_topics
    restorable = sa.update(table).where(table.c.topic_id == first.topic_id).values(is_due=False)
    await change(catalog, lambda stored: stored._connection.execute(restorable))
    await it.expire_deletions()
    await assert_stays_an_orphan(await name_server(catalog), first)


async def test_what_was_said_of_an_earlier_life_of_a_topic_does_not_count(catalog: Catalog) -> None:
    """G15: an earlier name server adopts a topic whose deletion is final, and its next deletion can be undone."""
    it = await name_server(catalog)
    first, *_ = await forgotten(it, await created_and_deleted(it, 4))
    await change(catalog, lambda stored: stored.put_topic(first, None))
    it = await name_server(catalog)
    it.deletion_grace_ms = 86_400_000
    await it.delete_topic(first.name)
    await created_and_deleted(it, 5, at_once=False)
    for _ in range(2):
        await it.expire_deletions()
    assert first.topic_id not in {one.topic_id for one in it.deleted_topics()}
    await assert_stays_an_orphan(it, first)


async def test_a_deletion_that_another_name_server_has_made_due_is_kept(catalog: Catalog) -> None:
    """It is forgotten as one that could be undone, by a name server that has not read that change."""
    it = await name_server(catalog)
    it.deletion_grace_ms = 86_400_000
    first, *_ = topics = await created_and_deleted(it, 3, at_once=False)
    await change(catalog, lambda stored: stored.mark_topics_due([one.topic_id for one in topics], ()))
    await it.expire_deletions()
    it = await name_server(catalog)
    register(it, [first])
    assert await forgotten(it, [first]) == []


async def test_a_version_of_a_database_that_was_replaced_by_an_older_one_confirms_nothing(catalog: Catalog) -> None:
    """The enode has followed the newer database, and goes away before it sees the older one."""
    it = await name_server(catalog)
    register(it, [], it.version + 1_000)
    held = await created_and_deleted(it, 3)
    assert await forgotten(it, held) == held[:1]
    register(it, held[:1])
    assert await forgotten(it, held[:1]) == []


async def test_a_change_forgets_and_reports_a_limited_number(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other changes wait for it. The next checks continue."""
    it = await name_server(catalog)
    held = await created_and_deleted(it, 7)
    monkeypatch.setattr(deletions, "CHANGED_AT_ONCE_MAX", 2)
    counts = [len(held) - len(await forgotten(it, held)) for _ in range(4)]
    assert counts == [5, 3, 2, 2]
    held = await forgotten(it, held)
    monkeypatch.setattr(deletions, "DELETIONS_MAX", 100)
    register(it, held)
    counts = [len(held) - len(await forgotten(it, held)) for _ in range(4)]
    assert counts == [2, 4, 5, 5]
