"""Delivery state of one queue in a popping group: leases, retries, and the next messages to deliver.

A line runs ahead of the folded `PopQueue` by the changes that are not yet durable. It uses monotonic milliseconds.
After a start a new line takes over the folded state, and each lease lasts for its remaining time.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ortoo.common.groups.failure_rule import FailureRule
from ortoo.common.groups.pop import LeasePart
from ortoo.enode.changes.pops import OPENING_SHIFT, Delivered
from ortoo.enode.pops.key_order import KeyOrder
from ortoo.enode.state.interval_map import DeliveryState, IntervalMap, Phase, Piece
from ortoo.enode.state.tables.pops import PopQueue, noted_offsets

OFFSET_MAX = (1 << 63) - 1
Ranges = Iterable[tuple[int, int]]
"""(first offset, count) of each range."""
UNFINISHED_MAX = 10_000
"""The number of messages of a queue that may be delivered and unfinished; at the limit no new one is delivered."""
SCANNED_MAX = 10_000
"""The number of messages that may be skipped because an earlier one of their message group is unfinished."""


@dataclass(slots=True)
class TakeResult:
    """The messages that one `take` leased."""

    rows: list[Delivered] = field(default_factory=list)
    """(first offset, count, attempt), in the order in which they were found."""
    exhausted: list[Delivered] = field(default_factory=list)
    """As rows, of messages whose attempts are used up: leased, to be parked."""
    blocked: str = ""
    """The limit that stopped delivery although the queue has more messages; empty if none did."""

    @property
    def count(self) -> int:
        """The number of messages to deliver."""
        return sum([count for _, count, _ in self.rows])


@dataclass(slots=True)
class SettleResult:
    """The messages of a request that its lease still held, and the other messages of the request."""

    rows: list[Delivered] = field(default_factory=list)
    """(first offset, count, attempt) of what changed."""
    stale: list[int] = field(default_factory=list)
    """Offsets that another lease holds now, or that were returned."""


class PopLine:
    """The messages of one queue on their way to one group. Times are monotonic milliseconds."""

    def __init__(
        self,
        queue: PopQueue,
        *,
        opening: int,
        now_ms: int,
        wall_ms: int,
        in_order: bool = False,
        first_number: int = 0,
        end_at_opening: int = OFFSET_MAX,
    ) -> None:
        """Continue from the folded `queue`. `in_order`: messages of a message group are delivered one by one.

        A lease that a crash lost from the log is accepted only if its number is `first_number` or higher. It holds only
        messages below `end_at_opening`, which were stored before this opening of the store.
        """
        self.intervals = IntervalMap(queue.intervals.floor)
        self.notes = dict(queue.notes)
        self.leased_count = 0
        self.keys = KeyOrder(self.intervals.floor) if in_order else None
        self._opening = opening
        self._first_number = first_number
        self._end_at_opening = end_at_opening
        self._ready: list[tuple[int, int]] = []
        self._due: list[tuple[int, int, int]] = []
        at = self._cursor = queue.intervals.floor
        for piece in queue.intervals.rows(at, len(queue.intervals)):
            self._mark_delivered(piece.first, piece.end)
            if piece.state is None:
                self.intervals.finish(piece.first, piece.end)
            else:
                left_ms = min(max(piece.state.until_ms - wall_ms, 0), piece.state.duration_ms)
                self._set_state(piece._replace(state=None), piece.state._replace(until_ms=now_ms + left_ms))

    @property
    def cursor(self) -> int:
        """The first offset that was not considered for delivery yet."""
        return self._cursor if self.keys is None else self.keys.scan

    def next_due_ms(self) -> int | None:
        """The time at which the next lease or back-off ends; None if there is none."""
        return self._due[0][0] if self._due else None

    def may_have_messages(self, now_ms: int, end_offset: int) -> bool:
        """Whether `take` may find messages. In rare cases this is true although `take` then finds none."""
        self._advance(now_ms)
        return bool(self._ready) or (self.cursor < end_offset and not self._limit_reason())

    def count_leased(self, now_ms: int) -> int:
        """The number of messages that are leased now."""
        self._advance(now_ms)
        return self.leased_count

    def blocked_reason(self, end_offset: int) -> str:
        """The limit for which `take` finds no new messages; empty if no limit stops it, or if there are none."""
        return self._limit_reason() if self.cursor < end_offset else ""

    def needs_message_groups(self, end_offset: int) -> bool:
        """Whether `take` may find more messages after a call of `add_message_groups`."""
        return self.keys is not None and self.keys.scan < end_offset and not self._limit_reason()

    def set_order(self, in_order: bool) -> None:
        """Turn ordered delivery within message groups on or off."""
        if in_order == (self.keys is not None):
            return
        self._ready.clear()
        self.keys = KeyOrder(self.intervals.floor) if in_order else None
        if not in_order:
            for piece in list(self.intervals.unfinished(self.intervals.floor, self._cursor)):
                if piece.state is None or piece.state.phase is Phase.EXPIRED:
                    self._make_ready(piece.first, piece.end)
                else:
                    heapq.heappush(self._due, (piece.state.until_ms, piece.first, piece.end))

    def add_message_groups(self, first_offset: int, message_groups: Sequence[str | None]) -> None:
        """Add the message groups of the messages from `first_offset` on; messages added before are skipped."""
        assert self.keys is not None
        for offset in self.keys.add(first_offset, message_groups, self.intervals):
            self._make_next_ready(offset)

    def take(
        self,
        now_ms: int,
        limit: int,
        end_offset: int,
        *,
        number: int,
        duration_ms: int,
        attempts_max: int = 0,
        heads: list[int] | None = None,
    ) -> TakeResult:
        """Lease up to `limit` messages by offset: first messages to deliver again, then new messages.

        With ordered delivery, `heads` collects the offsets that are leased under `number`. Later messages of the same
        message groups are leased too if only this lease blocks them.
        """
        self._advance(now_ms)
        result = TakeResult()
        rule = FailureRule(attempts_max)
        remaining = limit
        until_ms = now_ms + duration_ms
        while remaining and self._ready:
            first, end = heapq.heappop(self._ready)
            for piece in list(self._deliverable_pieces(first, end, now_ms)):
                if not remaining:
                    heapq.heappush(self._ready, piece[:2])
                    continue
                count = min(remaining, piece.end - piece.first)
                attempt = piece.state.attempt if piece.state is not None else 0
                if piece.first + count < piece.end:
                    heapq.heappush(self._ready, (piece.first + count, piece.end))
                if rule.is_last(attempt):
                    result.exhausted.append((piece.first, count, attempt))
                else:
                    attempt += 1
                    result.rows.append((piece.first, count, attempt))
                    if heads is not None:
                        heads.append(piece.first)
                part = Piece(piece.first, piece.first + count, piece.state)
                self._set_state(part, DeliveryState(Phase.LEASED, attempt, number, until_ms, duration_ms))
                remaining -= count
        if self.keys is not None and heads is not None:
            found = (one for head in heads for one in self._next_in_groups(self.keys, head, number, now_ms, rule))
            for piece, attempt in list(islice(found, remaining)):
                result.rows.append((piece.first, 1, attempt))
                self._set_state(piece, DeliveryState(Phase.LEASED, attempt, number, until_ms, duration_ms))
        if self.keys is None and remaining and self._cursor < end_offset:
            count = min(remaining, end_offset - self._cursor, UNFINISHED_MAX - self.intervals.delivered_count)
            if count > 0:
                first = self._cursor
                result.rows.append((first, count, 1))
                self._set_state(
                    Piece(first, first + count, None), DeliveryState(Phase.LEASED, 1, number, until_ms, duration_ms)
                )
        if not result.rows:
            result.blocked = self.blocked_reason(end_offset)
        return result

    def owned_attempts(self, ranges: Iterable[tuple[int, int]], number: int) -> SettleResult:
        """The messages of `ranges`, each (first offset, count), that lease `number` holds, with their attempts."""
        settled = SettleResult()
        for piece in self._owned_pieces(ranges, number, settled):
            settled.rows.append(_row(piece, number))
        return settled

    def expired_or_finished(self, ranges: Ranges, number: int, now_ms: int) -> set[int]:
        """Messages whose lease `number` expired and that no other lease holds, and finished messages."""
        found: set[int] = set()
        for first, count in ranges:
            at, end = first, first + count
            for piece in self.intervals.unfinished(first, end):
                found.update(range(at, piece.first))
                if piece.has_expired(number, now_ms):
                    found.update(range(piece.first, piece.end))
                at = piece.end
            found.update(range(at, end))
        return found

    def renew_lease_as(self, part: LeasePart, number: int, now_ms: int, duration_ms: int) -> list[Delivered]:
        """Move the messages that a part's lease still holds to lease `number`, for `duration_ms`, as the same attempt.

        With `any_lease`, these are all its unfinished messages. Returns the (first offset, count, attempt) of the moved
        messages; attempt 0 = never delivered.
        """
        self._advance(now_ms)
        rows: list[Delivered] = []
        for first, count in part.ranges:
            for piece in list(self.intervals.unfinished(first, first + count)):
                hold = piece.state
                is_held = hold is not None and hold.phase is Phase.LEASED and hold.number == part.number
                if is_held or part.any_lease:
                    attempt = hold.attempt if hold is not None else 0
                    rows.append((piece.first, piece.end - piece.first, attempt))
                    self._set_state(
                        piece, DeliveryState(Phase.LEASED, attempt, number, now_ms + duration_ms, duration_ms)
                    )
        return rows

    def finish(self, ranges: Ranges, number: int, now_ms: int | None = None) -> SettleResult:
        """Finish messages of lease `number`; messages finished before are skipped.

        With `now_ms`, messages whose lease has expired are stale.
        """
        settled = SettleResult()
        for one in ranges:
            for piece in self._owned_pieces((one,), number, settled, now_ms):
                settled.rows.append(_row(piece, number))
                if piece.state is not None and piece.state.phase is Phase.LEASED:
                    self.leased_count -= piece.end - piece.first
                self._finish(piece.first, piece.end)
        return settled

    def drop(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Finish messages, whichever lease holds them."""
        for first, count in ranges:
            end = first + count
            for piece in self.intervals.unfinished(first, end) if self.leased_count else ():
                if piece.state is not None and piece.state.phase is Phase.LEASED:
                    self.leased_count -= piece.end - piece.first
            self._finish(first, end)

    def _finish(self, first: int, end: int) -> None:
        """Finish messages that no longer count as leased."""
        self._mark_delivered(first, end)
        self.intervals.finish(first, end)
        self._cursor = max(self._cursor, self.intervals.floor)
        for offset in noted_offsets(self.notes, first, end) if self.notes else ():
            del self.notes[offset]
        if self.keys is not None:
            for offset in self.keys.finish(first, end, self.intervals):
                self._make_next_ready(offset)

    def renew(self, ranges: Iterable[tuple[int, int]], number: int, now_ms: int, duration_ms: int) -> SettleResult:
        """Extend lease `number` of these messages to `duration_ms` from now."""
        self._advance(now_ms)
        settled = SettleResult()
        for piece in self._owned_pieces(ranges, number, settled):
            row = _row(piece, number)
            settled.rows.append(row)
            self._set_state(piece, DeliveryState(Phase.LEASED, row[2], number, now_ms + duration_ms, duration_ms))
        return settled

    def redeliver(
        self, ranges: Iterable[tuple[int, int]], number: int, now_ms: int, delay_ms: int, *, counts: bool = True
    ) -> SettleResult:
        """Make messages of lease `number` deliverable again after `delay_ms`; `counts`: whether the attempt counts."""
        self._advance(now_ms)
        settled = SettleResult()
        for piece in self._owned_pieces(ranges, number, settled):
            first, count, attempt = _row(piece, number)
            attempt -= not counts
            settled.rows.append((first, count, attempt))
            self._set_state(piece, DeliveryState(Phase.RETURNED, attempt, number, now_ms + delay_ms, delay_ms))
        return settled

    def _owned_pieces(
        self, ranges: Ranges, number: int, settled: SettleResult, now_ms: int | None = None
    ) -> list[Piece]:
        owned = []
        for first, count in ranges:
            for piece in self.intervals.unfinished(first, first + count):
                is_expired = now_ms is not None and piece.has_expired(number, now_ms)
                if not is_expired and self._is_owned_by(piece, number):
                    owned.append(piece)
                else:
                    settled.stale.extend(range(piece.first, piece.end))
        return owned

    def _is_owned_by(self, piece: Piece, number: int) -> bool:
        """Whether lease `number` is the newest of these messages. A lease that a crash lost from the log counts, too.

        Invariant: the messages are older than such a lease. If the end of the log was lost, later messages get the
        offsets of lost ones, and an old lease must not finish them.
        """
        hold = piece.state
        if hold is not None and number == hold.number:
            return hold.phase is not Phase.RETURNED
        is_lost = self._first_number <= number and number >> OPENING_SHIFT < self._opening
        return is_lost and piece.end <= self._end_at_opening and (hold is None or number > hold.number)

    def _deliverable_pieces(self, first: int, end: int, now_ms: int) -> Iterable[Piece]:
        for piece in self.intervals.unfinished(first, end):
            hold = piece.state
            if hold is not None and (hold.phase is Phase.LEASED or hold.until_ms > now_ms):
                continue
            if self.keys is None:
                yield piece
            else:
                for offset in range(piece.first, piece.end):
                    if self.keys.is_free(offset):
                        yield Piece(offset, offset + 1, hold)

    def _next_in_groups(
        self, keys: KeyOrder, head: int, number: int, now_ms: int, rule: FailureRule
    ) -> Iterator[tuple[Piece, int]]:
        """Messages of the message group of `head` that only lease `number` blocks, each with its attempt."""
        for offset in keys.waiting_for(head):
            for piece in self.intervals.unfinished(offset, offset + 1):
                hold = piece.state
                if hold is None:
                    yield piece, 1
                elif hold.phase is not Phase.LEASED and hold.until_ms <= now_ms and not rule.is_last(hold.attempt):
                    yield piece, hold.attempt + 1
                elif hold.phase is not Phase.LEASED or hold.number != number:
                    return

    def _mark_delivered(self, first: int, end: int) -> None:
        """Move the cursor behind these offsets, whose delivery may not be in the log after a crash."""
        if end > self._cursor:
            if first > self._cursor:
                self._make_ready(self._cursor, first)
            self._cursor = end

    def _set_state(self, piece: Piece, hold: DeliveryState) -> None:
        self._mark_delivered(piece.first, piece.end)
        if piece.state is not None and piece.state.phase is Phase.LEASED:
            self.leased_count -= piece.end - piece.first
        if hold.phase is Phase.LEASED:
            self.leased_count += piece.end - piece.first
        self.intervals.set_state(piece.first, piece.end, hold)
        heapq.heappush(self._due, (hold.until_ms, piece.first, piece.end))

    def _advance(self, now_ms: int) -> None:
        """Expire leases, and make the messages of ended leases and back-offs deliverable."""
        due = self._due
        while due and due[0][0] <= now_ms:
            until_ms, first, end = heapq.heappop(due)
            for piece in list(self.intervals.unfinished(first, end)):
                hold = piece.state
                if hold is None or hold.until_ms != until_ms or hold.phase is Phase.EXPIRED:
                    continue
                if hold.phase is Phase.LEASED:
                    self.leased_count -= piece.end - piece.first
                    self.intervals.set_state(piece.first, piece.end, hold._replace(phase=Phase.EXPIRED))
                self._make_ready(piece.first, piece.end)

    def _make_ready(self, first: int, end: int) -> None:
        heapq.heappush(self._ready, (first, end))

    def _make_next_ready(self, offset: int) -> None:
        """Make the next message of a message group deliverable, or note the end of its lease or back-off."""
        for piece in self.intervals.unfinished(offset, offset + 1):
            hold = piece.state
            if hold is None or hold.phase is Phase.EXPIRED:
                self._make_ready(offset, offset + 1)
            else:
                heapq.heappush(self._due, (hold.until_ms, offset, offset + 1))

    def _limit_reason(self) -> str:
        """The limit that stops the delivery of new messages; empty if no limit does."""
        if self.intervals.delivered_count >= UNFINISHED_MAX:
            return f"{self.intervals.delivered_count} messages are delivered and not finished"
        if self.keys is not None and self.keys.blocked_count >= SCANNED_MAX:
            return f"{self.keys.blocked_count} messages wait for earlier ones of their message groups"
        return ""


def _row(piece: Piece, number: int) -> Delivered:
    """A piece as (first offset, count, attempt). A delivery whose lease a crash lost counts as an attempt."""
    hold = piece.state
    attempt = 1 if hold is None else hold.attempt + (number > hold.number)
    return piece.first, piece.end - piece.first, attempt
