"""State changes of transactions; kinds 67 and 68. docs/formats/log.md describes their bytes."""

import enum
from dataclasses import dataclass

from ortoo.enode.changes.codec import I64, U8, U32, U64, BoolField, StateChange


class HalfVerdict(enum.IntEnum):
    """How a transaction ended."""

    COMMITTED = 1
    ROLLED_BACK = 2


class VerdictOrigin(enum.IntEnum):
    """The source of a verdict."""

    PRODUCER = 1
    CHECK = 2
    """A producer, in answer to a check."""
    OPERATOR = 3


@dataclass(frozen=True, slots=True)
class HalfOpen(StateChange):
    """The current state of a transaction: begun, checked, parked, resumed or stored again. The newest change counts."""

    number: I64
    """The transaction's id: the place where its first message was first stored."""
    topic_id: U64
    queue_id: U32
    place: I64
    """The place of its first message in the queue of half messages; the others follow."""
    count: U32
    stored_at_ms: I64
    next_check_ms: I64
    checks: U32
    """The number of checks so far."""
    parked: BoolField
    """Whether it is no longer checked, so that an operator must decide."""
    key: U64
    """Chosen by the caller, so that a repeated begin after a lost answer has no effect; 0 = none."""
    producer_group: str


@dataclass(frozen=True, slots=True)
class HalfEnded(StateChange):
    """A transaction ended. If it was committed, its messages are in the frame of this change."""

    number: I64
    topic_id: U64
    verdict: U8
    source: U8
    ended_at_ms: I64
