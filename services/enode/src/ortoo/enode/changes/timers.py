"""State changes of delayed messages; kinds 64 to 66. docs/formats/log.md describes their bytes.

Columns of numbers have the format of the log: int64 each, little-endian.
"""

import enum
from dataclasses import dataclass
from typing import Annotated

from ortoo.enode.changes.codec import I64, U8, U32, U64, PackedColumn, StateChange


class TimerEnd(enum.IntEnum):
    """Why a timer ended."""

    DELIVERED = 1
    RECALLED = 2
    LOST = 3
    """The message is damaged, or its queue was deleted."""


@dataclass(frozen=True, slots=True)
class TimersSet(StateChange):
    """Delayed messages were stored, or were stored again at another place."""

    topic_id: U64
    """The destination topic."""
    queue_id: U32
    first_place: I64
    """The first one's offset in the queue of delayed messages; the others follow."""
    producer_id: U64
    """For deduplication in the destination queue; 0 = none."""
    first_sequence: U64
    stored_at_ms: I64
    payload_crc: U32
    deliver_at_ms: Annotated[bytes, PackedColumn()]
    """int64 each."""
    ids: Annotated[bytes, PackedColumn(is_optional=True)] = b""
    """int64 each; empty = the places are the ids."""

    @property
    def count(self) -> int:
        """The number of messages."""
        return len(self.deliver_at_ms) // 8


@dataclass(frozen=True, slots=True)
class TimerRows(StateChange):
    """In a checkpoint: some timers."""

    rows: Annotated[bytes, PackedColumn("QIqqq")]
    """(topic id, queue id, id, place, deliver at ms) each."""


@dataclass(frozen=True, slots=True)
class TimersDone(StateChange):
    """Timers ended."""

    end: U8
    deliver_at_ms: Annotated[bytes, PackedColumn()]
    """int64 each, the due times by which the timers are found."""
    ids: Annotated[bytes, PackedColumn()]
    """int64 each."""
