"""Decisions about what was deleted: until when it can come back, and what is forgotten. Pure."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ortoo.common.cluster.names import check_group_name, check_topic_name
from ortoo.common.errors import AlreadyExists, Conflict, NotFound
from ortoo.namesrv.decisions.groups import Group
from ortoo.namesrv.decisions.topics import Topic

KEPT_MS = 90 * 86_400_000
"""How long a deletion is told after it was due. An enode that was away for longer keeps what it has, as unknown."""
KEPT_MAX = 100_000
"""How many topics and how many groups are told: they are in every snapshot of the routes."""


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A topic that is gone for clients. Enodes keep its messages until it is due, and then drop them."""

    topic: Topic
    deleted_at_ms: int
    due_at_ms: int
    is_due: bool = False
    """Whether it was said: then it cannot come back, whatever a clock says."""

    @property
    def topic_id(self) -> int:
        """What it is known by; a name may be another topic's by now."""
        return self.topic.topic_id


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    """A group whose settings are gone. Enodes keep its offsets, locks and modes until it is due."""

    group: Group
    deleted_at_ms: int
    due_at_ms: int
    due_version: int = 0
    """The directory's version since which it is due; 0 = it can come back."""

    @property
    def name(self) -> str:
        """Of the group."""
        return self.group.name

    @property
    def is_due(self) -> bool:
        """Whether it was said: then it cannot come back, whatever a clock says."""
        return self.due_version > 0

    @property
    def version(self) -> int:
        """As enodes are told."""
        return self.due_version


Key = TypeVar("Key", int, str)
"""A topic's id, or a group's name: of several deletions of a name the last one counts."""


def delete(topic: Topic, *, now_ms: int, grace_ms: int) -> DeletedTopic:
    """The deletion of a topic; without a grace period it is due at once."""
    return DeletedTopic(topic, now_ms, now_ms + grace_ms, is_due=grace_ms == 0)


def delete_group(group: Group, *, now_ms: int, grace_ms: int, version: int) -> DeletedGroup:
    """The deletion of a group in this version of the directory; without a grace period it is due at once."""
    return DeletedGroup(group, now_ms, now_ms + grace_ms, 0 if grace_ms else version)


def undelete(
    name: str, topic_id: int, existing: Topic | None, deleted: Collection[DeletedTopic], *, version: int
) -> Topic:
    """The topic that comes back, of the `deleted` ones of its name.

    Errors: Invalid, NotFound; AlreadyExists when another topic has the name; Conflict when several had it.
    """
    check_topic_name(name, "name")
    found = [one for one in deleted if not one.is_due and topic_id in (0, one.topic_id)]
    if not found:
        raise NotFound(
            f"no deleted topic {name!r} can come back; `ortoo topic deleted` shows those that can", field="name"
        )
    if existing is not None:
        raise AlreadyExists(
            f"topic {name} was created anew with id {existing.topic_id:#x} meanwhile; delete that one first "
            f"(`ortoo topic delete {name}`; it can come back too), then retry with --id {found[0].topic_id:#x}",
            field="name",
        )
    if len(found) > 1:
        ids = ", ".join(f"{one.topic_id:#x}" for one in found)
        raise Conflict(f"several topics {name} were deleted; say which one by its id: {ids}", field="topic_id")
    return dataclasses.replace(found[0].topic, version=version)


def undelete_group(name: str, existing: Group | None, deletion: DeletedGroup | None, *, version: int) -> Group:
    """The group that comes back, also in place of one that only its use has made meanwhile.

    Errors: Invalid, NotFound; AlreadyExists when somebody declared a group of this name since.
    """
    check_group_name(name, "name")
    if deletion is None or deletion.is_due:
        raise NotFound(
            f"no deleted group {name!r} can come back; `ortoo group deleted` shows those that can", field="name"
        )
    if existing is not None and not existing.by_use:
        raise AlreadyExists(
            f"group {name} was declared anew meanwhile, and has the offsets that it had; `ortoo group update {name}` "
            "changes its settings",
            field="name",
        )
    return dataclasses.replace(deletion.group, version=version)


def due(deleted: Iterable[DeletedTopic], now_ms: int) -> list[DeletedTopic]:
    """Those topics whose grace period is over and of which that was not said yet."""
    return [dataclasses.replace(one, is_due=True) for one in deleted if not one.is_due and one.due_at_ms <= now_ms]


def due_groups(
    deleted: Iterable[DeletedGroup], existing: Collection[str], now_ms: int, *, version: int
) -> tuple[list[DeletedGroup], set[str]]:
    """Those groups that are due since this version, and the names of those that are there again.

    A group that somebody declared anew, or uses, has the offsets of its name: its deletion is over.
    """
    ended = [one for one in deleted if not one.is_due and one.due_at_ms <= now_ms]
    again = {one.name for one in ended if one.name in existing}
    return [dataclasses.replace(one, due_version=version) for one in ended if one.name not in again], again


def forgotten(deleted: Mapping[Key, DeletedTopic | DeletedGroup], now_ms: int) -> set[Key]:
    """The keys of those that need not be told any more, or are too many: those that were due first."""
    old = {key for key, one in deleted.items() if one.is_due and one.due_at_ms + KEPT_MS <= now_ms}
    surplus = len(deleted) - len(old) - KEPT_MAX
    if surplus > 0:
        rest = sorted((key for key in deleted if key not in old), key=lambda key: deleted[key].due_at_ms)
        old.update(rest[:surplus])
    return old
