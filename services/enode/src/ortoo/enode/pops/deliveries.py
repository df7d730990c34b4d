"""The delivery state of one queue's messages in a group, for operators; read-only."""

from collections.abc import Iterator
from dataclasses import dataclass

from ortoo.common.process.clock import Clock
from ortoo.enode.changes.groups import GroupMode
from ortoo.enode.pops.lines import GroupLine, GroupLines
from ortoo.enode.pops.retry_copies import OrderedFailure
from ortoo.enode.state.interval_map import Phase, Piece
from ortoo.enode.state.tables.pops import noted_offsets
from ortoo.enode.store.store import Store

UNTOUCHED, DONE = 0, 4
"""Phases beside those of `Phase`: never delivered, and finished."""
RANGE_BYTES, ANSWER_BYTES_MAX = 64, 4 << 20
"""The size of a range without its texts, and the limit for all ranges of an answer."""


@dataclass(frozen=True, slots=True)
class DeliveryRange:
    """Adjacent messages in the same state."""

    first_offset: int
    count: int
    phase: int
    """UNTOUCHED, DONE, or one of `Phase`."""
    attempt: int = 0
    until_ms: int = 0
    """When the lease ends, or when they may be delivered again, by the wall clock."""
    consumer: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class QueueDeliveries:
    """The delivery state of one queue's messages in a group."""

    ranges: tuple[DeliveryRange, ...]
    committed_offset: int
    """-1 = none."""
    begin_offset: int
    end_offset: int
    uses_pop: bool
    leased_messages: int
    blocked_reason: str
    more: bool
    """Whether there are more ranges, which did not fit."""


def describe_deliveries(
    store: Store,
    group: GroupLines,
    queue_id: int,
    offsets: tuple[int, int, int],
    failure: OrderedFailure | None,
    clock: Clock,
) -> QueueDeliveries:
    """Describe messages of a queue for a group.

    `offsets` has the first offset (-1 = the first unfinished), the end (exclusive, 0 = the end of the queue) and the
    limit. `failure` is the message that a queue waits for, in a group that commits offsets.

    Errors: NotFound.
    """
    stored = store.queue_range(group.topic_id, queue_id)
    pops = store.modes.of(group.topic_id, group.name) in (GroupMode.POP, GroupMode.POP_IN_ORDER)
    committed = store.engine.state.offsets.of(group.topic_id, group.name, (queue_id,)).get(queue_id, -1)
    first, end, limit = offsets
    first = max(committed if first < 0 else first, stored.begin_offset)
    end = min(end or stored.end_offset, stored.end_offset, first + limit)
    if pops and first < end:
        ranges, more = _fit_answer(_popped_ranges(group, group.get_line(queue_id), first, end, clock))
    else:
        ranges, more = _fit_answer(_committed_ranges(first, end, committed, failure))
    return QueueDeliveries(
        ranges,
        committed,
        stored.begin_offset,
        stored.end_offset,
        pops,
        group.leased_count(),
        group.blocked,
        more,
    )


def _fit_answer(ranges: Iterator[DeliveryRange]) -> tuple[tuple[DeliveryRange, ...], bool]:
    """The ranges that fit in one answer, and whether there are more."""
    left_bytes, found = ANSWER_BYTES_MAX, list[DeliveryRange]()
    for one in ranges:
        left_bytes -= RANGE_BYTES + len(one.consumer.encode()) + len(one.error.encode())
        if left_bytes < 0 and found:
            return tuple(found), True
        found.append(one)
    return tuple(found), False


def _committed_ranges(first: int, end: int, committed: int, failure: OrderedFailure | None) -> Iterator[DeliveryRange]:
    """Ranges of a group that commits offsets: messages below the committed offset are finished."""
    if failure is not None and max(first, committed) <= failure.offset < end:
        yield from _committed_ranges(first, failure.offset, committed, None)
        returned = (Phase.RETURNED, failure.attempt, failure.retry_at_ms, failure.consumer, failure.error)
        yield DeliveryRange(failure.offset, 1, *returned)
        yield from _committed_ranges(failure.offset + 1, end, committed, None)
        return
    middle = min(max(first, committed), end)
    if first < middle:
        yield DeliveryRange(first, middle - first, DONE)
    if middle < end:
        yield DeliveryRange(middle, end - middle, UNTOUCHED)


def _popped_ranges(group: GroupLines, line: GroupLine, first: int, end: int, clock: Clock) -> Iterator[DeliveryRange]:
    """Ranges of a group that pops: the line's unfinished pieces, and finished messages between them."""
    at = first
    for piece in list(line.intervals.unfinished(first, end)):
        if at < piece.first:
            yield DeliveryRange(at, piece.first - at, DONE)
        yield from _piece_ranges(group, line, piece, clock)
        at = piece.end
    if at < end:
        yield DeliveryRange(at, end - at, DONE)


def _piece_ranges(group: GroupLines, line: GroupLine, piece: Piece, clock: Clock) -> Iterator[DeliveryRange]:
    hold = piece.state
    if hold is None:
        yield DeliveryRange(piece.first, piece.end - piece.first, UNTOUCHED)
        return
    until_ms = clock.now_ms() + hold.until_ms - group.now_ms()
    consumer_of_lease = group.consumers.get(hold.number, "") if hold.phase is Phase.LEASED else ""
    at = piece.first
    for offset in sorted(noted_offsets(line.notes, piece.first, piece.end)):
        if at < offset:
            yield DeliveryRange(at, offset - at, hold.phase, hold.attempt, until_ms, consumer_of_lease)
        consumer, error = line.notes[offset]
        yield DeliveryRange(offset, 1, hold.phase, hold.attempt, until_ms, consumer_of_lease or consumer, error)
        at = offset + 1
    if at < piece.end:
        yield DeliveryRange(at, piece.end - at, hold.phase, hold.attempt, until_ms, consumer_of_lease)
