"""State changes of transactions and their bytes; kinds 67 and 68. docs/formats/log.md shows these tables."""

import enum
import struct
from collections.abc import Callable
from dataclasses import dataclass

_CHANGE = struct.Struct("<BI")
_OPEN = struct.Struct("<qQIqIqqIBQ")
_ENDED = struct.Struct("<qQBBq")

KIND_OPEN, KIND_ENDED = 67, 68


class Verdict(enum.IntEnum):
    """How a transaction ended."""

    COMMITTED = 1
    ROLLED_BACK = 2


class Source(enum.IntEnum):
    """Who said so."""

    PRODUCER = 1
    CHECK = 2
    """A producer that was asked."""
    OPERATOR = 3


@dataclass(frozen=True, slots=True)
class HalfOpen:
    """A transaction as it is now: begun, checked, parked, resumed or stored again. The newest one counts."""

    number: int
    """Where its first message was stored first: its id."""
    topic_id: int
    queue_id: int
    place: int
    """Where its first message lies in the queue of half messages; the others follow."""
    count: int
    stored_at_ms: int
    next_check_ms: int
    checks: int
    """How often its producers were to be asked."""
    parked: bool
    """Nobody is asked any more; an operator decides."""
    key: int
    """Chosen by who began it, so that beginning again after a lost answer begins nothing; 0 = none."""
    producer_group: str

    def encoded(self) -> bytes:
        """The change's bytes."""
        head = _OPEN.pack(
            self.number, self.topic_id, self.queue_id, self.place, self.count, self.stored_at_ms, self.next_check_ms,
            self.checks, self.parked, self.key,
        )  # fmt: skip
        return _change(KIND_OPEN, head + self.producer_group.encode())


@dataclass(frozen=True, slots=True)
class HalfEnded:
    """A transaction ended. Committed, its messages are in the same frame."""

    number: int
    topic_id: int
    verdict: int
    source: int
    ended_at_ms: int

    def encoded(self) -> bytes:
        """The change's bytes."""
        return _change(KIND_ENDED, _ENDED.pack(self.number, self.topic_id, self.verdict, self.source, self.ended_at_ms))


HalfChange = HalfOpen | HalfEnded


def _change(kind: int, body: bytes) -> bytes:
    return _CHANGE.pack(kind, len(body)) + body


def _open(body: bytes) -> HalfOpen:
    number, topic_id, queue_id, place, count, stored_at_ms, next_check_ms, checks, parked, key = _OPEN.unpack_from(body)
    group = body[_OPEN.size :].decode()
    return HalfOpen(
        number, topic_id, queue_id, place, count, stored_at_ms, next_check_ms, checks, bool(parked), key, group
    )  # fmt: skip


def _ended(body: bytes) -> HalfEnded:
    return HalfEnded(*_ENDED.unpack(body))


DECODERS: dict[int, Callable[[bytes], HalfChange]] = {KIND_OPEN: _open, KIND_ENDED: _ended}
