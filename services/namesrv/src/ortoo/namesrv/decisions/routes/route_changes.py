"""The routes and the log of their changes, from which every watcher reads at its own pace. Pure."""

import dataclasses
import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

from ortoo.common.cluster.sorted_names import SortedNames
from ortoo.common.directory.group import Group
from ortoo.common.groups.handle_seal import HandleKey, HandleKeys
from ortoo.namesrv.decisions.deletions import GroupDeletion, RowSums, TopicDeletion, next_expiry_ms
from ortoo.namesrv.decisions.placements import PlacementSetUses
from ortoo.namesrv.decisions.process_leases import Enode, Snode
from ortoo.namesrv.decisions.routes.lite_counts import LiteCounts
from ortoo.namesrv.decisions.routes.route_change import Contents, RouteChange, merge_changes
from ortoo.namesrv.decisions.topics import Topic

CHANGES_MAX = 4096
DELETED_NAMES_MAX = 1_000
"""The number of newest deleted topics, and groups, that a resumed watch names. The checksum detects the others."""
SHARED_MAX = 16
"""The number of computed changes that are kept for further watchers at the same position."""
_NOTHING = RouteChange(-1)
"""The changes for an enode if only processes have registered."""
T = TypeVar("T")
DIRECTORY_BYTES_MAX = 64 << 20
"""The limit of all groups and topics on the wire, without lite topics. Each watcher has them in memory."""


@dataclass(frozen=True, slots=True)
class StoredDirectory:
    """The whole contents of a name server's database."""

    version: int
    topics: tuple[Topic, ...] = ()
    groups: tuple[Group, ...] = ()
    deletions: tuple[TopicDeletion, ...] = ()
    directory_id: str = ""
    handle_keys: tuple[HandleKey, ...] = ()
    """The keys that seal handles, the newest last."""
    unsigned_handles: bool = False
    """Whether clients may have handles from before there were keys."""
    group_deletions: tuple[GroupDeletion, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchStart:
    """The position from which a watcher continues: a version of one directory. Version 0 = it has nothing."""

    directory_id: str = ""
    since: int = 0
    lite_scope: str | None = None
    """The lite topics that the watcher gets first: None = all, empty = none, otherwise those on this enode."""


NO_START = WatchStart()


class Routes:
    """The directory in memory, and a log of its last changes.

    All watchers share the log, so that its size does not depend on their number. A watcher that is more than
    `changes_max` changes behind gets a snapshot.
    """

    def __init__(
        self, stored: StoredDirectory, handle_keys: HandleKeys | None = None, *, changes_max: int = CHANGES_MAX
    ) -> None:
        """Start with the stored contents and without processes. `handle_keys` are those that snodes get."""
        self.directory_id = stored.directory_id
        self.handle_keys = handle_keys
        self.version = stored.version
        self.topics = {topic.name: topic for topic in stored.topics}
        self.groups = {group.name: group for group in stored.groups}
        self.topic_names, self.group_names = SortedNames(self.topics), SortedNames(self.groups)
        self.deleted = {one.topic_id: one for one in stored.deletions}
        self.due_versions = {one.topic_id: stored.version for one in stored.deletions if one.is_due}
        """For each due deletion of a topic, a version of the directory in which it was reported."""
        self.deleted_groups = {one.name: one for one in stored.group_deletions}
        self.next_expiry_ms = next_expiry_ms(chain(stored.deletions, stored.group_deletions))
        """No deletion becomes due or is forgotten before this time. Each change lowers it, if necessary."""
        self.enodes: dict[str, Enode] = {}
        self.snodes: dict[str, Snode] = {}
        self.sums = RowSums().plus(self.topics.values(), self.groups.values())
        self._plain_topics = {name: topic for name, topic in self.topics.items() if not topic.parent}
        self.lite_counts = LiteCounts()
        self._bytes = sum(map(_group_bytes, self.groups.values()))
        self._lite_bytes = 0
        self._placement_sets = PlacementSetUses()
        for topic in self.topics.values():
            self._count_topic(topic)
        self._changes: deque[RouteChange] = deque(maxlen=changes_max)
        self._count = 0
        self._shared: OrderedDict[Hashable, object] = OrderedDict()

    def apply(self, change: RouteChange) -> None:
        """Apply a change, and append it to the log of changes.

        Invariant: the directory's version never decreases.
        """
        self._bytes += self._groups_growth_bytes(change)
        self.sums = self.sums_after(change)
        self.version = max(self.version, change.version)
        self.handle_keys = change.handle_keys or self.handle_keys
        for topic in change.topics:
            self._remove_topic(topic.name)
            self.topics[topic.name] = topic
            if not topic.parent:
                self._plain_topics[topic.name] = topic
            self._count_topic(topic)
        self.forget_deletions(topic.topic_id for topic in change.topics)
        self.deleted.update((one.topic_id, one) for one in change.deletions)
        self.due_versions.update(dict.fromkeys(change.due_topic_ids, self.version))
        self.deleted_groups.update((one.name, one) for one in change.group_deletions)
        earliest_ms = next_expiry_ms(chain(change.deletions, change.group_deletions))
        self.next_expiry_ms = min(self.next_expiry_ms, earliest_ms)
        for name in change.deleted_topics:
            self._remove_topic(name)
        for group in change.groups:
            self.groups[group.name] = group
        for name in change.deleted_groups:
            self.groups.pop(name, None)
        self.topic_names.update([*(topic.name for topic in change.topics), *change.deleted_topics])
        self.group_names.update([*(group.name for group in change.groups), *change.deleted_groups])
        self.enodes.update((enode.name, enode) for enode in change.enodes)
        for snode in change.snodes:
            if snode.alive:
                self.snodes[snode.name] = snode
            else:
                self.snodes.pop(snode.name, None)
        self._changes.append(dataclasses.replace(change, version=self.version, directory_id=self.directory_id))
        self._count += 1

    def forget_deletions(self, topic_ids: Iterable[int]) -> None:
        """Report these deletions of topics no longer."""
        for topic_id in topic_ids:
            self.deleted.pop(topic_id, None)
            self.due_versions.pop(topic_id, None)

    def placed_enodes(self) -> set[str]:
        """The enodes on which topics have queues.

        They are expected, also if none of their processes has registered since this name server started.
        """
        return self._placement_sets.enodes()

    def clear_log(self) -> None:
        """Clear the log of changes, so that every watcher gets a snapshot next."""
        self._changes.clear()
        self._count += 1

    def diff(self, stored: StoredDirectory, handle_keys: HandleKeys | None) -> RouteChange | None:
        """The change after which these routes equal the directory in the database; None if they are equal now."""
        version = stored.version
        change = RouteChange(
            version,
            topics=tuple(topic for topic in stored.topics if self.topics.get(topic.name) != topic),
            deleted_topics=tuple(sorted(self.topics.keys() - {topic.name for topic in stored.topics})),
            groups=tuple(group for group in stored.groups if self.groups.get(group.name) != group),
            deleted_groups=tuple(sorted(self.groups.keys() - {group.name for group in stored.groups})),
            deletions=tuple(one for one in stored.deletions if self.deleted.get(one.topic_id) != one),
            handle_keys=handle_keys if handle_keys != self.handle_keys else None,
            group_deletions=tuple(one for one in stored.group_deletions if self.deleted_groups.get(one.name) != one),
        )
        return change if change != RouteChange(version) or version > self.version else None

    @property
    def free_bytes(self) -> int:
        """The number of bytes by which groups and topics without a parent may still grow."""
        return DIRECTORY_BYTES_MAX - self._bytes - self._placement_sets.wire_bytes

    @property
    def complete_bytes(self) -> int:
        """The size of a snapshot with all lite topics, rounded up."""
        return self._bytes + self._lite_bytes + self._placement_sets.wire_bytes

    @property
    def expanded_bytes(self) -> int:
        """The size of such a snapshot, in which each topic lists its own placements."""
        return self._bytes + self._lite_bytes + self._placement_sets.expanded_bytes

    def growth_bytes(self, change: RouteChange) -> int:
        """The bytes by which a change makes a snapshot without lite topics larger, rounded up.

        It is negative if the snapshot becomes smaller.
        """
        new_sets = self._placement_sets.new_bytes(topic.placement_set for topic in change.topics)
        gone, _ = self._replaced_rows(change)
        growth = _plain_bytes(change.topics) - _plain_bytes(gone)
        return growth + self._groups_growth_bytes(change) + new_sets

    def sums_after(self, change: RouteChange) -> RowSums:
        """The sums of topics and groups after a change."""
        return self.sums.plus(change.topics, change.groups).plus(*self._replaced_rows(change), -1)

    def _groups_growth_bytes(self, change: RouteChange) -> int:
        _, gone = self._replaced_rows(change)
        return sum(map(_group_bytes, change.groups)) - sum(map(_group_bytes, gone))

    def _replaced_rows(self, change: RouteChange) -> tuple[list[Topic], list[Group]]:
        """The topics and groups that a change removes or replaces."""
        gone_topics = {*change.deleted_topics, *(topic.name for topic in change.topics)} & self.topics.keys()
        gone_groups = {*change.deleted_groups, *(group.name for group in change.groups)} & self.groups.keys()
        return [self.topics[name] for name in gone_topics], [self.groups[name] for name in gone_groups]

    def _count_topic(self, topic: Topic) -> None:
        self._placement_sets.add(topic.placement_set)
        self.lite_counts.add(topic)
        if topic.parent:
            self._lite_bytes += _topic_bytes(topic)
        else:
            self._bytes += _topic_bytes(topic)

    def _remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        self._plain_topics.pop(name, None)
        self._placement_sets.remove(topic.placement_set)
        self.lite_counts.remove(topic)
        if topic.parent:
            self._lite_bytes -= _topic_bytes(topic)
        else:
            self._bytes -= _topic_bytes(topic)

    def contents(self, lite_scope: str | None = None) -> Contents:
        """The topics and groups of a watch; watchers of the same version and scope share the result."""

        def sort() -> Contents:
            topics = self.topics if lite_scope is None else self._plain_topics
            rows = tuple(topics[name] for name in sorted(topics))
            groups = tuple(self.groups[name] for name in sorted(self.groups))
            return Contents(self.version, rows, groups, has_all_topics=lite_scope is None)

        if not lite_scope:
            return self._computed_once(("contents", lite_scope, self.version), sort)
        lite_topics = tuple(self._lite_topics_by_enode().get(lite_scope, ()))
        checksum = self.lite_counts.checksum_on(lite_scope)
        return dataclasses.replace(self.contents(""), lite_topics=lite_topics, lite_checksum=checksum)

    def _lite_topics_by_enode(self) -> dict[str, list[Topic]]:
        """The lite topics on each enode. They are found once for all enodes that start to watch at one version."""

        def group() -> dict[str, list[Topic]]:
            found: dict[str, list[Topic]] = {}
            for topic in self.topics.values():
                for placement in topic.placements if topic.parent else ():
                    found.setdefault(placement.enode, []).append(topic)
            return found

        return self._computed_once(("lite topics", self.version), group)

    def snapshot(self, lite_scope: str | None = None) -> RouteChange:
        """A snapshot of the directory; its topics, groups and processes are sorted by name, and lite topics follow."""
        contents = self.contents(lite_scope)
        topics = contents.topics + contents.lite_topics
        return dataclasses.replace(self._current(lite_scope), snapshot=True, topics=topics, groups=contents.groups)

    def can_resume(self, start: WatchStart) -> bool:
        """Whether a watcher can continue from `start`; otherwise it needs a snapshot."""
        return 0 < start.since <= self.version and start.directory_id == self.directory_id

    def changes_since(self, since: int, lite_scope: str | None = None) -> RouteChange:
        """The changes for a watcher that has version `since` of this directory, and continues from it.

        The deletions are complete as in a snapshot, and the names of the last deleted topics and groups are repeated.
        """

        def changed_rows() -> RouteChange:
            deleted = [one for one in self.deleted.values() if _is_in_scope(one.topic, lite_scope)]
            topics = heapq.nlargest(DELETED_NAMES_MAX, deleted, key=lambda one: one.deleted_at_ms)
            groups = heapq.nlargest(DELETED_NAMES_MAX, self.deleted_groups.values(), key=lambda one: one.deleted_at_ms)
            contents = self.contents(lite_scope)
            return RouteChange(
                self.version,
                topics=tuple(one for one in (*contents.topics, *contents.lite_topics) if one.version > since),
                deleted_topics=tuple(sorted({one.topic.name for one in topics} - self.topics.keys())),
                groups=tuple(one for one in contents.groups if one.version > since),
                deleted_groups=tuple(sorted({one.name for one in groups} - self.groups.keys())),
                resumed_to=contents,
            )

        rows = self._computed_once(("rows", since, lite_scope, self.version), changed_rows)
        return dataclasses.replace(
            self._current(lite_scope),
            topics=rows.topics,
            deleted_topics=rows.deleted_topics,
            groups=rows.groups,
            deleted_groups=rows.deleted_groups,
            resumed_to=rows.resumed_to,
        )

    def _current(self, lite_scope: str | None) -> RouteChange:
        """The deletions, the keys and, for other watchers than enodes, the processes, without topics and groups."""
        current = RouteChange(
            self.version,
            directory_id=self.directory_id,
            handle_keys=self.handle_keys,
            deletions=tuple(self.deleted.values()),
            group_deletions=tuple(self.deleted_groups.values()),
            enodes=tuple(self.enodes[name] for name in sorted(self.enodes)),
            snodes=tuple(self.snodes[name] for name in sorted(self.snodes)),
        )
        return current.without_processes() if lite_scope else current

    def needs_snapshot(self, seen_count: int | None, start: WatchStart) -> bool:
        """Whether a watcher that has seen `seen_count` changes needs a snapshot; None = it begins at `start`."""
        if seen_count is None:
            return not self.can_resume(start)
        return seen_count < self._count - len(self._changes)

    def first(self, start: WatchStart) -> tuple[RouteChange, int]:
        """The first change for a watcher, and the number of changes that it has seen then."""
        scope = start.lite_scope
        if not self.can_resume(start):
            snapshot = self._computed_once(("snapshot", scope, self._count), lambda: self.snapshot(scope))
            return snapshot, self._count

        def resume() -> RouteChange:
            return self.changes_since(start.since, scope)

        return self._computed_once(("resumed", start.since, scope, self._count), resume), self._count

    def next_after(self, seen_count: int | None, lite_scope: str | None = None) -> tuple[RouteChange | None, int]:
        """All further changes for a watcher that has seen `seen_count` changes, and the number that it has seen then.

        The change is a snapshot if `seen_count` is None or the log no longer has the next change. It is None if the
        watcher has seen all changes, or an enode all but registrations. Watchers that have seen the same number share
        the result, which contains all changed lite topics.
        """
        oldest = self._count - len(self._changes)
        if seen_count is None or seen_count < oldest:
            return self.first(WatchStart(lite_scope=lite_scope))
        if seen_count >= self._count:
            return None, seen_count

        def merge() -> RouteChange:
            following = list(islice(self._changes, seen_count - oldest, None))
            if lite_scope:
                following = [one.without_processes() for one in following if not one.has_only_processes]
            return merge_changes(following) if following else _NOTHING

        change = self._computed_once(("changes", bool(lite_scope), seen_count, self._count), merge)
        return None if change is _NOTHING else change, self._count

    def _computed_once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The result of `compute`, kept for further watchers that need the same."""
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = compute()
            if len(self._shared) > SHARED_MAX:
                self._shared.popitem(last=False)
        else:
            self._shared.move_to_end(key)
        return found  # type: ignore[return-value]  # the key determines the type


def _is_in_scope(topic: Topic, lite_scope: str | None) -> bool:
    """Whether a watcher of this scope gets the topic first."""
    return lite_scope is None or not topic.parent or topic.placement(lite_scope) is not None


def _topic_bytes(topic: Topic) -> int:
    """The size of a topic on the wire without its placements, bytes, if all its numbers were large."""
    names = len(topic.name) + len(topic.parent) + len(topic.owner_group)
    return 67 + names + sum(10 + len(one.enode) for one in topic.publish_order)


def _plain_bytes(topics: Iterable[Topic]) -> int:
    return sum(_topic_bytes(topic) for topic in topics if not topic.parent)


def _group_bytes(group: Group) -> int:
    return 100 + len(group.name) + 6 * len(group.retry.listed_delays_ms)
