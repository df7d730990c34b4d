"""State changes of delayed messages and their bytes; kinds 64 to 66. docs/formats/log.md shows these tables.

Columns of numbers are kept as they lie in the log: int64 each, little-endian.
"""

import enum
import struct
from collections.abc import Callable
from dataclasses import dataclass

_CHANGE = struct.Struct("<BI")
_SET = struct.Struct("<QIqQQqIIB")
_ROWS = struct.Struct("<I")
_DONE = struct.Struct("<BI")

KIND_SET, KIND_ROWS, KIND_DONE = 64, 65, 66
ROW_BYTES = 36


class TimerEnd(enum.IntEnum):
    """Why a timer is no more."""

    DELIVERED = 1
    RECALLED = 2
    LOST = 3
    """The message's bytes are damaged, or its queue is gone."""


@dataclass(frozen=True, slots=True)
class TimersSet:
    """Messages were stored to be delivered later, or were stored again somewhere else."""

    topic_id: int
    """Where they will be delivered."""
    queue_id: int
    first_place: int
    """The first one's offset in the queue of delayed messages; the others follow."""
    producer_id: int
    """Idempotence, for the real queue; 0 = none."""
    first_sequence: int
    stored_at_ms: int
    payload_crc: int
    deliver_at_ms: bytes
    """int64 each."""
    ids: bytes = b""
    """int64 each; empty = the places are the ids."""

    @property
    def count(self) -> int:
        """How many messages."""
        return len(self.deliver_at_ms) // 8

    def encoded(self) -> bytes:
        """The change's bytes."""
        head = _SET.pack(
            self.topic_id, self.queue_id, self.first_place, self.producer_id, self.first_sequence, self.stored_at_ms,
            self.payload_crc, self.count, bool(self.ids),
        )  # fmt: skip
        return _change(KIND_SET, head + self.deliver_at_ms + self.ids)


@dataclass(frozen=True, slots=True)
class TimerRows:
    """In a checkpoint: some timers."""

    rows: bytes
    """topic id u64, queue u32, id i64, place i64, deliver at ms i64, each."""

    def encoded(self) -> bytes:
        """The change's bytes."""
        return _change(KIND_ROWS, _ROWS.pack(len(self.rows) // ROW_BYTES) + self.rows)


@dataclass(frozen=True, slots=True)
class TimersDone:
    """Timers are no more."""

    end: int
    deliver_at_ms: bytes
    """int64 each, as they were set: this is how they are found."""
    ids: bytes
    """int64 each."""

    def encoded(self) -> bytes:
        """The change's bytes."""
        return _change(KIND_DONE, _DONE.pack(self.end, len(self.ids) // 8) + self.deliver_at_ms + self.ids)


TimerChange = TimersSet | TimerRows | TimersDone


def _change(kind: int, body: bytes) -> bytes:
    return _CHANGE.pack(kind, len(body)) + body


def _set(body: bytes) -> TimersSet:
    topic_id, queue_id, place, producer_id, sequence, stored_at_ms, crc, count, has_ids = _SET.unpack_from(body)
    middle = _SET.size + 8 * count
    end = middle + 8 * count if has_ids else middle
    if len(body) != end:
        raise ValueError(f"{count} timers in {len(body)} bytes")
    times, ids = body[_SET.size : middle], body[middle:]
    return TimersSet(topic_id, queue_id, place, producer_id, sequence, stored_at_ms, crc, times, ids)


def _rows(body: bytes) -> TimerRows:
    (count,) = _ROWS.unpack_from(body)
    if len(body) != _ROWS.size + count * ROW_BYTES:
        raise ValueError(f"{count} timers in {len(body)} bytes")
    return TimerRows(body[_ROWS.size :])


def _done(body: bytes) -> TimersDone:
    end, count = _DONE.unpack_from(body)
    middle = _DONE.size + 8 * count
    if len(body) != middle + 8 * count:
        raise ValueError(f"{count} timers in {len(body)} bytes")
    return TimersDone(end, body[_DONE.size : middle], body[middle:])


DECODERS: dict[int, Callable[[bytes], TimerChange]] = {KIND_SET: _set, KIND_ROWS: _rows, KIND_DONE: _done}
