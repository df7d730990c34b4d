"""State changes of transactions; kinds 67 and 68. docs/formats/log.md shows these tables."""

import enum
from dataclasses import dataclass

from ortoo.enode.changes.codec import I64, U8, U32, U64, Change, Flag


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
class HalfOpen(Change):
    """A transaction as it is now: begun, checked, parked, resumed or stored again. The newest one counts."""

    number: I64
    """Where its first message was stored first: its id."""
    topic_id: U64
    queue_id: U32
    place: I64
    """Where its first message lies in the queue of half messages; the others follow."""
    count: U32
    stored_at_ms: I64
    next_check_ms: I64
    checks: U32
    """How often its producers were to be asked."""
    parked: Flag
    """Nobody is asked any more; an operator decides."""
    key: U64
    """Chosen by who began it, so that beginning again after a lost answer begins nothing; 0 = none."""
    producer_group: str


@dataclass(frozen=True, slots=True)
class HalfEnded(Change):
    """A transaction ended. Committed, its messages are in the same frame."""

    number: I64
    topic_id: U64
    verdict: U8
    source: U8
    ended_at_ms: I64
