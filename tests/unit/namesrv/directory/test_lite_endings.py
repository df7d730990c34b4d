"""Lite topics are closed and deleted in batches: only those whose version is current, with few statements."""

import dataclasses
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from ortoo.common.directory.topic import MessageType, Permission, Placement
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.catalog.transaction import CatalogTransaction
from ortoo.namesrv.decisions import deletions
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.topics import Topic
from ortoo.namesrv.directory import deletion
from ortoo.namesrv.directory.lite_endings import EndedLiteTopics, end_lite_topics, open_closed
from tests.unit.namesrv.catalog.test_change_cost import change, opened, statements, topic

NOW_MS, GRACE_MS = 100, 1_000
TTL_MS = 60_000
PARENT = Topic("p", 999, 1, Permission.READ_WRITE, (Placement("e", 1, 1),), 1, MessageType.LITE, lite_ttl_ms=TTL_MS)


def name_of(number: int) -> str:
    """The name of the topic that stores a lite topic."""
    return f"%LMQ%|p|{number}"


def lite(number: int, permission: Permission = Permission.READ_WRITE) -> Topic:
    """A lite topic on one enode, in version 1."""
    places = (Placement("e", 1, 1),)
    return Topic(name_of(number), number, 1, permission, places, 1, MessageType.FIFO, parent="p")


async def create(catalog: Catalog, topics: Collection[Topic]) -> None:
    """Store a parent and topics."""

    def work(stored: CatalogTransaction) -> None:
        for one in [PARENT, *topics]:
            stored.put_topic(one, None)

    await change(catalog, work)


async def permissions(catalog: Catalog) -> dict[str, Permission]:
    """The permission of each stored topic except the parent."""
    return {one.name: one.permission for one in (await catalog.load_all()).topics if one.name != PARENT.name}


async def end(
    catalog: Catalog, close: Mapping[str, int] = {}, delete: Mapping[str, int] = {}
) -> tuple[EndedLiteTopics, RouteChange | None]:
    """Close and delete lite topics; returns the answer and the change for watchers."""
    found: tuple[EndedLiteTopics, RouteChange | None] = await change(
        catalog, partial(end_lite_topics, close, delete, NOW_MS, GRACE_MS)
    )
    return found


async def test_only_lite_topics_in_the_given_version_end(tmp_path: Path) -> None:
    """A changed one, a missing one, an open one to delete and an ordinary topic are left as they are."""
    async with opened(tmp_path) as catalog:
        await create(catalog, [lite(0), lite(1, Permission.READ_ONLY), lite(2), topic(9)])
        answer, published = await end(catalog, {name_of(0): 1, name_of(1): 2, name_of(7): 1, "t9": 1})
        assert [(one.name, one.permission) for one in answer.closed] == [(name_of(0), Permission.READ_ONLY)]
        assert published is not None
        assert published.topics == tuple(answer.closed)
        version = answer.closed[0].version
        assert version == published.version > 1
        again, published = await end(catalog, {name_of(0): version})
        assert (again, published) == (answer, None)

        answer, published = await end(catalog, delete={name_of(0): 1, name_of(1): 1, name_of(2): 1, "t9": 1})
        assert answer.deleted == [name_of(1)]
        assert published is not None
        assert published.deleted_topics == (name_of(1),)
        assert [(one.topic_id, one.due_at_ms) for one in published.deletions] == [(1, NOW_MS + GRACE_MS)]
        assert await permissions(catalog) == {
            name_of(0): Permission.READ_ONLY,
            name_of(2): Permission.READ_WRITE,
            "t9": Permission.READ_WRITE,
        }
        assert [one.topic_id for one in (await catalog.load_all()).deletions] == [1]


async def test_a_lite_topic_without_permissions_stays_closed_for_readers(tmp_path: Path) -> None:
    """It is closed for senders already, so it is answered as it is."""
    async with opened(tmp_path) as catalog:
        await create(catalog, [lite(0, Permission.NONE), lite(1, Permission.WRITE_ONLY)])
        answer, published = await end(catalog, {name_of(0): 1, name_of(1): 1})
        assert published is not None
        assert [one.name for one in published.topics] == [name_of(1)]
        closed = {one.name: one.permission for one in answer.closed}
        assert closed == {name_of(0): Permission.NONE, name_of(1): Permission.READ_ONLY}
        assert await permissions(catalog) == closed


async def test_a_batch_takes_as_many_statements_as_one_lite_topic(tmp_path: Path) -> None:
    """250 of them are one row of each statement more, and no statement of their own."""
    counts = []
    async with opened(tmp_path) as catalog:
        await create(catalog, [lite(number) for number in range(251)])
        for numbers in (range(1), range(1, 251)):
            with statements() as executed:
                answer, _ = await end(catalog, {name_of(number): 1 for number in numbers})
                answer, _ = await end(catalog, delete={one.name: one.version for one in answer.closed})
            assert len(answer.deleted) == len(numbers)
            counts.append(len(executed))
    assert counts[0] == counts[1]


async def test_very_many_ended_lite_topics_take_no_place_of_topics_to_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the maximum of restorable topics, enodes delete the messages of further ended lite topics at once."""
    monkeypatch.setattr(deletions, "RESTORABLE_LITE_MAX", 2)
    async with opened(tmp_path) as catalog:
        await create(catalog, [*(lite(number, Permission.READ_ONLY) for number in range(3)), topic(9)])
        await change(catalog, partial(deletion.delete_topic, "t9", 0, NOW_MS, GRACE_MS))
        due = []
        for number in range(3):
            _, published = await end(catalog, delete={name_of(number): 1})
            assert published is not None
            due.append(published.due_topic_ids)
        assert due == [[], [1], [2]]
        assert {one.topic_id for one in (await catalog.load_all()).deletions if not one.is_due} == {0, 9}


async def test_without_a_lifetime_no_lite_topic_is_closed_or_deleted(tmp_path: Path) -> None:
    """A snode asks for both before it knows that the lifetime was removed. The closed ones are opened."""
    async with opened(tmp_path) as catalog:
        await create(catalog, [lite(0), lite(1, Permission.READ_ONLY), lite(2, Permission.NONE), topic(9)])
        endless = dataclasses.replace(PARENT, lite_ttl_ms=0)

        def remove_lifetime(stored: CatalogTransaction) -> list[Topic]:
            stored.put_topic(endless, PARENT)
            return open_closed(PARENT, endless, stored)

        [open_again] = await change(catalog, remove_lifetime)
        assert (open_again.topic_id, open_again.permission) == (1, Permission.READ_WRITE)
        assert open_again in (await catalog.load_all()).topics
        answer, published = await end(catalog, {name_of(0): 1}, {name_of(1): 1, name_of(2): 1})
        assert (answer.closed, answer.deleted, published) == ([], [], None)
        # Closed by an operator, since there is no lifetime.
        await change(catalog, lambda stored: stored.put_topic(lite(0, Permission.READ_ONLY), lite(0)))
        assert await change(catalog, partial(open_closed, endless, endless)) == []
        assert await change(catalog, partial(open_closed, PARENT, PARENT)) == []


async def test_lite_topics_of_earlier_name_servers_are_opened_too(tmp_path: Path) -> None:
    """A running name server of an earlier version stores no parent; then it is only in the name."""
    async with opened(tmp_path) as catalog:
        await create(catalog, [lite(0, Permission.READ_ONLY), topic(9)])
        table = tables.topics
        without = sa.update(table).where(table.c.topic_id.in_([0, 9])).values(parent=None)
        await change(catalog, lambda stored: stored._connection.execute(without))
        opened_again = await change(catalog, partial(open_closed, PARENT, dataclasses.replace(PARENT, lite_ttl_ms=0)))
        assert [one.topic_id for one in opened_again] == [0]
