"""State changes and their bytes. docs/formats/log.md shows these tables.

A sequence of changes is `version (u16), count (u32)`, then each change as `kind (u8), length (u32), body`. A kind from
128 on may be skipped by a reader that does not know it; an unknown smaller kind makes the reader refuse.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ortoo.common.errors import Unsupported
from ortoo.enode.changes import halves as half_changes
from ortoo.enode.changes import lives as life_changes
from ortoo.enode.changes import pops as pop_changes
from ortoo.enode.changes import timers as timer_changes

VERSION = 1
KIND_SKIPPABLE_MIN = 128

_HEAD = struct.Struct("<HI")
_CHANGE = struct.Struct("<BI")
_TOPIC = struct.Struct("<QQI")
_TOPIC_GONE = struct.Struct("<Q")
_OFFSETS = struct.Struct("<QQI")
_OFFSET = struct.Struct("<Iq")
_ROWS = struct.Struct("<QI")
_ROW = struct.Struct("<IqQ")
_WINDOW = struct.Struct("<QIQQqI")
_WINDOW_BATCH = struct.Struct("<QIqqI")
_QUEUE = struct.Struct("<QIqq")
_SKIPPED = struct.Struct("<QIqq")
_LOCKS = struct.Struct("<QIHHH")
_LOCK = struct.Struct("<IQ")

HEAD_BYTES = _HEAD.size


@dataclass(frozen=True, slots=True)
class TopicPut:
    """A topic was created or changed."""

    topic_id: int
    version: int
    queue_count: int
    name: str

    def encoded(self) -> bytes:
        """The change's bytes."""
        return _change(1, _TOPIC.pack(self.topic_id, self.version, self.queue_count) + self.name.encode())


@dataclass(frozen=True, slots=True)
class TopicGone:
    """A topic was deleted, with its queues and every offset in it."""

    topic_id: int

    def encoded(self) -> bytes:
        """The change's bytes."""
        return _change(2, _TOPIC_GONE.pack(self.topic_id))


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """A group consumed some queues of a topic up to these offsets."""

    topic_id: int
    group: str
    generation: int
    """Of the assignment; 0 leaves the stored one."""
    offsets: tuple[tuple[int, int], ...]
    """(queue id, next offset)."""

    def encoded(self) -> bytes:
        """The change's bytes."""
        rows = b"".join(_OFFSET.pack(*row) for row in self.offsets)
        head = _OFFSETS.pack(self.topic_id, self.generation, len(self.offsets))
        return _change(3, head + rows + self.group.encode())


@dataclass(frozen=True, slots=True)
class OffsetRows:
    """In a checkpoint: all or some of a group's offsets in a topic."""

    topic_id: int
    group: str
    rows: tuple[tuple[int, int, int], ...]
    """(queue id, next offset, generation)."""

    def encoded(self) -> bytes:
        """The change's bytes."""
        rows = b"".join(_ROW.pack(*row) for row in self.rows)
        return _change(4, _ROWS.pack(self.topic_id, len(self.rows)) + rows + self.group.encode())


@dataclass(frozen=True, slots=True)
class WindowBatch:
    """One batch that a producer sent, as the window remembers it."""

    first_sequence: int
    count: int
    first_offset: int
    stored_at_ms: int
    crc: int


@dataclass(frozen=True, slots=True)
class ProducerWindow:
    """In a checkpoint: what one producer sent to one queue last."""

    topic_id: int
    queue_id: int
    producer_id: int
    next_sequence: int
    used_at_ms: int
    batches: tuple[WindowBatch, ...]

    def encoded(self) -> bytes:
        """The change's bytes."""
        head = _WINDOW.pack(
            self.topic_id, self.queue_id, self.producer_id, self.next_sequence, self.used_at_ms, len(self.batches)
        )
        rows = (
            _WINDOW_BATCH.pack(one.first_sequence, one.count, one.first_offset, one.stored_at_ms, one.crc)
            for one in self.batches
        )
        return _change(5, head + b"".join(rows))


@dataclass(frozen=True, slots=True)
class QueueEnds:
    """In a checkpoint: the end of a queue, known even when none of its frames is left."""

    topic_id: int
    queue_id: int
    end_offset: int
    stored_at_ms: int
    """Of the last message; 0 if there was none."""

    def encoded(self) -> bytes:
        """The change's bytes."""
        return _change(6, _QUEUE.pack(self.topic_id, self.queue_id, self.end_offset, self.stored_at_ms))


@dataclass(frozen=True, slots=True)
class OffsetsSkipped:
    """Offsets that will never hold a message, because the place they may have lain in was damaged."""

    topic_id: int
    queue_id: int
    begin_offset: int
    end_offset: int

    def encoded(self) -> bytes:
        """The change's bytes."""
        return _change(7, _SKIPPED.pack(self.topic_id, self.queue_id, self.begin_offset, self.end_offset))


@dataclass(frozen=True, slots=True)
class LocksPut:
    """Who holds the locks of some queues of a topic in a group, from now on."""

    topic_id: int
    group: str
    owner: str
    """A client id; empty = the locks are free, only their generations are kept."""
    session_id: str
    """The owner's session."""
    incarnation: str
    """Of the snode that the locks are bound to; empty = none."""
    rows: tuple[tuple[int, int], ...]
    """(queue id, generation)."""

    def encoded(self) -> bytes:
        """The change's bytes."""
        texts = [text.encode() for text in (self.group, self.owner, self.session_id)]
        head = _LOCKS.pack(self.topic_id, len(self.rows), *map(len, texts))
        rows = b"".join(_LOCK.pack(*row) for row in self.rows)
        return _change(8, b"".join((head, rows, *texts, self.incarnation.encode())))


Change = (
    TopicPut | TopicGone | OffsetsCommitted | OffsetRows | ProducerWindow | QueueEnds | OffsetsSkipped
    | LocksPut | pop_changes.PopChange | timer_changes.TimerChange
    | half_changes.HalfChange | life_changes.LifeChange
)  # fmt: skip


def encode_changes(encoded: Sequence[bytes]) -> bytes:
    """Put changes that are encoded one by one into the bytes of a frame."""
    return _HEAD.pack(VERSION, len(encoded)) + b"".join(encoded)


def decode_changes(data: bytes) -> Iterable[Change]:
    """Read what `encode_changes` wrote. The CRC was checked before, so a wrong length is a defect and raises.

    Errors: Unsupported for a newer version or an unknown change that may not be skipped.
    """
    version, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise Unsupported(f"state changes of version {version}; this process knows {VERSION}: upgrade it")
    at = _HEAD.size
    for _ in range(count):
        kind, length = _CHANGE.unpack_from(data, at)
        at += _CHANGE.size
        body = data[at : at + length]
        if len(body) != length:
            raise ValueError(f"a state change of {length} bytes, but {len(body)} are left")
        at += length
        decode = _DECODERS.get(kind)
        if decode is not None:
            yield decode(body)
        elif kind < KIND_SKIPPABLE_MIN:
            raise Unsupported(f"state change of kind {kind}: upgrade this process")


def _change(kind: int, body: bytes) -> bytes:
    return _CHANGE.pack(kind, len(body)) + body


def _topic_put(body: bytes) -> TopicPut:
    topic_id, version, queue_count = _TOPIC.unpack_from(body)
    return TopicPut(topic_id, version, queue_count, body[_TOPIC.size :].decode())


def _topic_gone(body: bytes) -> TopicGone:
    return TopicGone(*_TOPIC_GONE.unpack(body))


def _offsets(body: bytes) -> OffsetsCommitted:
    topic_id, generation, count = _OFFSETS.unpack_from(body)
    end = _OFFSETS.size + count * _OFFSET.size
    rows = tuple(_OFFSET.iter_unpack(body[_OFFSETS.size : end]))
    return OffsetsCommitted(topic_id, body[end:].decode(), generation, rows)


def _rows(body: bytes) -> OffsetRows:
    topic_id, count = _ROWS.unpack_from(body)
    end = _ROWS.size + count * _ROW.size
    return OffsetRows(topic_id, body[end:].decode(), tuple(_ROW.iter_unpack(body[_ROWS.size : end])))


def _window(body: bytes) -> ProducerWindow:
    topic_id, queue_id, producer_id, next_sequence, used_at_ms, _ = _WINDOW.unpack_from(body)
    batches = tuple(WindowBatch(*row) for row in _WINDOW_BATCH.iter_unpack(body[_WINDOW.size :]))
    return ProducerWindow(topic_id, queue_id, producer_id, next_sequence, used_at_ms, batches)


def _queue(body: bytes) -> QueueEnds:
    return QueueEnds(*_QUEUE.unpack(body))


def _skipped(body: bytes) -> OffsetsSkipped:
    return OffsetsSkipped(*_SKIPPED.unpack(body))


def _locks(body: bytes) -> LocksPut:
    topic_id, count, *lengths = _LOCKS.unpack_from(body)
    at = _LOCKS.size + count * _LOCK.size
    rows = tuple(_LOCK.iter_unpack(body[_LOCKS.size : at]))
    texts = []
    for length in lengths:
        texts.append(body[at : at + length].decode())
        at += length
    group, owner, session_id = texts
    return LocksPut(topic_id, group, owner, session_id, body[at:].decode(), rows)


_DECODERS: dict[int, Callable[[bytes], Change]] = {
    1: _topic_put, 2: _topic_gone, 3: _offsets, 4: _rows, 5: _window, 6: _queue, 7: _skipped, 8: _locks,
    **pop_changes.DECODERS,
    **timer_changes.DECODERS,
    **half_changes.DECODERS,
    **life_changes.DECODERS,
}  # fmt: skip
