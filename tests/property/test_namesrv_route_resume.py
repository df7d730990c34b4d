"""A process that continues its watch at another name server has its contents, or asks for a snapshot."""

import dataclasses
from collections.abc import AsyncIterator

from hypothesis import example, given
from hypothesis import strategies as st

from ortoo.common.cluster.route_watch import RoutePosition
from ortoo.common.errors import Conflict
from ortoo.namesrv.decisions import deletions
from ortoo.namesrv.decisions.routes.route_change import RouteChange, merge_changes
from ortoo.namesrv.decisions.routes.route_changes import Routes, StoredDirectory, WatchStart
from ortoo.namesrv.rpc.route_encoding import RouteEncoder
from ortoo.v1.namesrv_pb2 import WatchRoutesResponse
from tests.property.test_namesrv_route_changes import CHANGES, Change, change_of

DIRECTORY = "d"


def applied(routes: Routes, changes: list[Change]) -> Routes:
    """Apply changes as a name server does; each deleted topic is known as deleted."""
    for change in changes:
        made = change_of(change, routes.version + 1)
        # Topics of different names never have one id. With one id, a new topic would end the deletion of another.
        ids = (dataclasses.replace(one, topic_id=100 * ord(one.name) + one.topic_id) for one in made.topics)
        made = dataclasses.replace(made, topics=tuple(ids))
        gone = [routes.topics[name] for name in made.deleted_topics if name in routes.topics]
        if gone and change[2] % 2:  # the others are forgotten
            deleted = tuple(deletions.delete(one, now_ms=routes.version, grace_ms=change[2] % 4) for one in gone)
            made = RouteChange(made.version, deleted_topics=made.deleted_topics, deletions=deleted)
        routes.apply(made)
    return routes


def restarted(routes: Routes) -> Routes:
    """A name server that loads what `routes` has stored; it has no registered processes."""
    rows = tuple(routes.topics.values()), tuple(routes.groups.values())
    return Routes(StoredDirectory(routes.version, *rows, tuple(routes.deleted.values()), DIRECTORY))


class Mirror:
    """A process that follows the routes."""

    def __init__(self) -> None:
        self.position = RoutePosition()
        self.rows: dict[tuple[str, str], bytes] = {}
        self.processes: set[str] = set()

    async def follow(self, routes: Routes) -> bool:
        """Apply the first change of a watch; returns whether it was accepted."""
        request = self.position.request()
        change, _ = routes.first(WatchStart(request.directory_id, request.since))
        return await self.apply(change)

    async def apply(self, change: RouteChange) -> bool:
        """Apply the messages of one change, and return whether they were accepted."""

        async def parts() -> AsyncIterator[WatchRoutesResponse]:
            for message in RouteEncoder(with_placement_sets=True).messages(change, include_handle_keys=False):
                yield WatchRoutesResponse.FromString(message)

        try:
            async for update in self.position.follow(parts()):
                if update.snapshot:
                    self.rows.clear()
                if update.snapshot or update.resumed:
                    self.processes.clear()
                for name in update.deleted_topics:
                    self.rows.pop(("topic", name), None)
                for name in update.deleted_groups:
                    self.rows.pop(("group", name), None)
                for topic in update.topics:
                    self.rows["topic", topic.name] = topic.SerializeToString()
                for group in update.groups:
                    self.rows["group", group.name] = group.SerializeToString()
                self.processes.update(one.name for one in update.enodes if one.alive)
                self.processes.update(one.name for one in update.snodes if one.alive)
        except Conflict:
            return False
        return True


def new_directory() -> Routes:
    """An empty directory."""
    return Routes(StoredDirectory(1, directory_id=DIRECTORY))


@given(CHANGES, CHANGES, CHANGES, st.booleans())
async def test_contents_are_equal_or_a_snapshot_is_requested(
    shared: list[Change], seen: list[Change], other: list[Change], is_ahead: bool
) -> None:
    """Also if the database was restored, so that the name server has another history with the same versions."""
    former = applied(new_directory(), shared)
    other_history = restarted(former)
    if is_ahead:
        other_history.version += 100
    mirror = Mirror()
    assert await mirror.follow(applied(former, seen))
    restored = applied(other_history, other)
    if not await mirror.follow(restored):
        assert await mirror.follow(restored)
    expected = Mirror()
    assert await expected.follow(restored)
    assert mirror.rows == expected.rows
    assert mirror.processes == expected.processes


@given(CHANGES, CHANGES)
@example([("topic", "b", 1)], [("no topic", "b", 1), ("topic", "a", 1)])
async def test_an_unbroken_history_needs_no_snapshot(seen: list[Change], missed: list[Change]) -> None:
    """All changes after a version are sent, unless a deletion is forgotten."""
    missed = [(kind, name, number | 1) for kind, name, number in missed if kind != "no group"]
    routes, mirror = applied(new_directory(), seen), Mirror()
    assert await mirror.follow(routes)
    assert await mirror.follow(restarted(applied(routes, missed)))


@given(CHANGES)
def test_merged_changes_have_the_effect_of_all(changes: list[Change]) -> None:
    """The order within the merged change does not matter."""
    one_by_one, log = new_directory(), []
    for number, change in enumerate(changes):
        made = change_of(change, number + 2)
        log.append(made)
        one_by_one.apply(made)
    merged = new_directory()
    if log:
        merged.apply(merge_changes(log))
    assert merged.snapshot() == one_by_one.snapshot()
