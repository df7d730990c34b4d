"""Bugs to plant into the roles, each a cost that grows with something that it should not depend on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ortoo.enode.changes.kinds import OffsetsCommitted
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.enode.pops import line
from ortoo.enode.state.tables import pops
from ortoo.enode.state.tables.halves import HalfMessageTable
from ortoo.enode.store import housekeeping
from ortoo.enode.store.group_offsets import GroupOffsets
from ortoo.namesrv.decisions.routes import route_changes
from ortoo.namesrv.directory.synced_routes import SyncedRoutes
from ortoo.namesrv.directory.watches import RouteWatchers
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.membership.stored_members import StoredMembers
from tests.simulation.growth.costs import IDLE

Plant = Callable[[pytest.MonkeyPatch], None]


def snode_compares_all_topics(patch: pytest.MonkeyPatch) -> None:
    """For each change, compare the names of all topics."""
    apply = DirectoryCache.apply

    def compare(self: Any, change: Any) -> set[str]:
        changed = {topic.name for topic in change.topics}
        for name in self._topics:
            changed.discard(name)
        return apply(self, change)

    patch.setattr(DirectoryCache, "apply", compare)


def snode_copies_all_topics(patch: pytest.MonkeyPatch) -> None:
    """For each change, copy the table of topics. It is one line of Python."""
    apply = DirectoryCache.apply

    def copy(self: Any, change: Any) -> set[str]:
        before = dict(self._topics)
        changed = apply(self, change)
        del before
        return changed

    patch.setattr(DirectoryCache, "apply", copy)


def enode_compares_all_copies(patch: pytest.MonkeyPatch) -> None:
    """For each change of the directory, look at all topics of the store."""
    apply = TopicCopies.apply

    async def compare(self: Any, response: Any) -> None:
        known = {copy.topic_id for copy in self._store.topics()}
        known.update(topic.topic_id for topic in response.topics)
        await apply(self, response)

    patch.setattr(TopicCopies, "apply", compare)


def name_server_measures_the_directory(patch: pytest.MonkeyPatch) -> None:
    """For each change, add up the sizes of all topics again."""
    apply = route_changes.Routes.apply

    def measure(self: Any, change: Any) -> None:
        apply(self, change)
        for topic in self.topics.values():
            route_changes._topic_bytes(topic)

    patch.setattr(route_changes.Routes, "apply", measure)


def each_change_is_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    """Send all topics to all watchers after each change."""
    publish = RouteWatchers.publish

    def resend(self: Any, change: Any) -> None:
        publish(self, change)
        self.resend_snapshots()

    patch.setattr(RouteWatchers, "publish", resend)


def a_join_reads_all_members(patch: pytest.MonkeyPatch) -> None:
    """To learn the members of one group, read those of all groups."""
    read_groups = StoredMembers.read_groups

    async def read_everything(self: Any, membership: Any) -> None:
        async for _ in self.read_all():
            pass
        await read_groups(self, membership)

    patch.setattr(StoredMembers, "read_groups", read_everything)


def a_commit_stores_all_groups(patch: pytest.MonkeyPatch) -> None:
    """With the offsets of one group, write those of all groups of the topic."""
    commit_each = GroupOffsets.commit_each

    async def commit_all(self: Any, topic_id: int, group: str, rows: Any, extra_changes: Any = ()) -> list[int]:
        table = self._engine.state.offsets
        more = [
            OffsetsCommitted(topic_id, other, 0, tuple((queue_id, row[0]) for queue_id, row in offsets.items()))
            for other, offsets in list(table.of_topic(topic_id).items())
            if other != group
        ]
        return await commit_each(self, topic_id, group, rows, [*extra_changes, *more])

    patch.setattr(GroupOffsets, "commit_each", commit_all)


def a_verdict_searches_all_transactions(patch: pytest.MonkeyPatch) -> None:
    """To end one transaction, search through all open ones."""
    close = HalfMessageTable._close

    def search(self: Any, number: int) -> None:
        for half in self.open.values():
            if half.number == number:
                break
        close(self, number)

    patch.setattr(HalfMessageTable, "_close", search)


def idle_enodes_write_checkpoints(patch: pytest.MonkeyPatch) -> None:
    """Write a checkpoint with each check of the disk, whether anything has changed or not."""
    check = housekeeping.Housekeeping._check_disk

    async def write(self: Any) -> None:
        await check(self)
        await self.checkpoint()

    patch.setattr(housekeeping.Housekeeping, "_check_disk", write)


def an_ack_searches_all_notes(patch: pytest.MonkeyPatch) -> None:
    """To finish one message, look at the notes of all failed ones."""

    def search(notes: Any, first: int, end: int) -> list[int]:
        return [offset for offset in notes if first <= offset < end]

    patch.setattr(pops, "noted_offsets", search)
    patch.setattr(line, "noted_offsets", search)


def name_servers_read_everything(patch: pytest.MonkeyPatch) -> None:
    """After each change of another name server, read the whole directory."""
    patch.setattr(SyncedRoutes, "apply_changes", lambda self, stored: stored.version <= self.version)


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug, and the cost that has to show it."""

    plant: Plant
    axis: str
    step: str
    measure: str
    factor: int = 1
    """Multiplies the numbers of the axis."""


BUGS = (
    Planted(snode_compares_all_topics, "topics", "create_topic", "snode lines"),
    Planted(snode_copies_all_topics, "topics", "create_topic", "snode turn_bytes", 4),
    Planted(enode_compares_all_copies, "topics", "create_topic", "enode lines"),
    Planted(name_server_measures_the_directory, "topics", "create_topic", "namesrv lines"),
    Planted(each_change_is_a_snapshot, "topics", "create_topic", "namesrv sent_bytes"),
    Planted(name_servers_read_everything, "topics of two name servers", "create_topic", "namesrv lines"),
    Planted(a_join_reads_all_members, "members of other groups", "consume", "snode lines"),
    Planted(a_commit_stores_all_groups, "groups", "consume", "enode written_bytes"),
    Planted(a_verdict_searches_all_transactions, "open transactions", "transact", "enode lines"),
    Planted(an_ack_searches_all_notes, "nacked messages", "pop", "enode lines"),
    Planted(idle_enodes_write_checkpoints, "queues", IDLE, "enode written_bytes"),
)
