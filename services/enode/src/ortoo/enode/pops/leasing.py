"""Leases of messages: decided by pop lines, recorded in the log."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from ortoo.common.errors import Conflict, NotFound, OrtooError
from ortoo.common.groups.failure_rule import REASON_ATTEMPTS
from ortoo.common.groups.pop import (
    LeasePart,
    LeaseVerdict,
    Popped,
    PoppedBatch,
    PopRequest,
    PopRules,
    Redeliver,
    StaleMessage,
    merge_ranges,
    ranges_of,
)
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.records.columns import MESSAGE_GROUP
from ortoo.enode.changes.groups import GroupMode
from ortoo.enode.changes.pops import Delivered, PopFinished, PopLeased
from ortoo.enode.pops.attempts import PopRequestKey
from ortoo.enode.pops.deliveries import QueueDeliveries, describe_deliveries
from ortoo.enode.pops.line import SCANNED_MAX
from ortoo.enode.pops.lines import GroupLine, GroupLines, MessageWaits, PopLines
from ortoo.enode.pops.parking import (
    PARK_LEASE_MS,
    REASON_EXPIRED,
    RETRY_DELAY_MS,
    ParkedMessage,
    Parker,
)
from ortoo.enode.pops.reading import BatchCache, PopReader
from ortoo.enode.pops.retry_copies import OrderedFailure
from ortoo.enode.pops.settlement import LeaseSettlement
from ortoo.enode.state.interval_map import IntervalMap
from ortoo.enode.state.tables.pops import FinishReason
from ortoo.enode.store.store import Store


class PopLeasing:
    """Pops, acknowledgements, nacks and renewals of one store. Belongs to its event loop."""

    def __init__(self, store: Store, clock: Clock, background: Background, first_number: int = 0) -> None:
        """Serve the messages of `store`; parking runs in `background`. Lease numbers begin at `first_number`."""
        self._store = store
        self._clock = clock
        self._background = background
        self.batches = BatchCache(store)
        """Cache of recently read batches, shared with other readers of single messages."""
        self._reading = PopReader(store, self.batches, clock)
        self.parking = Parker(store, self._reading, clock, background)
        self.lines = PopLines(store, clock, first_number)
        """The pop lines and waiting pops of all groups."""
        self._settling = LeaseSettlement(store, self.lines, self.parking, clock)
        self.waits = MessageWaits(store, self.lines, clock)
        self.expired_totals: Counter[tuple[int, str]] = Counter()
        """(topic id, group) to the number of messages that expired before the group got them."""

    async def pop(self, request: PopRequest) -> Popped:
        """Lease messages to a consumer, waiting up to `request.wait_ms` for the first.

        Messages not acknowledged within `request.invisible_ms` are delivered again. The lease is written to the log,
        but the answer does not wait for the flush. A crash may lose the lease. A pop with `request.cancel` cancels
        another pop: it releases the messages of that pop and returns no messages.

        Errors: NotFound, Conflict (another delivery mode, or this pop was cancelled), Overloaded, Unavailable.
        """
        group = self.lines.group(request.topic_id, request.group)
        request_key = (request.attempt_id, request.request_id)
        if request.cancel:
            await self._cancel(group, request_key)
            return Popped()
        await self._store.modes.use(
            request.topic_id, request.group, GroupMode.POP_IN_ORDER if request.rules.in_order else GroupMode.POP
        )
        if group.attempts.is_cancelled(request_key):
            raise _cancelled_error()
        if request.attempt_id and (again := await self._repeat_attempt(group, request)).batches:
            return again
        deadline_s = self._clock.monotonic_s() + request.wait_ms / 1000
        while True:
            popped = await self._pop_now(group, request)
            if popped.batches or popped.needs_dead_letter_topic or self._clock.monotonic_s() >= deadline_s:
                return popped
            await group.wait(deadline_s, request.attempt_id)
            if self.lines.is_closed:
                return popped
            if group.attempts.is_cancelled(request_key):
                group.wake_one()  # pass the wake-up on to the next waiting pop
                raise _cancelled_error()

    async def peek(self, request: PopRequest) -> Popped:
        """Read the next messages of a group, including leased ones; without a group, the oldest. Changes nothing.

        Errors: NotFound, DataLoss.
        """
        popped = Popped()
        remaining, skip, left_bytes = request.messages_max, request.skip, request.bytes_max
        for queue_id in request.queue_ids:
            stored = self._store.queue_range(request.topic_id, queue_id)
            stored_intervals = (
                self.lines.group(request.topic_id, request.group).intervals(queue_id) if request.group else None
            )
            intervals = IntervalMap(stored.begin_offset) if stored_intervals is None else stored_intervals
            at = max(intervals.floor, stored.begin_offset)
            for piece in list(intervals.unfinished(at, min(stored.end_offset, at + SCANNED_MAX))):
                passed = min(skip, piece.end - piece.first)
                skip, popped.skipped_messages = skip - passed, popped.skipped_messages + passed
                count, first = min(remaining, piece.end - piece.first - passed), piece.first + passed
                attempt = piece.state.attempt if piece.state else 0
                async for batch in self._reading.peek(request.topic_id, queue_id, first, count, attempt):
                    if popped.batches and left_bytes < len(batch.batch.records):
                        popped.more = True
                        return popped
                    popped.batches.append(batch)
                    left_bytes -= len(batch.batch.records)
                remaining -= count
                if remaining <= 0:
                    return popped
        return popped

    def describe(
        self,
        topic_id: int,
        group_name: str,
        queue_id: int,
        first: int,
        end: int,
        limit: int,
        failure: OrderedFailure | None = None,
    ) -> QueueDeliveries:
        """The delivery state of messages in a group; `first` -1 = the first unfinished offset. Errors: NotFound.

        `failure` is the message that the queue waits for, in a group that commits offsets.
        """
        group = self.lines.group(topic_id, group_name)
        return describe_deliveries(self._store, group, queue_id, (first, end, limit), failure, self._clock)

    async def settle(
        self, topic_id: int, group_name: str, parts: Iterable[LeasePart], verdict: LeaseVerdict
    ) -> list[StaleMessage]:
        """Apply a verdict to leased messages. When it is durable, return the messages that the lease no longer holds.

        A renewal is written to the log, but the answer does not wait for its flush. A request has parts of many
        consumers. An invalid part gets an error of its own and does not fail the other parts.
        Errors: NotFound (topic), Overloaded, Unavailable (also for a park while there is no dead-letter topic).
        """
        group, topic = self.lines.group(topic_id, group_name), self._store.topic(topic_id)
        valid, invalid = list[LeasePart](), list[StaleMessage]()
        for part in parts:
            if topic is not None and part.queue_id < topic.queue_count and part.is_valid:
                valid.append(part)
            else:
                error = NotFound("there is no such lease: no such queue, or no such messages", field="queue_id")
                invalid.append(StaleMessage(part.queue_id, part.ranges[0][0] if part.ranges else 0, part.number, error))
        return invalid + (await self._settling.settle(group, valid, verdict) if valid else [])

    async def change_mode(self, topic_id: int, group_name: str, mode: GroupMode, *, force: bool) -> GroupMode:
        """Change how a group consumes a topic; returns the previous mode when the change is durable.

        Errors: NotFound, Overloaded, Unavailable, Conflict (consumers have messages or queues, and no `force`).
        """
        group = self.lines.group(topic_id, group_name)
        leased, locked = group.leased_count(), len(self._store.locks.of_group(topic_id, group_name))
        if (leased or locked) and mode is not self._store.modes.of(topic_id, group_name) and not force:
            raise Conflict(
                f"consumers of group {group_name} have {leased} messages and {locked} queues of "
                f"{self._store.topic_name(topic_id)}: stop them first, or use force to deliver these messages again",
                field="force",
            )
        before = await self._store.modes.set(topic_id, group_name, mode)
        group.reset()
        return before

    # popping

    async def _cancel(self, group: GroupLines, request: PopRequestKey) -> None:
        parts = group.attempts.cancel(request, self._clock.monotonic_s())
        group.wake_attempt(request[0])
        try:
            await self._settling.settle(group, parts, Redeliver(counts=False))
        except BaseException:
            group.attempts.restore(request, parts)
            raise

    async def _pop_now(self, group: GroupLines, request: PopRequest) -> Popped:
        popped, request_key = Popped(), (request.attempt_id, request.request_id)
        remaining, bytes_left = request.messages_max, request.bytes_max
        group.apply_rules(request.rules)
        try:
            for queue_id in group.queue_order(request.queue_ids, request.rules):
                if blocked := group.in_flight_reason(request.rules):
                    popped.blocked_reason = blocked
                    break
                if request.rules.in_flight_max:
                    remaining = min(remaining, request.rules.in_flight_max - group.leased_count())
                line = await group.open_line(queue_id, request.rules)
                if not group.may_have_messages(line):
                    popped.blocked_reason = popped.blocked_reason or group.blocked_reason(line)
                    continue
                batches = await self._pop_line(line, request, remaining, bytes_left, popped)
                remaining -= sum(len(batch.offsets) for batch in batches)
                bytes_left -= sum(len(batch.batch.records) for batch in batches)
                if remaining <= 0 or bytes_left <= 0:
                    group.wake_one()  # there may be more for the next waiting pop
                    break
        except OrtooError:
            if not popped.batches:  # else the caller would get the error instead of the messages it has leased
                raise
        finally:
            # A pop cancelled at its second queue has messages of the first: a retry finds them by the attempt id.
            if popped.batches and request.attempt_id:
                group.attempts.record(request_key, popped.batches)
                if group.attempts.is_cancelled(request_key):  # cancelled while this pop was reading
                    self._background.run_contained("call off", self.pop(replace(request, cancel=True)))
        if group.attempts.is_cancelled(request_key):
            raise _cancelled_error()
        group.blocked = popped.blocked_reason
        if popped.batches:
            popped.blocked_reason = ""
        return popped

    async def _repeat_attempt(self, group: GroupLines, request: PopRequest) -> Popped:
        """Lease the messages that earlier pops with this attempt id still hold, because the answer was lost.

        The messages get a new lease. A late release of the first lease therefore does not affect them.
        """
        popped, leases = Popped(), list[tuple[int, int, list[Delivered]]]()

        def lease_again(part: LeasePart) -> LeasePart:
            line, number = group.get_line(part.queue_id), self.lines.next_number()
            rows = line.renew_lease_as(part, number, group.now_ms(), request.invisible_ms)
            leases.append((part.queue_id, number, rows))
            return replace(part, number=number)

        group.attempts.take_over((request.attempt_id, request.request_id), lease_again)
        for queue_id, number, rows in leases:
            line = group.get_line(queue_id)
            batches = await self._reading.read(line, number, rows, request.bytes_max, [])
            await self._write_lease(line, number, batches, request)
            popped.batches += batches
        return popped

    async def _write_lease(
        self, line: GroupLine, number: int, batches: Sequence[PoppedBatch], request: PopRequest
    ) -> None:
        if rows := tuple(_delivered_rows(batches)):
            until_ms = self._clock.now_ms() + request.invisible_ms
            await self._store.engine.store_without_waiting(
                [PopLeased(*line.place, number, until_ms, request.invisible_ms, rows)]
            )
            line.group.record_lease(number, request.consumer)

    async def _pop_line(
        self, line: GroupLine, request: PopRequest, remaining: int, bytes_left: int, popped: Popped
    ) -> list[PoppedBatch]:
        """Lease messages of one queue. If all were expired or lost, continue behind them."""
        while True:
            batches, is_short = await self._pop_queue(line, request, remaining, bytes_left, popped)
            if batches or not is_short:
                return batches

    async def _pop_queue(
        self, line: GroupLine, request: PopRequest, remaining: int, bytes_left: int, popped: Popped
    ) -> tuple[list[PoppedBatch], bool]:
        """Lease messages of one queue, read them and log the lease; on failure they are released.

        The second result is true if messages were left out because they expired or their bytes are lost.
        """
        lost_before = self._reading.lost_messages
        number = self.lines.next_number()
        expired: list[tuple[int, int]] = []
        leased: list[Delivered] = []
        exhausted: list[Delivered] = []
        is_leased = False
        heads: list[int] | None = [] if request.rules.order_batched and line.keys is not None else None
        try:
            while remaining > 0:
                end = self._end_offset(request.topic_id, line.queue_id)
                taken = line.take(
                    line.group.now_ms(), remaining, end, number=number, duration_ms=request.invisible_ms,
                    attempts_max=request.rules.attempts_max, heads=heads,
                )  # fmt: skip
                leased += taken.rows
                exhausted += taken.exhausted
                remaining -= taken.count
                if remaining > 0 and line.needs_message_groups(end):
                    opened = await self._reading.batch_at(line, line.cursor, line.cursor + remaining)
                    if opened is not None:
                        line.add_message_groups(opened.first_offset, opened.view.values(MESSAGE_GROUP))
                elif not taken.count and not taken.exhausted:
                    popped.blocked_reason = popped.blocked_reason or taken.blocked
                    break
            batches = await self._reading.read(line, number, leased, bytes_left, expired)
            await self._write_lease(line, number, batches, request)
            is_leased = True
            popped.batches += batches
        finally:
            if not is_leased:
                line.redeliver([row[:2] for row in leased + exhausted], number, line.group.now_ms(), 0, counts=False)
                line.group.wake_one()
        if exhausted:
            popped.needs_dead_letter_topic |= self._park_exhausted(line, number, exhausted, request.rules)
        if expired:
            popped.needs_dead_letter_topic |= await self._expire(line, number, expired, request.rules)
        return batches, bool(expired) or self._reading.lost_messages > lost_before

    def _end_offset(self, topic_id: int, queue_id: int) -> int:
        return self._store.queue_range(topic_id, queue_id).end_offset

    # parking

    def _park_exhausted(self, line: GroupLine, number: int, rows: Sequence[Delivered], rules: PopRules) -> bool:
        """Park messages whose attempts are used up; returns the result of `_park`."""
        default_note = ("", "no answer within the invisible duration")
        letters = [
            ParkedMessage(offset, attempt, REASON_ATTEMPTS, *line.notes.get(offset, default_note))
            for first, count, attempt in rows
            for offset in range(first, first + count)
        ]
        return self._park(line, number, letters, rules)

    async def _expire(self, line: GroupLine, number: int, expired: Sequence[tuple[int, int]], rules: PopRules) -> bool:
        """Park or drop expired messages (offset, attempt), by the group's rules; returns true if `_park` does."""
        if rules.park_expired:
            letters = [
                ParkedMessage(offset, attempt - 1, REASON_EXPIRED, *line.notes.get(offset, ("", "")))
                for offset, attempt in expired
            ]
            if self._park(line, number, letters, rules, counts=False):
                return True
        self.expired_totals[line.group.topic_id, line.group.name] += len(expired)
        if not rules.park_expired:
            ranges = merge_ranges((offset, 1) for offset, _ in expired)
            line.drop(ranges)
            await self._store.engine.store_without_waiting(
                [PopFinished(*line.place, FinishReason.EXPIRED, tuple(ranges))]
            )
        return False

    def _park(
        self, line: GroupLine, number: int, letters: list[ParkedMessage], rules: PopRules, *, counts: bool = True
    ) -> bool:
        """Park in the background. Returns true if there is no dead-letter topic: the messages are delivered again."""
        ranges, now_ms = merge_ranges((letter.offset, 1) for letter in letters), line.group.now_ms()
        if not rules.dead_letter_topic_id:
            line.redeliver(ranges, number, now_ms, RETRY_DELAY_MS, counts=counts)
            return True
        line.renew(ranges, number, now_ms, PARK_LEASE_MS)
        self._background.run_contained("park", self.parking.park_or_return(line, number, letters, rules))
        return False


def _cancelled_error() -> Conflict:
    return Conflict("this pop was cancelled by its client", field="attempt_id")


def _delivered_rows(batches: Sequence[PoppedBatch]) -> list[Delivered]:
    """The messages as rows. Consecutive offsets with the same attempt are one row, also across batches."""
    offsets = [offset for one in batches for offset in one.offsets]
    attempts = [attempt for one in batches for attempt in one.attempts]
    if attempts and attempts.count(attempts[0]) == len(attempts):
        return [(first, count, attempts[0]) for first, count in ranges_of(offsets)]
    rows: list[Delivered] = []
    for attempt, group in groupby(zip(attempts, offsets, strict=True), key=itemgetter(0)):
        rows += [(first, count, attempt) for first, count in ranges_of([offset for _, offset in group])]
    return rows
