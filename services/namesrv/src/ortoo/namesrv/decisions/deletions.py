"""Decisions about deleted topics: until when one can come back, and which are forgotten. Pure."""

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ortoo.common.cluster.names import check_topic_name
from ortoo.common.errors import AlreadyExists, Conflict, NotFound
from ortoo.namesrv.decisions.topics import Topic

KEPT_MS = 90 * 86_400_000
"""How long a deletion is told after it was due. An enode that was away for longer keeps its topic, as unknown."""
KEPT_MAX = 100_000
"""How many are told: their ids are in every snapshot of the routes."""


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


def delete(topic: Topic, *, now_ms: int, grace_ms: int) -> DeletedTopic:
    """The deletion of a topic; without a grace period it is due at once."""
    return DeletedTopic(topic, now_ms, now_ms + grace_ms, is_due=grace_ms == 0)


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


def due(deleted: Iterable[DeletedTopic], now_ms: int) -> list[DeletedTopic]:
    """Those whose grace period is over and of which that was not said yet."""
    return [dataclasses.replace(one, is_due=True) for one in deleted if not one.is_due and one.due_at_ms <= now_ms]


def forgotten(deleted: Collection[DeletedTopic], now_ms: int) -> set[int]:
    """The ids of those that need not be told any more, or are too many: those that were due first."""
    old = {one.topic_id for one in deleted if one.is_due and one.due_at_ms + KEPT_MS <= now_ms}
    surplus = len(deleted) - len(old) - KEPT_MAX
    if surplus > 0:
        rest = sorted((one for one in deleted if one.topic_id not in old), key=lambda one: one.due_at_ms)
        old.update(one.topic_id for one in rest[:surplus])
    return old
