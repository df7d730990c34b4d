"""State changes of messages given back, delivery modes and ids; kinds 37 to 40. docs/formats/log.md shows them."""

import enum
import struct
from collections.abc import Callable
from dataclasses import dataclass

_CHANGE = struct.Struct("<BI")
_SENT_BACK = struct.Struct("<QII")
_SENT_BACK_ROW = struct.Struct("<qB")
_FORGOTTEN = struct.Struct("<QI")
_QUEUE_ID = struct.Struct("<I")
_MODE = struct.Struct("<QB")
_IDS = struct.Struct("<QIqBqqI")

KIND_SENT_BACK, KIND_SENT_BACK_FORGOTTEN, KIND_MODE, KIND_IDS = 37, 38, 39, 40
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
class SentBack:
    """Messages that a group consumes by offsets were copied for later; asking again copies nothing."""

    topic_id: int
    group: str
    queue_id: int
    rows: tuple[tuple[int, int], ...]
    """(offset, 1 if it was parked, 0 if it comes again)."""

    def encoded(self) -> bytes:
        """The change's bytes."""
        head = _SENT_BACK.pack(self.topic_id, self.queue_id, len(self.rows))
        rows = b"".join([_SENT_BACK_ROW.pack(*row) for row in self.rows])
        return _change(KIND_SENT_BACK, head + rows + self.group.encode())


@dataclass(frozen=True, slots=True)
class SentBackForgotten:
    """An operator moved a group in some queues: messages it gives back from now on are copied anew."""

    topic_id: int
    group: str
    queue_ids: tuple[int, ...]

    def encoded(self) -> bytes:
        """The change's bytes."""
        ids = b"".join([_QUEUE_ID.pack(one) for one in self.queue_ids])
        return _change(
            KIND_SENT_BACK_FORGOTTEN, _FORGOTTEN.pack(self.topic_id, len(self.queue_ids)) + ids + self.group.encode()
        )


@dataclass(frozen=True, slots=True)
class ModeSet:
    """How a group consumes a topic from now on."""

    topic_id: int
    group: str
    mode: Mode

    def encoded(self) -> bytes:
        """The change's bytes."""
        return _change(KIND_MODE, _MODE.pack(self.topic_id, self.mode) + self.group.encode())


@dataclass(frozen=True, slots=True)
class IdsRemembered:
    """Messages with ids that applications chose were stored, one after another."""

    topic_id: int
    queue_id: int
    first_offset: int
    """Of delayed messages: the first one's number among those that wait."""
    delayed: bool
    stored_at_ms: int
    until_ms: int
    """Until then, by the wall clock, a message with one of these ids is not stored again."""
    ids: tuple[bytes, ...]
    """16 bytes each."""

    def encoded(self) -> bytes:
        """The change's bytes."""
        head = _IDS.pack(
            self.topic_id, self.queue_id, self.first_offset, self.delayed, self.stored_at_ms, self.until_ms,
            len(self.ids),
        )  # fmt: skip
        return _change(KIND_IDS, head + b"".join(self.ids))


LifeChange = SentBack | SentBackForgotten | ModeSet | IdsRemembered


def _change(kind: int, body: bytes) -> bytes:
    return _CHANGE.pack(kind, len(body)) + body


def _sent_back(body: bytes) -> SentBack:
    topic_id, queue_id, count = _SENT_BACK.unpack_from(body)
    end = _SENT_BACK.size + count * _SENT_BACK_ROW.size
    rows = tuple(_SENT_BACK_ROW.iter_unpack(body[_SENT_BACK.size : end]))
    return SentBack(topic_id, body[end:].decode(), queue_id, rows)


def _forgotten(body: bytes) -> SentBackForgotten:
    topic_id, count = _FORGOTTEN.unpack_from(body)
    end = _FORGOTTEN.size + count * _QUEUE_ID.size
    ids = tuple(one for (one,) in _QUEUE_ID.iter_unpack(body[_FORGOTTEN.size : end]))
    return SentBackForgotten(topic_id, body[end:].decode(), ids)


def _mode(body: bytes) -> ModeSet:
    topic_id, mode = _MODE.unpack_from(body)
    return ModeSet(topic_id, body[_MODE.size :].decode(), Mode(mode))


def _ids(body: bytes) -> IdsRemembered:
    topic_id, queue_id, first_offset, delayed, stored_at_ms, until_ms, count = _IDS.unpack_from(body)
    at = _IDS.size
    ids = tuple(body[at + row * ID_BYTES : at + (row + 1) * ID_BYTES] for row in range(count))
    return IdsRemembered(topic_id, queue_id, first_offset, bool(delayed), stored_at_ms, until_ms, ids)


DECODERS: dict[int, Callable[[bytes], LifeChange]] = {
    KIND_SENT_BACK: _sent_back,
    KIND_SENT_BACK_FORGOTTEN: _forgotten,
    KIND_MODE: _mode,
    KIND_IDS: _ids,
}
