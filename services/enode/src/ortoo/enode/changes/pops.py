"""State changes of popped messages and their bytes; kinds 32 to 36. docs/formats/log.md shows these tables."""

import struct
from collections.abc import Callable
from dataclasses import dataclass

_CHANGE = struct.Struct("<BI")
_LEASED = struct.Struct("<QIQqQI")
_LEASED_ROW = struct.Struct("<qII")
_FINISHED = struct.Struct("<QIBI")
_FINISHED_ROW = struct.Struct("<qI")
_SPANS = struct.Struct("<QIqBI")
_SPAN_ROW = struct.Struct("<qIBIQqQ")
_NOTE = struct.Struct("<QIqHH")

KIND_LEASED, KIND_RETURNED, KIND_FINISHED, KIND_SPANS, KIND_NOTE = 32, 33, 34, 35, 36

Row = tuple[int, int, int]
"""(first offset, count, attempt)."""
Range = tuple[int, int]
"""(first offset, count)."""


@dataclass(frozen=True, slots=True)
class PopLeased:
    """Messages were handed to a consumer, or it keeps them for longer."""

    topic_id: int
    group: str
    queue_id: int
    number: int
    until_ms: int
    """Wall clock."""
    duration_ms: int
    rows: tuple[Row, ...]

    def encoded(self) -> bytes:
        """The change's bytes."""
        return _times(KIND_LEASED, self)


@dataclass(frozen=True, slots=True)
class PopReturned:
    """Messages were given back: they may be delivered again from a time on. `number` is the lease that ended so."""

    topic_id: int
    group: str
    queue_id: int
    number: int
    until_ms: int
    """Wall clock."""
    duration_ms: int
    rows: tuple[Row, ...]

    def encoded(self) -> bytes:
        """The change's bytes."""
        return _times(KIND_RETURNED, self)


@dataclass(frozen=True, slots=True)
class PopFinished:
    """A group is done with messages."""

    topic_id: int
    group: str
    queue_id: int
    reason: int
    """A `FinishReason`."""
    ranges: tuple[Range, ...]

    def encoded(self) -> bytes:
        """The change's bytes."""
        head = _FINISHED.pack(self.topic_id, self.queue_id, self.reason, len(self.ranges))
        rows = b"".join([_FINISHED_ROW.pack(*row) for row in self.ranges])
        return _change(KIND_FINISHED, head + rows + self.group.encode())


@dataclass(frozen=True, slots=True)
class PopSpans:
    """In a checkpoint: what a group has finished and holds in a queue."""

    topic_id: int
    group: str
    queue_id: int
    floor: int
    is_first: bool
    """Whether it replaces what was known; the others add to it."""
    rows: tuple[tuple[int, int, int, int, int, int, int], ...]
    """(first offset, count, phase or 0 for finished, attempt, number, until ms, duration ms)."""

    def encoded(self) -> bytes:
        """The change's bytes."""
        head = _SPANS.pack(self.topic_id, self.queue_id, self.floor, self.is_first, len(self.rows))
        rows = b"".join([_SPAN_ROW.pack(*row) for row in self.rows])
        return _change(KIND_SPANS, head + rows + self.group.encode())


@dataclass(frozen=True, slots=True)
class PopNote:
    """What a consumer said when it gave a message back."""

    topic_id: int
    group: str
    queue_id: int
    offset: int
    consumer: str
    error: str

    def encoded(self) -> bytes:
        """The change's bytes."""
        group, consumer = self.group.encode(), self.consumer.encode()
        head = _NOTE.pack(self.topic_id, self.queue_id, self.offset, len(group), len(consumer))
        return _change(KIND_NOTE, head + group + consumer + self.error.encode())


PopChange = PopLeased | PopReturned | PopFinished | PopSpans | PopNote


def _change(kind: int, body: bytes) -> bytes:
    return _CHANGE.pack(kind, len(body)) + body


def _times(kind: int, it: PopLeased | PopReturned) -> bytes:
    head = _LEASED.pack(it.topic_id, it.queue_id, it.number, it.until_ms, it.duration_ms, len(it.rows))
    rows = b"".join([_LEASED_ROW.pack(*row) for row in it.rows])
    return _change(kind, head + rows + it.group.encode())


def _leased(body: bytes) -> PopLeased:
    topic_id, queue_id, number, until_ms, duration_ms, count = _LEASED.unpack_from(body)
    end = _LEASED.size + count * _LEASED_ROW.size
    rows = tuple(_LEASED_ROW.iter_unpack(body[_LEASED.size : end]))
    return PopLeased(topic_id, body[end:].decode(), queue_id, number, until_ms, duration_ms, rows)


def _returned(body: bytes) -> PopReturned:
    it = _leased(body)
    return PopReturned(it.topic_id, it.group, it.queue_id, it.number, it.until_ms, it.duration_ms, it.rows)


def _finished(body: bytes) -> PopFinished:
    topic_id, queue_id, reason, count = _FINISHED.unpack_from(body)
    end = _FINISHED.size + count * _FINISHED_ROW.size
    ranges = tuple(_FINISHED_ROW.iter_unpack(body[_FINISHED.size : end]))
    return PopFinished(topic_id, body[end:].decode(), queue_id, reason, ranges)


def _spans(body: bytes) -> PopSpans:
    topic_id, queue_id, floor, is_first, count = _SPANS.unpack_from(body)
    end = _SPANS.size + count * _SPAN_ROW.size
    rows = tuple(_SPAN_ROW.iter_unpack(body[_SPANS.size : end]))
    return PopSpans(topic_id, body[end:].decode(), queue_id, floor, bool(is_first), rows)


def _note(body: bytes) -> PopNote:
    topic_id, queue_id, offset, group_bytes, consumer_bytes = _NOTE.unpack_from(body)
    at = _NOTE.size
    group = body[at : at + group_bytes].decode()
    consumer = body[at + group_bytes : at + group_bytes + consumer_bytes].decode()
    return PopNote(topic_id, group, queue_id, offset, consumer, body[at + group_bytes + consumer_bytes :].decode())


DECODERS: dict[int, Callable[[bytes], PopChange]] = {
    KIND_LEASED: _leased,
    KIND_RETURNED: _returned,
    KIND_FINISHED: _finished,
    KIND_SPANS: _spans,
    KIND_NOTE: _note,
}
