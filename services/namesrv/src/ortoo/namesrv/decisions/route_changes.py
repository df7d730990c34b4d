"""The routes and the log of their changes, from which every watcher reads at its own pace. Pure."""

import dataclasses
import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from ortoo.common.cluster.sorted_names import SortedNames
from ortoo.common.groups.handle_seal import HandleKey, HandleKeys
from ortoo.namesrv.decisions.deletions import GroupDeletion, RowSums, TopicDeletion
from ortoo.namesrv.decisions.groups import Group
from ortoo.namesrv.decisions.placements import PlacementSetUses
from ortoo.namesrv.decisions.process_leases import Enode, Snode
from ortoo.namesrv.decisions.topics import Topic

CHANGES_MAX = 4096
DELETED_NAMES_MAX = 1_000
"""The number of newest deleted topics, and groups, that a resumed watch names. The checksum detects the others."""
SHARED_MAX = 16
"""The number of computed changes that are kept for further watchers at the same position."""
T = TypeVar("T")
DIRECTORY_BYTES_MAX = 64 << 20
"""The limit of all topics and groups on the wire, each set of placements once. Each watcher has them in memory."""


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
class Contents:
    """All topics and groups at one version, sorted by name."""

    version: int
    topics: tuple[Topic, ...]
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class WatchStart:
    """The position from which a watcher continues: a version of one directory. Version 0 = it has nothing."""

    directory_id: str = ""
    since: int = 0


NO_START = WatchStart()


@dataclass(frozen=True, slots=True)
class RouteChange:
    """A snapshot of the directory, or changes of it; `version` is the directory's version after the change."""

    version: int
    snapshot: bool = False
    topics: tuple[Topic, ...] = ()
    deleted_topics: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    deleted_groups: tuple[str, ...] = ()
    enodes: tuple[Enode, ...] = ()
    snodes: tuple[Snode, ...] = ()
    deletions: tuple[TopicDeletion, ...] = ()
    """New deletions, and deletions that became due."""
    directory_id: str = ""
    handle_keys: HandleKeys | None = None
    """All keys, only for snodes; None = unchanged."""
    group_deletions: tuple[GroupDeletion, ...] = ()
    """New deletions, and deletions that became due."""
    resumed_to: Contents | None = None
    """Set if the change continues an earlier watch: the contents after it. All live processes are listed then."""

    @property
    def resumed(self) -> bool:
        """Whether the change continues an earlier watch of the same directory."""
        return self.resumed_to is not None

    @property
    def deleted_topic_ids(self) -> list[int]:
        """The ids of deleted topics that can still be restored."""
        return [one.topic_id for one in self.deletions if not one.is_due]

    @property
    def due_topic_ids(self) -> list[int]:
        """The ids of deleted topics whose messages enodes must delete."""
        return [one.topic_id for one in self.deletions if one.is_due]

    @property
    def due_groups(self) -> list[GroupDeletion]:
        """The deleted groups whose state enodes must delete."""
        return [one for one in self.group_deletions if one.is_due]


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
        self.deleted_groups = {one.name: one for one in stored.group_deletions}
        self.enodes: dict[str, Enode] = {}
        self.snodes: dict[str, Snode] = {}
        self._bytes = sum(map(_topic_bytes, self.topics.values())) + sum(map(_group_bytes, self.groups.values()))
        self.sums = RowSums().plus(self.topics.values(), self.groups.values())
        self._placement_sets = PlacementSetUses()
        for topic in self.topics.values():
            self._placement_sets.add(topic.placement_set)
        self._changes: deque[RouteChange] = deque(maxlen=changes_max)
        self._count = 0
        self._shared: OrderedDict[Hashable, object] = OrderedDict()

    def apply(self, change: RouteChange) -> None:
        """Apply a change, and append it to the log of changes.

        Invariant: the directory's version never decreases.
        """
        self._bytes += self._rows_growth_bytes(change)
        self.sums = self.sums_after(change)
        self.version = max(self.version, change.version)
        self.handle_keys = change.handle_keys or self.handle_keys
        for topic in change.topics:
            self._remove_topic(topic.name)
            self.topics[topic.name] = topic
            self._placement_sets.add(topic.placement_set)
            self.deleted.pop(topic.topic_id, None)
        self.deleted.update((one.topic_id, one) for one in change.deletions)
        self.deleted_groups.update((one.name, one) for one in change.group_deletions)
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
        """The number of bytes by which topics and groups may still grow."""
        return DIRECTORY_BYTES_MAX - self._bytes - self._placement_sets.wire_bytes

    @property
    def expanded_bytes(self) -> int:
        """The size of a snapshot, rounded up, in which each topic lists its own placements."""
        return self._bytes + self._placement_sets.expanded_bytes

    def growth_bytes(self, change: RouteChange) -> int:
        """The bytes by which a change makes a snapshot larger, rounded up; negative if the snapshot becomes smaller."""
        new_sets = self._placement_sets.new_bytes(topic.placement_set for topic in change.topics)
        return self._rows_growth_bytes(change) + new_sets

    def sums_after(self, change: RouteChange) -> RowSums:
        """The sums of topics and groups after a change."""
        return self.sums.plus(change.topics, change.groups).plus(*self._replaced_rows(change), -1)

    def _rows_growth_bytes(self, change: RouteChange) -> int:
        topics, groups = self._replaced_rows(change)
        added = sum(map(_topic_bytes, change.topics)) + sum(map(_group_bytes, change.groups))
        return added - sum(map(_topic_bytes, topics)) - sum(map(_group_bytes, groups))

    def _replaced_rows(self, change: RouteChange) -> tuple[list[Topic], list[Group]]:
        """The topics and groups that a change removes or replaces."""
        gone_topics = {*change.deleted_topics, *(topic.name for topic in change.topics)} & self.topics.keys()
        gone_groups = {*change.deleted_groups, *(group.name for group in change.groups)} & self.groups.keys()
        return [self.topics[name] for name in gone_topics], [self.groups[name] for name in gone_groups]

    def _remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self._placement_sets.remove(topic.placement_set)

    def contents(self) -> Contents:
        """All topics and groups; watchers of the same version share the result."""

        def sort() -> Contents:
            topics = tuple(self.topics[name] for name in sorted(self.topics))
            return Contents(self.version, topics, tuple(self.groups[name] for name in sorted(self.groups)))

        return self._computed_once(("contents", self.version), sort)

    def snapshot(self) -> RouteChange:
        """A snapshot of the directory; its topics, groups and processes are sorted by name."""
        contents = self.contents()
        return dataclasses.replace(self._current(), snapshot=True, topics=contents.topics, groups=contents.groups)

    def can_resume(self, start: WatchStart) -> bool:
        """Whether a watcher can continue from `start`; otherwise it needs a snapshot."""
        return 0 < start.since <= self.version and start.directory_id == self.directory_id

    def changes_since(self, since: int) -> RouteChange:
        """The changes for a watcher that has version `since` of this directory, and continues from it.

        The deletions are complete as in a snapshot, and the names of the last deleted topics and groups are repeated.
        """

        def changed_rows() -> RouteChange:
            topics = heapq.nlargest(DELETED_NAMES_MAX, self.deleted.values(), key=lambda one: one.deleted_at_ms)
            groups = heapq.nlargest(DELETED_NAMES_MAX, self.deleted_groups.values(), key=lambda one: one.deleted_at_ms)
            contents = self.contents()
            return RouteChange(
                self.version,
                topics=tuple(one for one in contents.topics if one.version > since),
                deleted_topics=tuple(sorted({one.topic.name for one in topics} - self.topics.keys())),
                groups=tuple(one for one in contents.groups if one.version > since),
                deleted_groups=tuple(sorted({one.name for one in groups} - self.groups.keys())),
                resumed_to=contents,
            )

        rows = self._computed_once(("rows", since, self.version), changed_rows)
        return dataclasses.replace(
            self._current(),
            topics=rows.topics,
            deleted_topics=rows.deleted_topics,
            groups=rows.groups,
            deleted_groups=rows.deleted_groups,
            resumed_to=rows.resumed_to,
        )

    def _current(self) -> RouteChange:
        """The deletions, the processes and the keys, without topics and groups."""
        return RouteChange(
            self.version,
            directory_id=self.directory_id,
            handle_keys=self.handle_keys,
            deletions=tuple(self.deleted.values()),
            group_deletions=tuple(self.deleted_groups.values()),
            enodes=tuple(self.enodes[name] for name in sorted(self.enodes)),
            snodes=tuple(self.snodes[name] for name in sorted(self.snodes)),
        )

    def needs_snapshot(self, seen_count: int | None, start: WatchStart) -> bool:
        """Whether a watcher that has seen `seen_count` changes needs a snapshot; None = it begins at `start`."""
        if seen_count is None:
            return not self.can_resume(start)
        return seen_count < self._count - len(self._changes)

    def first(self, start: WatchStart) -> tuple[RouteChange, int]:
        """The first change for a watcher, and the number of changes that it has seen then."""
        if not self.can_resume(start):
            return self._computed_once(("snapshot", self._count), self.snapshot), self._count

        def resume() -> RouteChange:
            return self.changes_since(start.since)

        return self._computed_once(("resumed", start.since, self._count), resume), self._count

    def next_after(self, seen_count: int | None) -> tuple[RouteChange | None, int]:
        """All further changes for a watcher that has seen `seen_count` changes, and the number that it has seen then.

        The change is a snapshot if `seen_count` is None or the log no longer has the next change. It is None if the
        watcher has seen all changes. Watchers that have seen the same number share the result.
        """
        oldest = self._count - len(self._changes)
        if seen_count is None or seen_count < oldest:
            return self.first(NO_START)
        if seen_count >= self._count:
            return None, seen_count

        def merge() -> RouteChange:
            return merge_changes(list(islice(self._changes, seen_count - oldest, None)))

        return self._computed_once(("changes", seen_count, self._count), merge), self._count

    def _computed_once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The result of `compute`, kept for further watchers that need the same."""
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = compute()
            if len(self._shared) > SHARED_MAX:
                self._shared.popitem(last=False)
        return found  # type: ignore[return-value]  # the key determines the type


def merge_changes(changes: Sequence[RouteChange]) -> RouteChange:
    """One change with the effect of several consecutive ones, none of them a snapshot."""
    if len(changes) == 1:
        return changes[0]
    topics: dict[str, Topic | None] = {}
    groups: dict[str, Group | None] = {}
    enodes: dict[str, Enode] = {}
    snodes: dict[str, Snode] = {}
    deletions: dict[int, TopicDeletion] = {}
    group_deletions: dict[str, GroupDeletion] = {}
    handle_keys: HandleKeys | None = None
    for change in changes:
        topics.update(dict.fromkeys(change.deleted_topics))
        topics.update((one.name, one) for one in change.topics)
        groups.update(dict.fromkeys(change.deleted_groups))
        groups.update((one.name, one) for one in change.groups)
        enodes.update((one.name, one) for one in change.enodes)
        snodes.update((one.name, one) for one in change.snodes)
        for topic in change.topics:  # restored
            deletions.pop(topic.topic_id, None)
        deletions.update((one.topic_id, one) for one in change.deletions)
        group_deletions.update((one.name, one) for one in change.group_deletions)
        handle_keys = change.handle_keys or handle_keys
    return RouteChange(
        changes[-1].version,
        topics=tuple(one for one in topics.values() if one is not None),
        deleted_topics=tuple(name for name, one in topics.items() if one is None),
        groups=tuple(one for one in groups.values() if one is not None),
        deleted_groups=tuple(name for name, one in groups.items() if one is None),
        enodes=tuple(enodes.values()),
        snodes=tuple(snodes.values()),
        deletions=tuple(deletions.values()),
        directory_id=changes[-1].directory_id,
        handle_keys=handle_keys,
        group_deletions=tuple(group_deletions.values()),
    )


def _topic_bytes(topic: Topic) -> int:
    """The size of a topic on the wire without its placements, bytes, if all its numbers were large."""
    return 61 + len(topic.name) + sum(10 + len(one.enode) for one in topic.publish_order)


def _group_bytes(group: Group) -> int:
    return 100 + len(group.name) + 6 * len(group.retry.listed_delays_ms)
