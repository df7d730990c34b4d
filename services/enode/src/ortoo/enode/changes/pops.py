"""State changes of popped messages; kinds 32 to 36 and 41. docs/formats/log.md describes their bytes."""

from dataclasses import dataclass
from typing import Annotated

from ortoo.enode.changes.codec import I64, U8, U64, BoolField, Repeated, StateChange
from ortoo.enode.changes.groups import QueueUse

Delivered = tuple[int, int, int]
"""(first offset, count, attempt): messages, and the number of their deliveries, including this one."""
OPENING_SHIFT = 40
"""A lease number is the store's opening count, shifted left by this, plus a counter."""
OffsetRange = tuple[int, int]
"""(first offset, count)."""


@dataclass(frozen=True, slots=True)
class _LeaseChange(QueueUse):
    """A lease of messages, or its end."""

    number: U64
    """The number of the lease."""
    until_ms: I64
    """Wall clock."""
    duration_ms: U64
    rows: Annotated[tuple[Delivered, ...], Repeated("qII")]


@dataclass(frozen=True, slots=True)
class PopLeased(_LeaseChange):
    """Messages were leased to a consumer, or their lease was renewed."""


@dataclass(frozen=True, slots=True)
class PopReturned(_LeaseChange):
    """Messages of lease `number` were released or nacked. They may be delivered again from `until_ms` on."""


@dataclass(frozen=True, slots=True)
class PopFinished(QueueUse):
    """Messages are finished for a group."""

    reason: U8
    """A `FinishReason`."""
    ranges: Annotated[tuple[OffsetRange, ...], Repeated("qI")]


COUNT_MAX = (1 << 32) - 1
"""The number of messages in one range."""
RANGES_MAX = 65_536


def finished_changes(place: tuple[int, str, int], reason: int, first: int, end: int) -> list[PopFinished]:
    """Return the changes that finish the offsets from `first` to `end`, exclusive.

    `place` is (topic id, group, queue id). A change covers at most 2**32 - 1 messages, so longer ranges are split.
    """
    ranges = tuple((at, min(COUNT_MAX, end - at)) for at in range(first, end, COUNT_MAX))
    return [PopFinished(*place, reason, ranges[at : at + RANGES_MAX]) for at in range(0, len(ranges), RANGES_MAX)]


@dataclass(frozen=True, slots=True)
class PopIntervals(QueueUse):
    """In a checkpoint: the finished and held messages of a group in a queue."""

    floor: I64
    is_first: BoolField
    """Whether it replaces the state of the queue; the others add to it."""
    rows: Annotated[tuple[tuple[int, int, int, int, int, int, int], ...], Repeated("qIBIQqQ")]
    """(first offset, count, phase or 0 for finished, attempt, number, until ms, duration ms)."""


@dataclass(frozen=True, slots=True)
class PopNote(QueueUse):
    """A consumer's report when it nacked a message."""

    offset: I64
    consumer: str
    error: str


@dataclass(frozen=True, slots=True)
class LeasesInvalidated(StateChange):
    """The end of the log was lost. A lease with a smaller number holds only messages for which the log contains it."""

    first_number: U64
