"""Leases of messages: decided by pop lines, recorded in the log."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from ortoo.common.errors import Conflict, NotFound, OrtooError
from ortoo.common.groups.failure_rule import REASON_ATTEMPTS
from ortoo.common.groups.pop import (
    GiveBack,
    LeasePart,
    Popped,
    PoppedBatch,
    PopRules,
    PopWish,
    Stale,
    Verdict,
    merged,
    runs,
)
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.enode.changes.groups import Mode
from ortoo.enode.changes.pops import Delivered, PopFinished, PopLeased
from ortoo.enode.pops.attempts import Request
from ortoo.enode.pops.deliveries import Deliveries, deliveries
from ortoo.enode.pops.line import SCANNED_MAX
from ortoo.enode.pops.lines import GroupLine, GroupLines, Lines
from ortoo.enode.pops.parking import (
    PARK_LEASE_MS,
    REASON_EXPIRED,
    RETRY_DELAY_MS,
    DeadLetter,
    Parking,
)
from ortoo.enode.pops.reading import OpenedBatches, PopReading
from ortoo.enode.pops.settlement import Settling
from ortoo.enode.state.interval_map import IntervalMap
from ortoo.enode.state.tables.pops import FinishReason
from ortoo.enode.store.store import Store


class Leasing:
    """Pops, acknowledgements, nacks and renewals of one store. Belongs to its event loop."""

    def __init__(self, store: Store, clock: Clock, background: Background, first_number: int = 0) -> None:
        """Serve the messages of `store`; parking runs in `background`. Lease numbers begin at `first_number`."""
        self._store = store
        self._clock = clock
        self._background = background
        self.opened = OpenedBatches(store)
        """Cache of recently read batches, shared with other readers of single messages."""
        self._reading = PopReading(store, self.opened, clock)
        self.parking = Parking(store, self._reading, clock, background)
        self._settling = Settling(store, self.parking, clock)
        self.lines = Lines(store, clock, first_number)
        """The pop lines and waiting pops of all groups."""
        self.expired_totals: Counter[tuple[int, str]] = Counter()
        """(topic id, group) to the number of messages that expired before the group got them."""

    async def pop(self, wish: PopWish) -> Popped:
        """Lease messages to a consumer, waiting up to `wish.wait_ms` for the first.

        Messages not acknowledged within `wish.invisible_ms` are delivered again. The lease is written to the log, but
        the answer does not wait for the flush; a crash may lose it. A pop with `call_off` cancels another pop: it
        releases the messages of that pop and returns none.

        Errors: NotFound, Conflict (another delivery mode, or this pop was cancelled), Overloaded, Unavailable.
        """
        group = self.lines.of(wish.topic_id, wish.group)
        request = (wish.attempt_id, wish.request_id)
        if wish.call_off:
            await self._call_off(group, request)
            return Popped()
        await self._store.modes.use(wish.topic_id, wish.group, Mode.POP_IN_ORDER if wish.rules.in_order else Mode.POP)
        if group.attempts.is_called_off(request):
            raise _called_off()
        if wish.attempt_id and (again := await self._again(group, wish)).batches:
            return again
        deadline_s = self._clock.monotonic_s() + wish.wait_ms / 1000
        while True:
            popped = await self._pop_now(group, wish)
            if popped.batches or popped.wants_dead_letter_topic or self._clock.monotonic_s() >= deadline_s:
                return popped
            await group.wait(deadline_s, wish.attempt_id)
            if self.lines.is_closed:
                return popped
            if group.attempts.is_called_off(request):
                group.wake()  # pass the wake-up on to the next waiting pop
                raise _called_off()

    async def peek(self, wish: PopWish) -> Popped:
        """The next messages of a group, including those leased; without a group the oldest ones. Changes nothing.

        Errors: NotFound, DataLoss.
        """
        popped = Popped()
        room, skip, left_bytes = wish.messages_max, wish.skip, wish.bytes_max
        for queue_id in wish.queue_ids:
            stored = self._store.queue_range(wish.topic_id, queue_id)
            known = self.lines.of(wish.topic_id, wish.group).intervals(queue_id) if wish.group else None
            intervals = IntervalMap(stored.begin_offset) if known is None else known
            at = max(intervals.floor, stored.begin_offset)
            for piece in list(intervals.unfinished(at, min(stored.end_offset, at + SCANNED_MAX))):
                passed = min(skip, piece.end - piece.first)
                skip, popped.passed = skip - passed, popped.passed + passed
                count, first = min(room, piece.end - piece.first - passed), piece.first + passed
                attempt = piece.hold.attempt if piece.hold else 0
                async for batch in self._reading.look(wish.topic_id, queue_id, first, count, attempt):
                    if popped.batches and left_bytes < len(batch.batch.records):
                        popped.more = True
                        return popped
                    popped.batches.append(batch)
                    left_bytes -= len(batch.batch.records)
                room -= count
                if room <= 0:
                    return popped
        return popped

    def describe(self, topic_id: int, group_name: str, queue_id: int, first: int, end: int, limit: int) -> Deliveries:
        """The delivery state of messages in a group; `first` -1 = from the first unfinished one. Errors: NotFound."""
        return deliveries(self._store, self.lines.of(topic_id, group_name), queue_id, (first, end, limit), self._clock)

    async def settle(self, topic_id: int, group_name: str, parts: Iterable[LeasePart], verdict: Verdict) -> list[Stale]:
        """Apply a verdict to leased messages. Returns, when it is durable, those that the lease no longer holds.

        A renewal is written to the log, but not waited for. A request holds parts of many consumers: an invalid part
        gets an error of its own and does not fail the others.
        Errors: NotFound (topic), Overloaded, Unavailable (also for a park while there is no dead-letter topic).
        """
        group, topic = self.lines.of(topic_id, group_name), self._store.topic(topic_id)
        known, wrong = list[LeasePart](), list[Stale]()
        for part in parts:
            if topic is not None and part.queue_id < topic.queue_count and part.is_possible:
                known.append(part)
            else:
                error = NotFound("there is no such lease: no such queue, or no such messages", field="queue_id")
                wrong.append(Stale(part.queue_id, part.ranges[0][0] if part.ranges else 0, part.number, error))
        return wrong + (await self._settling.settle(group, known, verdict) if known else [])

    async def change_mode(self, topic_id: int, group_name: str, mode: Mode, *, force: bool) -> Mode:
        """Change how a group consumes a topic; returns the previous mode when the change is durable.

        Errors: NotFound, Overloaded, Unavailable, Conflict (consumers have messages or queues, and no `force`).
        """
        group = self.lines.of(topic_id, group_name)
        leased, locked = group.leased_count(), len(self._store.locks.of_group(topic_id, group_name))
        if (leased or locked) and mode is not self._store.modes.of(topic_id, group_name) and not force:
            raise Conflict(
                f"consumers of group {group_name} have {leased} messages and {locked} queues of "
                f"{self._store.topic_name(topic_id)}: stop them first, or use force to deliver these messages again",
                field="force",
            )
        before = await self._store.modes.set(topic_id, group_name, mode)
        group.forget()
        return before

    # popping

    async def _call_off(self, group: GroupLines, request: Request) -> None:
        parts = group.attempts.call_off(request, self._clock.monotonic_s())
        group.wake_attempt(request[0])
        try:
            await self._settling.settle(group, parts, GiveBack(counts=False))
        except BaseException:
            group.attempts.still_has(request, parts)
            raise

    async def _pop_now(self, group: GroupLines, wish: PopWish) -> Popped:
        popped, request = Popped(), (wish.attempt_id, wish.request_id)
        room, bytes_left = wish.messages_max, wish.bytes_max
        group.use(wish.rules)
        try:
            for queue_id in group.order(wish.queue_ids, wish.rules):
                if wish.rules.in_flight_max:
                    room = min(room, wish.rules.in_flight_max - group.leased_count())
                    if room <= 0:
                        popped.blocked = f"{group.leased_count()} messages are leased, which is the limit in_flight_max"
                        break
                line = await group.ready_line(queue_id, wish.rules)
                if not line.may_have(group.now_ms(), self._end(wish.topic_id, queue_id)):
                    continue
                batches = await self._pop_line(line, wish, room, bytes_left, popped)
                room -= sum(len(batch.offsets) for batch in batches)
                bytes_left -= sum(len(batch.batch.records) for batch in batches)
                if room <= 0 or bytes_left <= 0:
                    group.wake()  # there may be more for the next waiting pop
                    break
        except OrtooError:
            if not popped.batches:  # else the caller would get the error instead of the messages it has leased
                raise
        finally:
            # A pop cancelled at its second queue has messages of the first: a retry finds them by the attempt id.
            if popped.batches and wish.attempt_id:
                group.attempts.got(request, popped.batches)
                if group.attempts.is_called_off(request):  # cancelled while this pop was reading
                    self._background.contained("call off", self.pop(replace(wish, call_off=True)))
        if group.attempts.is_called_off(request):
            raise _called_off()
        group.blocked = popped.blocked
        if popped.batches:
            popped.blocked = ""
        return popped

    async def _again(self, group: GroupLines, wish: PopWish) -> Popped:
        """Messages that an earlier pop with this attempt id still holds, because its answer was lost.

        They get a new lease. A late release by the first answer's lease therefore does not affect them.
        """
        popped, leased = Popped(), list[tuple[int, int, list[Delivered]]]()

        def leased_anew(part: LeasePart) -> LeasePart:
            line, number = group.line(part.queue_id), self.lines.next_number()
            rows = line.lease_anew(part, number, group.now_ms(), wish.invisible_ms)
            leased.append((part.queue_id, number, rows))
            return replace(part, number=number)

        group.attempts.again((wish.attempt_id, wish.request_id), leased_anew)
        for queue_id, number, rows in leased:
            line = group.line(queue_id)
            batches = await self._reading.read(line, number, rows, wish.bytes_max, [])
            await self._note_lease(line, number, batches, wish)
            popped.batches += batches
        return popped

    async def _note_lease(self, line: GroupLine, number: int, batches: Iterable[PoppedBatch], wish: PopWish) -> None:
        if rows := tuple(_delivered(batches)):
            until_ms = self._clock.now_ms() + wish.invisible_ms
            await self._store.engine.note([PopLeased(*line.place, number, until_ms, wish.invisible_ms, rows)])
            line.group.leased_to(number, wish.consumer)

    async def _pop_line(
        self, line: GroupLine, wish: PopWish, room: int, bytes_left: int, popped: Popped
    ) -> list[PoppedBatch]:
        """Lease messages of one queue; continue behind messages that had to be left out."""
        while True:
            batches, is_short = await self._pop_queue(line, wish, room, bytes_left, popped)
            if batches or not is_short:
                return batches

    async def _pop_queue(
        self, line: GroupLine, wish: PopWish, room: int, bytes_left: int, popped: Popped
    ) -> tuple[list[PoppedBatch], bool]:
        """Lease messages of one queue, read them and log the lease; on failure they are released.

        The second result tells whether messages were left out because they expired or their bytes are lost.
        """
        lost_before = self._reading.lost_messages
        number = self.lines.next_number()
        expired: list[tuple[int, int]] = []
        leased: list[Delivered] = []
        exhausted: list[Delivered] = []
        given = False
        heads: list[int] | None = [] if wish.rules.order_batched and line.keys is not None else None
        try:
            while room > 0:
                end = self._end(wish.topic_id, line.queue_id)
                taken = line.take(
                    line.group.now_ms(), room, end, number=number, duration_ms=wish.invisible_ms,
                    attempts_max=wish.rules.attempts_max, heads=heads,
                )  # fmt: skip
                leased += taken.rows
                exhausted += taken.exhausted
                room -= taken.count
                if room > 0 and line.wants_keys(end):
                    opened = await self._reading.holding(line, line.cursor)
                    if opened is not None:
                        line.see_keys(opened.first_offset, opened.view.message_groups())
                elif not taken.count and not taken.exhausted:
                    popped.blocked = popped.blocked or taken.blocked
                    break
            batches = await self._reading.read(line, number, leased, bytes_left, expired)
            await self._note_lease(line, number, batches, wish)
            given = True
            popped.batches += batches
        finally:
            if not given:
                line.give_back([row[:2] for row in leased + exhausted], number, line.group.now_ms(), 0, counts=False)
                line.group.wake()
        if exhausted:
            popped.wants_dead_letter_topic |= self._park_exhausted(line, number, exhausted, wish.rules)
        if expired:
            popped.wants_dead_letter_topic |= await self._let_expire(line, number, expired, wish.rules)
        return batches, bool(expired) or self._reading.lost_messages > lost_before

    def _end(self, topic_id: int, queue_id: int) -> int:
        return self._store.queue_range(topic_id, queue_id).end_offset

    # parking

    def _park_exhausted(self, line: GroupLine, number: int, rows: Sequence[Delivered], rules: PopRules) -> bool:
        """Park messages whose attempts are used up; returns as `_park`."""
        unsaid = ("", "no answer within the invisible duration")
        letters = [
            DeadLetter(offset, attempt, REASON_ATTEMPTS, *line.notes.get(offset, unsaid))
            for first, count, attempt in rows
            for offset in range(first, first + count)
        ]
        return self._park(line, number, letters, rules)

    async def _let_expire(
        self, line: GroupLine, number: int, expired: Sequence[tuple[int, int]], rules: PopRules
    ) -> bool:
        """Park or drop expired messages (offset, attempt), by the group's rules; returns as `_park`."""
        if rules.park_expired:
            letters = [
                DeadLetter(offset, attempt - 1, REASON_EXPIRED, *line.notes.get(offset, ("", "")))
                for offset, attempt in expired
            ]
            if self._park(line, number, letters, rules, counts=False):
                return True
        self.expired_totals[line.group.topic_id, line.group.name] += len(expired)
        if not rules.park_expired:
            ranges = merged((offset, 1) for offset, _ in expired)
            line.drop(ranges)
            await self._store.engine.note([PopFinished(*line.place, FinishReason.EXPIRED, tuple(ranges))])
        return False

    def _park(
        self, line: GroupLine, number: int, letters: list[DeadLetter], rules: PopRules, *, counts: bool = True
    ) -> bool:
        """Park in the background. True when the dead-letter topic has to be created first: they are delivered again."""
        ranges, now_ms = merged((letter.offset, 1) for letter in letters), line.group.now_ms()
        if not rules.dead_letter_topic_id:
            line.give_back(ranges, number, now_ms, RETRY_DELAY_MS, counts=counts)
            return True
        line.renew(ranges, number, now_ms, PARK_LEASE_MS)
        self._background.contained("park", self.parking.park_or_return(line, number, letters, rules))
        return False


def _called_off() -> Conflict:
    return Conflict("this pop was cancelled by its client", field="attempt_id")


def _delivered(batches: Iterable[PoppedBatch]) -> list[Delivered]:
    rows: list[Delivered] = []
    for batch in batches:
        if batch.attempts.count(batch.attempts[0]) == len(batch.attempts):
            rows += [(first, count, batch.attempts[0]) for first, count in runs(batch.offsets)]
            continue
        for attempt, group in groupby(zip(batch.attempts, batch.offsets, strict=True), key=itemgetter(0)):
            rows += [(first, count, attempt) for first, count in runs([offset for _, offset in group])]
    return rows
