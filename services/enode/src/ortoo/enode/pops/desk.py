"""The desk where messages are handed out and taken back: decisions of pop lines, written into the log."""

from collections.abc import Iterable, Sequence

from ortoo.common.background import Background
from ortoo.common.clock import Clock
from ortoo.common.errors import OrtooError
from ortoo.enode.pops.answers import GiveBack, LeasePart, Popped, PoppedBatch, PopRules, PopWish, Stale, merged
from ortoo.enode.pops.lines import GroupLines, Lines
from ortoo.enode.pops.parking import REASON_ATTEMPTS, RETRY_DELAY_MS, Parking, Verdict
from ortoo.enode.pops.reading import PopReading
from ortoo.enode.state.changes import Change
from ortoo.enode.state.pop_changes import PopFinished, PopLeased, PopNote, PopReturned
from ortoo.enode.state.pop_line import PopLine
from ortoo.enode.state.pops import FinishReason
from ortoo.enode.store import Store

PARK_LEASE_MS = 30_000
NOTE_LENGTH_MAX = 1_024

Rows = Sequence[tuple[int, int, int]]


class PopDesk:
    """Pops, acknowledgements, returns and renewals of one store. Belongs to its event loop."""

    def __init__(self, store: Store, clock: Clock, background: Background) -> None:
        """Serve what `store` holds; parking goes on in `background`."""
        self._store = store
        self._clock = clock
        self._background = background
        self._reading = PopReading(store)
        self._parking = Parking(store, self._reading, clock)
        self._lines = Lines(store, clock)
        self.popped_messages = 0

    async def close(self) -> None:
        """Let everybody who waits go."""
        await self._lines.close()

    async def pop(self, wish: PopWish) -> Popped:
        """Hand out messages, waiting up to `wish.wait_ms` for the first.

        They come again unless they are acknowledged within `wish.invisible_ms`. A lease is written down, but not waited
        for; a crash may take it. Errors: NotFound, Overloaded, Unavailable.
        """
        group = self._lines.of(wish.topic_id, wish.group)
        deadline_s = self._clock.monotonic_s() + wish.wait_ms / 1000
        while True:
            popped = await self._pop_now(group, wish)
            if popped.batches or popped.wants_dead_letter_topic or self._clock.monotonic_s() >= deadline_s:
                return popped
            group.plan(is_waiting=True)
            await group.room.wait(deadline_s)
            if self._lines.is_closed:
                return popped

    async def acknowledge(
        self,
        topic_id: int,
        group_name: str,
        parts: Iterable[LeasePart],
        reason: FinishReason = FinishReason.ACKNOWLEDGED,
    ) -> list[Stale]:
        """Messages are done. Returns, when that is durable, those that another consumer has now or that were returned.

        Errors: NotFound, Overloaded, Unavailable.
        """
        group = self._lines.of(topic_id, group_name)
        changes: list[Change] = []
        stale: list[Stale] = []
        for part in parts:
            settled = group.line(part.queue_id).finish(part.ranges, part.number)
            stale += _stale(part, settled.stale)
            if settled.rows:
                ranges = tuple(merged(row[:2] for row in settled.rows))
                changes.append(PopFinished(topic_id, group_name, part.queue_id, int(reason), ranges))
        await self._write(group, changes)
        if group.in_order or group.was_blocked:
            group.room.wake()
        return stale

    async def give_back(
        self, topic_id: int, group_name: str, parts: Iterable[LeasePart], how: GiveBack, rules: PopRules
    ) -> list[Stale]:
        """Messages shall be delivered again; those that had all their attempts are parked. Returns when durable.

        Errors: NotFound, Overloaded, Unavailable.
        """
        group = self._lines.of(topic_id, group_name)
        changes: list[Change] = []
        stale: list[Stale] = []
        parking = []
        for part in parts:
            line = group.line(part.queue_id)
            owned = line.attempts(part.ranges, part.number)
            stale += _stale(part, owned.stale)
            exhausted = [row for row in owned.rows if how.counts and 0 < rules.attempts_max <= row[2]]
            if exhausted:
                line.renew([row[:2] for row in exhausted], part.number, group.now_ms(), PARK_LEASE_MS)
                parking.append((part, line, exhausted))
            for row in owned.rows:
                if row not in exhausted:
                    delay_ms = how.delays_ms[min(row[2], len(how.delays_ms)) - 1]
                    changes += self._returned(group, part, line, [row], delay_ms, how)
        await self._write(group, changes)
        for part, line, rows in parking:
            verdicts = [
                Verdict(offset, attempt, REASON_ATTEMPTS, how.consumer, how.error)
                for first, count, attempt in rows
                for offset in range(first, first + count)
            ]
            await self._parking.park_or_return(group, part.queue_id, line, part.number, verdicts, rules)
        group.room.wake()
        group.plan()
        return stale

    async def park(
        self, topic_id: int, group_name: str, parts: Iterable[LeasePart], how: GiveBack, rules: PopRules, reason: str
    ) -> list[Stale]:
        """Messages go to the dead-letter topic now. Errors: as `give_back`, and Unavailable without that topic."""
        group = self._lines.of(topic_id, group_name)
        stale: list[Stale] = []
        for part in parts:
            line = group.line(part.queue_id)
            owned = line.renew(part.ranges, part.number, group.now_ms(), PARK_LEASE_MS)
            stale += _stale(part, owned.stale)
            verdicts = [
                Verdict(offset, attempt, reason, how.consumer, how.error)
                for first, count, attempt in owned.rows
                for offset in range(first, first + count)
            ]
            await self._parking.park(group, part.queue_id, line, verdicts, rules)
        return stale

    async def renew(self, topic_id: int, group_name: str, parts: Iterable[LeasePart], invisible_ms: int) -> list[Stale]:
        """Messages stay with their consumer for `invisible_ms` from now on. Errors: as `acknowledge`."""
        group = self._lines.of(topic_id, group_name)
        changes: list[Change] = []
        stale: list[Stale] = []
        for part in parts:
            settled = group.line(part.queue_id).renew(part.ranges, part.number, group.now_ms(), invisible_ms)
            stale += _stale(part, settled.stale)
            if settled.rows:
                changes.append(
                    PopLeased(
                        topic_id,
                        group_name,
                        part.queue_id,
                        part.number,
                        self._clock.now_ms() + invisible_ms,
                        invisible_ms,
                        tuple(settled.rows),
                    )
                )
        await self._store.engine.note(changes)
        group.plan()
        return stale

    # popping

    async def _pop_now(self, group: GroupLines, wish: PopWish) -> Popped:
        popped = Popped()
        room, bytes_left = wish.messages_max, wish.bytes_max
        group.use(wish.rules)
        for queue_id in group.order(wish.queue_ids, wish.rules):
            if wish.rules.in_flight_max:
                room = min(room, wish.rules.in_flight_max - group.leased_count())
                if room <= 0:
                    popped.blocked = f"{group.leased_count()} messages are leased; in_flight_max allows no more"
                    break
            line = await group.ready_line(queue_id, wish.rules)
            if not line.may_have(group.now_ms(), self._end(wish.topic_id, queue_id)):
                continue
            batches = await self._pop_queue(group, queue_id, line, wish, room, bytes_left, popped)
            popped.batches += batches
            room -= sum(len(batch.offsets) for batch in batches)
            bytes_left -= sum(len(batch.batch.records) for batch in batches)
            if room <= 0 or bytes_left <= 0:
                group.room.wake()  # there may be more for the next one
                break
        group.was_blocked = bool(popped.blocked)
        if popped.batches:
            popped.blocked = ""
            self.popped_messages += sum(len(batch.offsets) for batch in popped.batches)
        return popped

    async def _pop_queue(
        self, group: GroupLines, queue_id: int, line: PopLine, wish: PopWish, room: int, bytes_left: int, popped: Popped
    ) -> list[PoppedBatch]:
        """Lease messages of one queue, read them and write the lease down; what cannot be given is put back."""
        number = self._lines.next_number()
        leased: list[tuple[int, int, int]] = []
        exhausted: list[tuple[int, int, int]] = []
        given = False
        try:
            while room > 0:
                end = self._end(wish.topic_id, queue_id)
                taken = line.take(
                    group.now_ms(), room, end, number=number, duration_ms=wish.invisible_ms,
                    attempts_max=wish.rules.attempts_max,
                )  # fmt: skip
                leased += taken.rows
                exhausted += taken.exhausted
                room -= taken.count
                if room > 0 and line.wants_keys(end):
                    opened = await self._reading.holding(group, queue_id, line, line.cursor)
                    if opened is not None:
                        line.see_keys(opened.first_offset, opened.view.message_groups())
                elif not taken.count and not taken.exhausted:
                    popped.blocked = popped.blocked or taken.blocked
                    break
            batches = await self._reading.read(group, queue_id, line, number, leased, bytes_left)
            rows = _rows_of(batches)
            if rows:
                until_ms = self._clock.now_ms() + wish.invisible_ms
                await self._store.engine.note(
                    [PopLeased(wish.topic_id, wish.group, queue_id, number, until_ms, wish.invisible_ms, tuple(rows))]
                )
            given = True
        finally:
            if not given:
                line.give_back([row[:2] for row in leased + exhausted], number, group.now_ms(), 0, counts=False)
                group.room.wake()
        if exhausted:
            popped.wants_dead_letter_topic |= self._park_exhausted(group, queue_id, line, number, exhausted, wish.rules)
        return batches

    def _end(self, topic_id: int, queue_id: int) -> int:
        return self._store.queue_range(topic_id, queue_id).end_offset

    # parking

    def _park_exhausted(
        self, group: GroupLines, queue_id: int, line: PopLine, number: int, rows: Rows, rules: PopRules
    ) -> bool:
        """Park beside the pop; True when the dead-letter topic has to be created first."""
        if not rules.dead_letter_topic_id:
            line.give_back([row[:2] for row in rows], number, group.now_ms(), RETRY_DELAY_MS)
            return True
        line.renew([row[:2] for row in rows], number, group.now_ms(), PARK_LEASE_MS)
        verdicts = []
        for first, count, attempt in rows:
            for offset in range(first, first + count):
                consumer, error = line.notes.get(offset, ("", "no answer within the invisible duration"))
                verdicts.append(Verdict(offset, attempt, REASON_ATTEMPTS, consumer, error))
        self._background.spawn("park", self._parking.park_or_return(group, queue_id, line, number, verdicts, rules))
        return False

    # writing

    def _returned(
        self, group: GroupLines, part: LeasePart, line: PopLine, rows: Rows, delay_ms: int, how: GiveBack
    ) -> list[Change]:
        settled = line.give_back(
            [row[:2] for row in rows], part.number, group.now_ms(), delay_ms, counts=how.counts
        )  # fmt: skip
        until_ms = self._clock.now_ms() + delay_ms
        changes: list[Change] = [
            PopReturned(group.topic_id, group.name, part.queue_id, part.number, until_ms, delay_ms, tuple(settled.rows))
        ]
        if how.error or (how.consumer and how.counts):
            consumer, error = how.consumer[:NOTE_LENGTH_MAX], how.error[:NOTE_LENGTH_MAX]
            for first, count, _ in settled.rows:
                for offset in range(first, first + count):
                    line.notes[offset] = (consumer, error)
                    changes.append(PopNote(group.topic_id, group.name, part.queue_id, offset, consumer, error))
        return changes

    async def _write(self, group: GroupLines, changes: list[Change]) -> None:
        """Return when `changes` are durable. When they are refused, the lines forget that they ever were."""
        if not changes:
            return
        try:
            await self._store.engine.store(changes)
        except OrtooError:
            group.forget()
            raise


def _stale(part: LeasePart, offsets: Iterable[int]) -> list[Stale]:
    return [Stale(part.queue_id, offset) for offset in offsets] if part.is_exact else []


def _rows_of(batches: Iterable[PoppedBatch]) -> list[tuple[int, int, int]]:
    rows: list[tuple[int, int, int]] = []
    for batch in batches:
        for offset, attempt in zip(batch.offsets, batch.attempts, strict=True):
            if rows and rows[-1][0] + rows[-1][1] == offset and rows[-1][2] == attempt:
                rows[-1] = (rows[-1][0], rows[-1][1] + 1, attempt)
            else:
                rows.append((offset, 1, attempt))
    return rows
