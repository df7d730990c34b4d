"""A name server reads only the rows that others have changed, and still has what the database has."""

from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest
import pytest_asyncio

from ortoo.common.directory.group import Group
from ortoo.common.directory.topic import Permission, Placement
from ortoo.common.process.randomness import Randomness
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.catalog.transaction import CatalogTransaction
from ortoo.namesrv.decisions.routes.route_changes import Routes
from ortoo.namesrv.decisions.topics import Topic
from ortoo.namesrv.directory import deletion
from ortoo.namesrv.directory.synced_routes import change_of
from tests.work_done import NOISE, count_work

NAMES = [f"n{number}" for number in range(8)]
LITE_TOPICS = {"n0": "p", "n1": "p", "n2": "q"}
"""The lite topics among the names, and their parents."""


@pytest_asyncio.fixture
async def catalog(tmp_path: Path) -> AsyncIterator[Catalog]:
    """An empty catalog."""
    opened = await Catalog.open("", tmp_path, "00000000-0000-4000-8000-000000000001")
    yield opened
    await opened.close()


def change_something(stored: CatalogTransaction, chance: Randomness) -> None:
    """Create, change, delete or restore a topic or a group."""
    name, what = NAMES[chance.below(len(NAMES))], chance.below(3)
    topic, group = stored.topic(name), stored.group(name)
    if what == 0:
        placed = (Placement(f"e{chance.below(3)}", 1, 1),)
        topic_id = topic.topic_id if topic else chance.id64()
        parent = LITE_TOPICS.get(name, "")
        stored.put_topic(Topic(name, topic_id, stored.version, Permission.READ_WRITE, placed, 1, parent=parent), topic)
    elif what == 1:
        stored.put_group(Group(name, stored.version, attempts_max=1 + chance.below(9), created_at_ms=5), group)
    elif topic is not None and chance.below(2):
        deletion.delete_topic(name, 0, 1, 100 * chance.below(2), stored)
    elif group is not None:
        deletion.delete_group(name, 1, 100, stored)
    elif topic is None and (deleted := stored.deleted_topics(name=name)) and not deleted[0].is_due:
        deletion.undelete_topic(name, deleted[0].topic_id, stored)
    elif stored.deleted_groups(name=name):
        deletion.undelete_group(name, stored)


async def change(catalog: Catalog, chance: Randomness, count: int) -> None:
    """Change it `count` times, with a version for each."""
    for _ in range(count):

        def decide(stored: CatalogTransaction) -> tuple[None, bool]:
            change_something(stored, chance)
            return None, True

        await catalog.run_transaction(decide)


async def put_topic(catalog: Catalog, topic: Topic) -> None:
    """Store a topic."""

    def decide(stored: CatalogTransaction) -> tuple[None, bool]:
        stored.put_topic(topic, None)
        return None, True

    await catalog.run_transaction(decide)


@pytest.mark.parametrize("seed", range(12))
async def test_changed_rows_lead_to_the_contents_of_the_database(catalog: Catalog, seed: int) -> None:
    """After any changes: the same topics, groups, deletions and sums as after reading everything."""
    chance = Randomness(seed)
    await change(catalog, chance, 10)
    routes = Routes(await catalog.load_all())
    for _ in range(20):
        await change(catalog, chance, 1 + chance.below(5))
        found = change_of(routes, await catalog.load_since(routes.version, routes.deleted), None)
        assert found is not None
        routes.apply(found)
        whole = Routes(await catalog.load_all())
        assert (routes.topics, routes.groups, routes.sums) == (whole.topics, whole.groups, whole.sums)
        assert (routes.free_bytes, routes.complete_bytes) == (whole.free_bytes, whole.complete_bytes)
        for enode in ("e0", "e1", "e2"):
            assert routes.lite_counts.checksum_on(enode) == whole.lite_counts.checksum_on(enode)
        assert routes.lite_counts.of_parents == whole.lite_counts.of_parents
        assert routes.deleted == whole.deleted
        assert routes.version == whole.version


@pytest.mark.parametrize("lost", ["topic", "change", "deletion", "group", "other changes"])
async def test_a_restored_database_is_read_as_a_whole(catalog: Catalog, lost: str) -> None:
    """Rows that a restoration lost, or put back, are in no list of changed rows; the sums show them."""
    topic = Topic("t", 7, 1, Permission.READ_WRITE, (Placement("e", 1, 1),), 1)
    await put_topic(catalog, topic)
    before = await catalog.load_all()

    async def store(**changes: object) -> Routes:
        known = Routes(before)
        for name, value in changes.items():
            getattr(known, name).update(value)
        known.version = 9
        known.sums = known.sums.__class__().plus(known.topics.values(), known.groups.values())
        return known

    match lost:
        case "topic":
            routes = await store(topics={"u": Topic("u", 8, 9, Permission.READ_WRITE, (), 1)})
        case "change":
            routes = await store(topics={"t": Topic("t", 7, 9, Permission.READ_WRITE, (), 1)})
        case "deletion":
            routes = await store()
            del routes.topics["t"]
            routes.sums = routes.sums.plus([topic], [], -1)
        case "group":
            routes = await store(groups={"g": Group("g", 9)})
        case _:
            routes = await store(topics={"u": Topic("u", 8, 9, Permission.READ_WRITE, (), 1)})
            other = Topic("x", 9, 9, Permission.READ_WRITE, (), 1)
            await put_topic(catalog, other)
    assert change_of(routes, await catalog.load_since(9, routes.deleted), None) is None


async def test_the_cost_does_not_depend_on_the_number_of_topics(catalog: Catalog) -> None:
    """Four times the topics and groups: the same work for the change of one."""
    works, number = [], 0
    for count in (100, 400):

        def fill(stored: CatalogTransaction, first: int = number, count: int = count) -> tuple[None, bool]:
            for at in range(first, count):
                stored.put_topic(Topic(f"t{at}", at + 1, stored.version, Permission.READ_WRITE, (), 1), None)
                stored.put_group(Group(f"g{at}", stored.version), None)
            return None, True

        await catalog.run_transaction(fill)
        number, routes = count, Routes(await catalog.load_all())

        def change_group(stored: CatalogTransaction) -> tuple[None, bool]:
            stored.put_group(Group("g7", stored.version, attempts_max=3), stored.group("g7"))
            return None, True

        await catalog.run_transaction(change_group)
        changes = await catalog.load_since(routes.version, routes.deleted)
        assert (len(changes.topics), len(changes.groups)) == (0, 1)
        with count_work() as work:
            found = change_of(routes, changes, None)
        assert found is not None
        assert [one.name for one in found.groups] == ["g7"]
        works.append(work.instructions)
    assert works[1] <= NOISE * works[0]


async def test_only_deletions_that_are_not_known_are_read(catalog: Catalog) -> None:
    """Very many topics may be deleted; a change of another name server reads those that it has deleted."""
    for number in range(1, 5):
        await put_topic(catalog, Topic(f"t{number}", number, 1, Permission.READ_WRITE, (Placement("e", 1, 1),), 1))

    async def delete(number: int, grace_ms: int, due: Collection[int] = ()) -> None:
        def decide(stored: CatalogTransaction) -> tuple[None, bool]:
            deletion.delete_topic(f"t{number}", 0, 1, grace_ms, stored)
            stored.mark_topics_due(due, ())
            return None, True

        await catalog.run_transaction(decide)

    await delete(1, 0)
    await delete(2, 100)
    await delete(3, 100)
    routes = Routes(await catalog.load_all())
    assert (await catalog.load_since(routes.version, routes.deleted)).deletions == ()
    await delete(4, 100, due=[3])
    changes = await catalog.load_since(routes.version, routes.deleted)
    assert sorted((one.topic_id, one.is_due) for one in changes.deletions) == [(3, True), (4, False)]
