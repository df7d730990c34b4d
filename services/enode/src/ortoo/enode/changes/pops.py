"""State changes of popped messages; kinds 32 to 36. docs/formats/log.md shows these tables."""

from dataclasses import dataclass
from typing import Annotated

from ortoo.enode.changes.codec import I64, U8, U64, Flag, Repeated
from ortoo.enode.changes.groups import QueueUse

Delivered = tuple[int, int, int]
"""(first offset, count, attempt): messages, and how often they were delivered, this time included."""
Range = tuple[int, int]
"""(first offset, count)."""


@dataclass(frozen=True, slots=True)
class _Held(QueueUse):
    """Whoever has messages, or had them last."""

    number: U64
    """Of the lease."""
    until_ms: I64
    """Wall clock."""
    duration_ms: U64
    rows: Annotated[tuple[Delivered, ...], Repeated("qII")]


@dataclass(frozen=True, slots=True)
class PopLeased(_Held):
    """Messages were handed to a consumer, or it keeps them for longer."""


@dataclass(frozen=True, slots=True)
class PopReturned(_Held):
    """Messages were given back: they may be delivered again from a time on. `number` is the lease that ended so."""


@dataclass(frozen=True, slots=True)
class PopFinished(QueueUse):
    """A group is done with messages."""

    reason: U8
    """A `FinishReason`."""
    ranges: Annotated[tuple[Range, ...], Repeated("qI")]


COUNT_MAX = (1 << 32) - 1
"""How many messages one range can name."""
RANGES_MAX = 65_536


def finished(place: tuple[int, str, int], reason: int, first: int, end: int) -> list[PopFinished]:
    """A group is done with the offsets `first` to `end`, however many they are.

    `place` is (topic id, group, queue id). A range names 2**32 - 1 messages at most, so a longer one is split.
    """
    ranges = tuple((at, min(COUNT_MAX, end - at)) for at in range(first, end, COUNT_MAX))
    return [PopFinished(*place, reason, ranges[at : at + RANGES_MAX]) for at in range(0, len(ranges), RANGES_MAX)]


@dataclass(frozen=True, slots=True)
class PopIntervals(QueueUse):
    """In a checkpoint: what a group has finished and holds in a queue."""

    floor: I64
    is_first: Flag
    """Whether it replaces what was known; the others add to it."""
    rows: Annotated[tuple[tuple[int, int, int, int, int, int, int], ...], Repeated("qIBIQqQ")]
    """(first offset, count, phase or 0 for finished, attempt, number, until ms, duration ms)."""


@dataclass(frozen=True, slots=True)
class PopNote(QueueUse):
    """What a consumer said when it gave a message back."""

    offset: I64
    consumer: str
    error: str
