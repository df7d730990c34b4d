"""Decisions about deleted topics and groups: the time until which they can be restored, and when they are dropped."""

import dataclasses
import heapq
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from ortoo.common.cluster.names import check_group_name, check_topic_name
from ortoo.common.directory.group import Group
from ortoo.common.errors import AlreadyExists, Conflict, NotFound
from ortoo.common.groups.handle_seal import HandleKey
from ortoo.namesrv.decisions.topics import Topic

DELETIONS_RETENTION_MS = 90 * 86_400_000
"""How long a due deletion is reported. An enode that was away for longer offers the topic to the directory again."""
DELETIONS_MAX = 100_000
"""The maximum number of topics and of groups that are reported, since they are in every snapshot of the routes."""
FORGOTTEN_AT_ONCE = 1_000
"""The number of deletions above the maximum from which on the earliest are forgotten, all of them at once."""
UNCONFIRMED_MAX = 2_000_000
"""The maximum number of forgotten deletions that an enode may not have carried out. Enodes that are away hold fewer."""
RESTORABLE_LITE_MAX = 50_000
"""With this many restorable topics, further expired lite topics are deleted without a grace period."""
DUE_AT_ONCE_MAX = 1_000
"""The maximum number of topics whose messages enodes are told to delete at once."""
CHANGED_AT_ONCE_MAX = 10_000
"""The maximum number of deletions that are forgotten or reported again in one change, which others wait for."""


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """A deleted topic, which clients no longer see. When its grace period ends, enodes delete its messages."""

    topic: Topic
    deleted_at_ms: int
    due_at_ms: int
    is_due: bool = False
    """True = its deletion was published, and it cannot be restored, whatever the clock shows."""

    @property
    def topic_id(self) -> int:
        """The id of the deleted topic. A newer topic may have the same name."""
        return self.topic.topic_id


@dataclass(frozen=True, slots=True)
class GroupDeletion:
    """A deleted group. Until its grace period ends, enodes keep its offsets, locks and delivery modes."""

    group: Group
    deleted_at_ms: int
    due_at_ms: int
    due_version: int = 0
    """The version of the directory since which the deletion is due; 0 = the group can be restored."""

    @property
    def name(self) -> str:
        """The name of the group."""
        return self.group.name

    @property
    def is_due(self) -> bool:
        """Whether enodes were told to delete the group, so that it cannot be restored, whatever the clock shows."""
        return self.due_version > 0

    @property
    def version(self) -> int:
        """The version of the directory with which enodes are told to delete the group; 0 = it can be restored."""
        return self.due_version


Deletion = TypeVar("Deletion", TopicDeletion, GroupDeletion)
Key = TypeVar("Key", int, str)
"""A topic's id or a group's name; of several deletions of a group's name the last one counts."""


def restorable(deleted: Iterable[Deletion]) -> Iterator[Deletion]:
    """The deletions of this moment that can be undone, in no order."""
    return (one for one in list(deleted) if not one.is_due)


def delete(topic: Topic, *, now_ms: int, grace_ms: int) -> TopicDeletion:
    """The deletion of a topic; without a grace period, its messages are deleted at once."""
    return TopicDeletion(topic, now_ms, now_ms + grace_ms, is_due=grace_ms == 0)


def delete_group(group: Group, *, now_ms: int, grace_ms: int, version: int) -> GroupDeletion:
    """The deletion of a group; without a grace period, enodes delete its state as of the directory's `version`."""
    return GroupDeletion(group, now_ms, now_ms + grace_ms, 0 if grace_ms else version)


def undelete(
    name: str, topic_id: int, existing: Topic | None, deleted: Collection[TopicDeletion], *, version: int
) -> Topic:
    """Restore a topic from `deleted`, the deleted topics that had its name; returns the topic.

    `topic_id` chooses one of them; 0 = the only one. `existing` is the present topic of this name. Errors: Invalid,
    NotFound. AlreadyExists if a topic of this name exists, Conflict if `topic_id` is required.
    """
    check_topic_name(name, "name")
    found = [one for one in deleted if not one.is_due and topic_id in (0, one.topic_id)]
    if not found:
        raise NotFound(
            f"no deleted topic {name!r} can be restored; `ortoo topic deleted` lists the deleted topics", field="name"
        )
    if existing is not None:
        raise AlreadyExists(
            f"a new topic {name} was created with id {existing.topic_id:#x} meanwhile. Delete the new topic first "
            f"(`ortoo topic delete {name}`; it can be restored too), then retry with --id {found[0].topic_id:#x}",
            field="name",
        )
    if len(found) > 1:
        ids = ", ".join(f"{one.topic_id:#x}" for one in found)
        raise Conflict(
            f"several topics {name} were deleted, with ids {ids}; choose one of them by its id", field="topic_id"
        )
    return dataclasses.replace(found[0].topic, version=version)


def undelete_group(name: str, existing: Group | None, deletion: GroupDeletion | None, *, version: int) -> Group:
    """Restore a deleted group; returns the group. It replaces an `existing` group that was created automatically.

    Errors: Invalid, NotFound. AlreadyExists if a group of this name was declared meanwhile.
    """
    check_group_name(name, "name")
    if deletion is None or deletion.is_due:
        raise NotFound(
            f"no deleted group {name!r} can be restored; `ortoo group deleted` lists the deleted groups", field="name"
        )
    if existing is not None and not existing.auto_created:
        raise AlreadyExists(
            f"group {name} was declared again meanwhile, and has its earlier offsets; `ortoo group update {name}` "
            "changes its settings",
            field="name",
        )
    return dataclasses.replace(deletion.group, version=version)


def due_topics(deleted: Iterable[TopicDeletion], now_ms: int) -> list[TopicDeletion]:
    """The deletions whose grace period has expired and that are not marked as due yet, at most `DUE_AT_ONCE_MAX`."""
    ended = (one for one in deleted if not one.is_due and one.due_at_ms <= now_ms)
    return [dataclasses.replace(one, is_due=True) for one in islice(ended, DUE_AT_ONCE_MAX)]


def due_groups(
    deleted: Iterable[GroupDeletion], existing: Collection[str], now_ms: int, *, version: int
) -> tuple[list[GroupDeletion], set[str]]:
    """The deletions of groups whose grace period has expired, in two results.

    The first has those to publish with the directory's `version`. The second has the names of groups that exist again,
    because they were declared or used; such a group keeps its earlier offsets.
    """
    ended = [one for one in deleted if not one.is_due and one.due_at_ms <= now_ms]
    again = {one.name for one in ended if one.name in existing}
    return [dataclasses.replace(one, due_version=version) for one in ended if one.name not in again], again


def next_expiry_ms(deleted: Iterable[TopicDeletion | GroupDeletion]) -> float:
    """When the next deletion becomes due or is forgotten; infinite if there is none."""
    times_ms = (one.due_at_ms + DELETIONS_RETENTION_MS if one.is_due else one.due_at_ms for one in deleted)
    return min(times_ms, default=math.inf)


def has_too_many(*tables: Collection[object]) -> bool:
    """Whether the earliest deletions of one of these tables must be forgotten."""
    return any(len(deleted) >= DELETIONS_MAX + FORGOTTEN_AT_ONCE for deleted in tables)


def expired_deletions(deleted: Mapping[Key, TopicDeletion | GroupDeletion], now_ms: int) -> set[Key]:
    """The keys of deletions to forget: old ones, which all enodes know, and the earliest if there are too many.

    Deletions that enodes were told to carry out are forgotten before those that can be undone.
    """
    old = {key for key, one in deleted.items() if one.is_due and one.due_at_ms + DELETIONS_RETENTION_MS <= now_ms}
    if has_too_many(deleted):
        rest = ((not one.is_due, one.due_at_ms, key) for key, one in deleted.items() if key not in old)
        old.update(key for _, _, key in heapq.nsmallest(len(deleted) - len(old) - DELETIONS_MAX, rest))
    return old


def confirmed_deletions(
    deletions: Iterable[TopicDeletion], due_versions: Mapping[int, int], confirmed: Mapping[str, int]
) -> set[int]:
    """The ids of the topics among `deletions` that all their enodes have deleted.

    `due_versions` has the version of the directory in which each was reported as due, by topic id. `confirmed` has the
    version up to which each enode has carried out all deletions.
    """
    return {
        one.topic_id
        for one in deletions
        if (version := due_versions.get(one.topic_id)) is not None
        and all(confirmed.get(place.enode, -1) >= version for place in one.topic.placements)
    }


LOW_BITS: Final = (1 << 32) - 1
"""The part of an id or a time that is added up, so that no sum exceeds 63 bits."""


class RowSums(NamedTuple):
    """The number of topics and groups, and the sums of their versions, ids and times of creation.

    Each change gives its rows a new version, and each new topic has a random id. So a database that was restored, and
    lost changes or got others instead, has other sums.
    """

    topics: int = 0
    topic_versions: int = 0
    topic_ids: int = 0
    groups: int = 0
    group_versions: int = 0
    group_times: int = 0

    def plus(self, topics: Iterable[Topic], groups: Iterable[Group], sign: int = 1) -> "RowSums":
        """The sums with these rows; without them if `sign` is -1."""
        added = [0] * len(self)
        for topic in topics:
            added[0] += 1
            added[1] += topic.version
            added[2] += topic.topic_id & LOW_BITS
        for group in groups:
            added[3] += 1
            added[4] += group.version
            added[5] += group.created_at_ms & LOW_BITS
        return RowSums(*(known + sign * more for known, more in zip(self, added, strict=True)))


@dataclass(frozen=True, slots=True)
class StoredChanges:
    """The rows of the database that were changed after a version.

    Also the deletions; those of topics only if they differ from the known ones.
    """

    version: int
    topics: tuple[Topic, ...]
    groups: tuple[Group, ...]
    deletions: tuple[TopicDeletion, ...]
    group_deletions: tuple[GroupDeletion, ...]
    handle_keys: tuple[HandleKey, ...]
    sums: RowSums
    """Of all stored topics and groups."""
