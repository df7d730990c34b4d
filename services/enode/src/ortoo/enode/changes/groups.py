"""State changes of groups: their use of topics and their lifetime. docs/formats/log.md describes their bytes.

Older processes skip kinds 128 to 131.
"""

import enum
from dataclasses import dataclass
from typing import Annotated

from ortoo.enode.changes.codec import I64, U32, U64, BoolField, Repeated, StateChange


@dataclass(frozen=True, slots=True)
class GroupUse(StateChange):
    """Base of changes that count as a use of a topic by a group. Unused groups are dropped."""

    topic_id: U64
    group: str


@dataclass(frozen=True, slots=True)
class QueueUse(GroupUse):
    """Base of changes that count as a use of a queue by a group."""

    queue_id: U32


class GroupMode(enum.IntEnum):
    """The delivery mode of a group in a topic; the numbers are those on the wire and in the log."""

    UNDECIDED = 0
    """The next use by the group decides."""
    OFFSETS = 1
    """A queue is assigned to one group member, which commits offsets: push sessions and pulls."""
    POP = 2
    """Any group member gets any message."""
    POP_IN_ORDER = 3
    """As POP, but messages of one message group are delivered one after another."""


@dataclass(frozen=True, slots=True)
class RetryCopiesStored(QueueUse):
    """Nacked messages of a group that commits offsets were copied. A repeated nack of them makes no second copy."""

    rows: Annotated[tuple[tuple[int, int], ...], Repeated("qB")]
    """(offset, 1 if it was parked, 0 for a retry copy)."""


@dataclass(frozen=True, slots=True)
class RetryMarksDropped(GroupUse):
    """An operator moved a group's offset in some queues: messages that the group nacks later are copied again."""

    queue_ids: Annotated[tuple[int, ...], Repeated("I")]


@dataclass(frozen=True, slots=True)
class ModeSet(GroupUse):
    """The new delivery mode of a group in a topic."""

    mode: Annotated[GroupMode, "B"]


@dataclass(frozen=True, slots=True)
class GroupUsed(StateChange):
    """A group used a topic at this time; written periodically, for uses that leave no other change in the log."""

    topic_id: U64
    group: str
    seen_at_ms: I64


@dataclass(frozen=True, slots=True)
class GroupDeclared(StateChange):
    """A group was declared; or, with `is_declared` false, it was deleted and not declared again."""

    is_declared: BoolField
    group: str


@dataclass(frozen=True, slots=True)
class GroupDropped(StateChange):
    """All state of a group in a topic is dropped."""

    topic_id: U64
    group: str


@dataclass(frozen=True, slots=True)
class GroupDeletionsDone(StateChange):
    """All group deletions up to this version of a directory were carried out; version 0 = none yet."""

    version: U64
    directory_id: str
