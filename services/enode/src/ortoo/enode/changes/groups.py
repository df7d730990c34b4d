"""State changes about groups: how they use topics, and what is kept of them. docs/formats/log.md shows these tables.

Older processes pass over kinds 128 to 131.
"""

import enum
from dataclasses import dataclass
from typing import Annotated

from ortoo.enode.changes.codec import I64, U32, U64, Change, Flag, Repeated


@dataclass(frozen=True, slots=True)
class GroupUse(Change):
    """A group uses a topic by it; what is kept of groups is kept because of these."""

    topic_id: U64
    group: str


@dataclass(frozen=True, slots=True)
class QueueUse(GroupUse):
    """A group uses a queue of a topic by it."""

    queue_id: U32


class Mode(enum.IntEnum):
    """How a group consumes a topic; the numbers are those on the wire and in the log."""

    UNDECIDED = 0
    """Its next use decides."""
    OFFSETS = 1
    """A queue belongs to one member, which commits offsets: push sessions and pulls."""
    POP = 2
    """Any member gets any message."""
    POP_IN_ORDER = 3
    """As POP, messages of one message group one after another."""


@dataclass(frozen=True, slots=True)
class SentBack(QueueUse):
    """Messages that a group consumes by offsets were copied for later; asking again copies nothing."""

    rows: Annotated[tuple[tuple[int, int], ...], Repeated("qB")]
    """(offset, 1 if it was parked, 0 if it comes again)."""


@dataclass(frozen=True, slots=True)
class SentBackForgotten(GroupUse):
    """An operator moved a group in some queues: messages it gives back from now on are copied anew."""

    queue_ids: Annotated[tuple[int, ...], Repeated("I")]


@dataclass(frozen=True, slots=True)
class ModeSet(GroupUse):
    """How a group consumes a topic from now on."""

    mode: Annotated[Mode, "B"]


@dataclass(frozen=True, slots=True)
class GroupSeen(Change):
    """A group used a topic at this time; written now and then for those whose use leaves nothing else in the log."""

    topic_id: U64
    group: str
    seen_at_ms: I64


@dataclass(frozen=True, slots=True)
class GroupDeclared(Change):
    """Somebody declared a group, or its deletion was carried out and nobody has again since."""

    is_declared: Flag
    group: str


@dataclass(frozen=True, slots=True)
class GroupGone(Change):
    """Everything that was kept of a group in a topic is dropped."""

    topic_id: U64
    group: str


@dataclass(frozen=True, slots=True)
class GroupsEnded(Change):
    """The deletions of groups that were due in this version of a directory, and before, are carried out; 0 = none."""

    version: U64
    directory_id: str
