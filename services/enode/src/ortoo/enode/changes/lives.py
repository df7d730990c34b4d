"""State changes of messages given back, delivery modes and ids; kinds 37 to 40. docs/formats/log.md shows them."""

import enum
from dataclasses import dataclass
from typing import Annotated

from ortoo.enode.changes.codec import I64, U32, U64, Change, Flag, Repeated

ID_BYTES = 16
"""How long an id is that stands for one an application chose."""


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
class SentBack(Change):
    """Messages that a group consumes by offsets were copied for later; asking again copies nothing."""

    topic_id: U64
    group: str
    queue_id: U32
    rows: Annotated[tuple[tuple[int, int], ...], Repeated("qB")]
    """(offset, 1 if it was parked, 0 if it comes again)."""


@dataclass(frozen=True, slots=True)
class SentBackForgotten(Change):
    """An operator moved a group in some queues: messages it gives back from now on are copied anew."""

    topic_id: U64
    group: str
    queue_ids: Annotated[tuple[int, ...], Repeated("I")]


@dataclass(frozen=True, slots=True)
class ModeSet(Change):
    """How a group consumes a topic from now on."""

    topic_id: U64
    group: str
    mode: Annotated[Mode, "B"]


@dataclass(frozen=True, slots=True)
class IdsRemembered(Change):
    """Messages with ids that applications chose were stored, one after another."""

    topic_id: U64
    queue_id: U32
    first_offset: I64
    """Of delayed messages: the first one's number among those that wait."""
    delayed: Flag
    stored_at_ms: I64
    until_ms: I64
    """Until then, by the wall clock, a message with one of these ids is not stored again."""
    ids: Annotated[tuple[bytes, ...], Repeated("16s")]
    """16 bytes each."""
