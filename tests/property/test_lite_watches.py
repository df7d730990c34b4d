"""Watches of a part of the lite topics: the contents are equal after any history, or a snapshot is requested."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.cluster.route_watch import RoutePosition
from ortoo.common.directory.topic import Permission, Placement
from ortoo.common.errors import Conflict
from ortoo.common.grpc.messages import read
from ortoo.namesrv.decisions import deletions
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.routes.route_changes import Routes, StoredDirectory, WatchStart
from ortoo.namesrv.decisions.topics import Topic
from ortoo.namesrv.rpc import wire
from ortoo.namesrv.rpc.route_encoding import RouteEncoder
from ortoo.v1.namesrv_pb2 import WatchRoutesResponse

DIRECTORY, HERE, ELSEWHERE = "d", "e", "f"
SCOPES = ["", HERE, None]
Change = tuple[str, str, bool]
CHANGES = st.lists(
    st.tuples(st.sampled_from("abpq"), st.sampled_from(["put", "delete", "delete and forget"]), st.booleans()),
    max_size=30,
)
"""The name of a topic, its change, and whether it is here. `a` and `b` are lite topics."""


def applied(routes: Routes, changes: list[Change]) -> Routes:
    """Apply changes as a name server does."""
    for name, how, is_here in changes:
        version, known = routes.version + 1, routes.topics.get(name)
        if how == "put":
            placed = (Placement(HERE if is_here else ELSEWHERE, 1, 1),)
            parent = "p" if name in "ab" else ""
            topic_id = known.topic_id if known is not None else version
            topic = Topic(name, topic_id, version, Permission.READ_WRITE, placed, 0, parent=parent)
            routes.apply(RouteChange(version, topics=(topic,)))
        elif known is not None:
            gone = () if how != "delete" else (deletions.delete(known, now_ms=version, grace_ms=9),)
            routes.apply(RouteChange(version, deleted_topics=(name,), deletions=gone))
    return routes


def restarted(routes: Routes) -> Routes:
    """A name server that loads the stored rows."""
    rows = tuple(routes.topics.values()), tuple(routes.groups.values())
    return Routes(StoredDirectory(routes.version, *rows, tuple(routes.deleted.values()), DIRECTORY))


class Watcher:
    """A process that watches a part of the lite topics."""

    def __init__(self, scope: str | None) -> None:
        self.scope = scope
        self.position = RoutePosition(lite_scope=scope)
        self.encoder = RouteEncoder(with_placement_sets=True)
        self.versions: dict[str, int] = {}
        self.snapshots = 0

    async def follow(self, routes: Routes) -> bool:
        """Apply the first change of a watch; returns whether it was accepted."""
        request = self.position.request()
        start = read(WatchStart, request, lite_scope=wire.lite_scope_of(request))
        assert start.lite_scope == self.scope
        return await self.apply(routes.first(start)[0])

    async def apply(self, change: RouteChange) -> bool:
        """Apply a change; returns whether it was accepted."""

        async def parts() -> AsyncIterator[WatchRoutesResponse]:
            for message in self.encoder.messages(change, include_handle_keys=False):
                yield WatchRoutesResponse.FromString(message)

        try:
            async for update in self.position.follow(parts()):
                if update.snapshot:
                    self.versions.clear()
                    self.snapshots += 1
                enodes = {one.set_id: [place.enode for place in one.placements] for one in update.placement_sets}
                for name in update.deleted_topics:
                    self.versions.pop(name, None)
                for topic in update.topics:
                    self.versions.pop(topic.name, None)
                    if self.scope is None or not topic.parent or self.scope in enodes[topic.placement_set_id]:
                        self.versions[topic.name] = topic.version
        except Conflict:
            return False
        return True


def part_of(routes: Routes, scope: str | None) -> dict[str, int]:
    """The topics that a watcher of this scope has."""
    return {
        one.name: one.version
        for one in routes.topics.values()
        if scope is None or not one.parent or one.placement(scope) is not None
    }


@pytest.mark.parametrize("scope", SCOPES)
@given(shared=CHANGES, seen=CHANGES, live=CHANGES, other=CHANGES, is_ahead=st.booleans())
async def test_a_watcher_has_its_part_or_asks_for_a_snapshot(
    scope: str | None, shared: list[Change], seen: list[Change], live: list[Change], other: list[Change], is_ahead: bool
) -> None:
    """Also if changes arrive live in between, and if the database was restored to another history."""
    former = applied(Routes(StoredDirectory(1, directory_id=DIRECTORY)), shared)
    other_history = restarted(former)
    if is_ahead:
        other_history.version += 1_000
    watcher = Watcher(scope)
    routes = applied(former, seen)
    count = routes.first(WatchStart())[1]
    assert await watcher.follow(routes)
    applied(routes, live)
    change, _ = routes.next_after(count)
    assert change is None or await watcher.apply(change)
    assert watcher.versions == part_of(routes, scope)
    restored = applied(other_history, other)
    if not await watcher.follow(restored):
        assert await watcher.follow(restored)
    assert watcher.versions == part_of(restored, scope)


@pytest.mark.parametrize("scope", SCOPES)
@given(seen=CHANGES, missed=CHANGES)
async def test_an_unbroken_history_needs_no_snapshot(
    scope: str | None, seen: list[Change], missed: list[Change]
) -> None:
    """All changes of the part are sent, unless a deletion is forgotten or a lite topic has left the enode."""
    missed = [(name, how.partition(" ")[0], True) for name, how, _ in missed]
    seen = [(name, how, True) for name, how, _ in seen]
    routes, watcher = applied(Routes(StoredDirectory(1, directory_id=DIRECTORY)), seen), Watcher(scope)
    assert await watcher.follow(routes)
    assert await watcher.follow(restarted(applied(routes, missed)))
    assert watcher.snapshots == 1
    assert watcher.versions == part_of(routes, scope)
