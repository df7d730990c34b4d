"""Delayed messages: stored aside, brought into memory before their time, and appended to their queue when it comes.

A delivery and the end of its timer are one frame of the log, so a crash can neither lose a message nor deliver it
twice. Times are those of the wall clock: when it is set forward, what has become due is delivered at once; when it is
set back, what is not due yet waits.
"""

import asyncio

import numpy as np

from ortoo.common.errors import Conflict, Invalid, NotFound, OrtooError, Overloaded, Unavailable
from ortoo.common.groups.system_topics import DELAYED_TOPIC_ID
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.records import reader as record_reader
from ortoo.common.records.columns import NUMBERS
from ortoo.common.records.message_id import message_id_text
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.wire import read_fields
from ortoo.enode import log_events
from ortoo.enode.changes.all import Change
from ortoo.enode.changes.timers import TimerEnd, TimersDone, TimersSet
from ortoo.enode.deferred.staging import Due, Staging, StagingBuffer, by_destination
from ortoo.enode.deferred.waiting_messages import read_waiting
from ortoo.enode.log.answers import Appended
from ortoo.enode.state.tables.timers import NEAR_MS
from ortoo.enode.state.timer_bucket import Hold, Int64s, TimerArray, times_and_ids
from ortoo.enode.store.deferral import ChangesAt, Deferral, Write
from ortoo.enode.store.store import FlushMode, Store

DAY_MS = 86_400_000
DELAY_MAX_MS = 366 * DAY_MS
"""How far ahead a message may be delayed at most."""
TIMERS_MAX = 10_000_000
"""How many delayed messages an enode keeps."""
AHEAD_MS = 15_000
"""How long before their time messages are brought into memory, when there is room."""
AHEAD_MIN_MS = 6_000
"""When so little is left of that, the next ones are read: that takes seconds when they lie in many batches."""
AHEAD_FIRST_MS = 2_000
"""After a start little is read at first, so that it is soon there; then more and more."""
NEW_MS = 3_000
"""What comes in with less time than that left is read at once."""
STAGED_MAX = 98_304
STAGED_BYTES_MAX = 32 << 20
TAKEN_AT_ONCE = 4_096
UNDER_WAY_MAX = 16_384
"""How many messages may be on their way to their queues."""
TICK_S = 0.01
"""Due messages are gathered for so long, so that they share frames."""
IDLE_S = 60.0
"""How long nothing is looked at while nothing is delayed; the first message wakes whoever sleeps."""
LOOK_S = 0.1
"""How often the wall clock is looked at while a message is due soon."""
TROUBLE_S = 0.2
PAUSE_S = 0.002
"""Reading ahead takes its time, so that what is due now does not wait for it."""
URGENT_MS = 500
HANDED_OVER_S = 0.1
"""What is due so soon does not wait until all is read, but for so long at most."""
_PATH = "batch.records.deliver_at_ms"
_log = get_logger("delays")


class Delays:
    """The delayed messages of one enode."""

    def __init__(self, store: Store, background: Background, *, clock: Clock, delay_max_ms: int = DELAY_MAX_MS) -> None:
        """Deliver into `store`; `run` is to be spawned. No producer delays for longer than `delay_max_ms`."""
        self.delay_max_ms = delay_max_ms
        self._store = store
        self._timers = store.timers
        self._timers.free()  # a member that leads once more has the holds of its last reign there
        store.engine.committer.on_timers_set = self._stored
        self._background = background
        self._clock = clock
        self._staging = Staging()
        self._id_prefix = message_id_text(DELAYED_TOPIC_ID, store.enode, 0, 0)[:-1]
        self._under_way = 0
        self._nap: asyncio.Task[None] | None = None
        self._nap_until_ms = 0
        self._is_idle = True
        """Whether nothing was delayed when this began to nap."""
        self._in_trouble = False
        self._read_until_ms = 0
        """Everything due before this was taken, as far as it was known then."""
        self._is_reading_ahead = self._is_reading_new = False
        self._look_again_s = 0.0

    async def append(
        self,
        topic_id: int,
        queue_id: int,
        batch: SealedBatch,
        flush_mode: FlushMode = FlushMode.DEFAULT,
        consumes_at: ChangesAt | None = None,
    ) -> Appended:
        """Store a batch whose messages all have a time; the answer's offset is the first one's timer id.

        `consumes_at` is as in `Store.append`, from that id.
        Errors: as `Store.append`; Invalid (field batch.records.deliver_at_ms) for a time that is too far away.
        """
        deferral = self.write(topic_id, queue_id, batch, consumes_at).deferral
        assert deferral is not None
        first_ms, last_ms = deferral.min_deliver_at_ms, deferral.max_deliver_at_ms
        if first_ms < 0 or last_ms > self._clock.now_ms() + self.delay_max_ms:
            raise Invalid(
                f"{last_ms if first_ms >= 0 else first_ms} is no time within the next {self.delay_max_ms / DAY_MS:g} "
                f"days ({self.delay_max_ms} ms); give milliseconds since 1970-01-01 UTC",
                field=_PATH,
            )
        return await self._store.append(topic_id, queue_id, batch, flush_mode=flush_mode, deferral=deferral)

    def write(self, topic_id: int, queue_id: int, batch: SealedBatch, consumes_at: ChangesAt | None = None) -> Write:
        """How a batch is stored whose messages all have a time, whoever chose it. Errors: Overloaded, as `append`."""
        times = deliver_at_column(batch)
        column = np.frombuffer(times, "<i8")
        first_ms, last_ms = int(column.min()), int(column.max())
        if self._timers.live + batch.count > TIMERS_MAX:
            raise Overloaded(f"{self._timers.live} messages are delayed on this enode already", retry_after_ms=1_000)

        def changes(first_place: int, stored_at_ms: int) -> tuple[Change, ...]:
            set_timers = TimersSet(
                topic_id, queue_id, first_place, batch.producer_id, batch.first_sequence, stored_at_ms,
                batch.records_crc32c, times,
            )  # fmt: skip
            return (set_timers, *(consumes_at(first_place, stored_at_ms) if consumes_at is not None else ()))

        return Write(topic_id, queue_id, batch, deferral=Deferral(DELAYED_TOPIC_ID, changes, first_ms, last_ms))

    def _stored(self, timers: TimersSet) -> None:
        """They are stored, whoever waits for that: what is due soon is read at once, the first of all is looked at."""
        first_ms = int(np.frombuffer(timers.deliver_at_ms, "<i8").min())
        if self._is_idle or first_ms < self._clock.now_ms() + NEW_MS:
            self._look_again_s = 0.0
            self._wake(0 if self._is_idle else first_ms - NEW_MS)

    async def recall(self, topic_id: int, timer_id: int, deliver_at_ms: int) -> None:
        """Forget a delayed message; when this returns it will never be delivered.

        Errors: NotFound when it was delivered or recalled before, or never was; Conflict while it is being delivered.
        """
        times, ids = np.array([deliver_at_ms], "<i8"), np.array([timer_id], "<i8")
        self._timers.advance(self._clock.now_ms())
        # A handle of another topic says nothing of what waits there, not even whether it is being delivered.
        before = (
            int(self._timers.holds(times, ids)[0]) if self._timers.leads_to(topic_id, deliver_at_ms, timer_id) else -1
        )
        if before == Hold.FIRING:
            raise Conflict("the message is being delivered right now", field="recall_handle")
        if before in (Hold.MOVING, Hold.MISSED, Hold.RECALLING):
            raise Unavailable(
                "the message is being stored elsewhere, or recalled, right now; retry", retry_after_ms=100
            )
        if before not in (Hold.FREE, Hold.STAGED, Hold.UNREADABLE):
            raise NotFound("no such message waits: it was delivered or recalled", field="recall_handle")
        self._timers.hold(times, ids, Hold.RECALLING)

        async def forget() -> None:
            try:
                await self._store.change(TimersDone(TimerEnd.RECALLED, times.tobytes(), ids.tobytes()))
            except OrtooError:
                is_missed = self._timers.holds(times, ids)[0] == Hold.MISSED
                self._timers.hold(times, ids, Hold.FREE if is_missed else Hold(before))
                raise

        await self._background.kept("recall", forget())

    async def run(self) -> None:
        """Deliver what is due, for ever; a process that did so no more would keep messages without a word."""
        while True:
            now_ms = self._clock.now_ms()
            self._timers.advance(now_ms)
            try:
                self._look_ahead(now_ms)
                self._deliver(self._clock.now_ms())
            except Exception:
                _log.emit(log_events.DELAYED_DELIVERY_DEFECT, exc_info=True)
                self._in_trouble = True
            await self._pause()

    async def _pause(self) -> None:
        """Sleep until something is due, the clock is to be looked at, or an earlier message comes."""
        if self._in_trouble:
            self._in_trouble = False
            await self._clock.sleep(TROUBLE_S)
            return
        now_ms = self._clock.now_ms()
        self._is_idle = not self._timers.live
        limit_s = IDLE_S if self._is_idle else LOOK_S
        next_ms = self._staging.next_ms
        next_s = (next_ms - now_ms) / 1000 if next_ms is not None else limit_s
        wait_s = min(max(next_s, TICK_S), limit_s)
        self._nap_until_ms = now_ms + int(wait_s * 1000)
        self._nap = self._background.contained("nap", self._clock.sleep(wait_s))
        await asyncio.wait([self._nap])
        self._nap = None

    def _wake(self, due_ms: int) -> None:
        if self._nap is not None and due_ms < self._nap_until_ms:
            self._nap.cancel()

    # bringing messages into memory

    def _look_ahead(self, now_ms: int) -> None:
        """See to it that messages are in memory when they are due, without holding up those that are due now.

        Reading a batch costs about the same for one of its messages as for all, so it is done seldom and far ahead. In
        between, a look at the next moments finds what is new there.
        """
        staging = self._staging
        has_room = staging.count <= STAGED_MAX // 2 and staging.bytes <= STAGED_BYTES_MAX // 2
        lead_ms = max(0, self._read_until_ms - now_ms)
        if has_room and not self._is_reading_ahead and lead_ms < AHEAD_MIN_MS:
            until_ms, room = now_ms + min(AHEAD_MS, AHEAD_FIRST_MS + 3 * lead_ms), STAGED_MAX - staging.count
            rows = self._timers.take(until_ms, room)
            if len(rows) == room:
                until_ms = int(rows["deliver_at_ms"].max()) // NEAR_MS * NEAR_MS
            self._read_until_ms = until_ms
            self._is_reading_ahead = bool(len(rows))
            if len(rows):
                self._background.contained("delayed messages", self._bring_in(rows, is_ahead=True))
        if self._is_reading_new or self._clock.monotonic_s() < self._look_again_s:
            return
        self._look_again_s = self._clock.monotonic_s() + LOOK_S
        if has_room:
            rows = self._timers.take(now_ms + NEW_MS, TAKEN_AT_ONCE)
        elif staging.next_ms is None or staging.next_ms > now_ms:
            rows = self._timers.take(now_ms, TAKEN_AT_ONCE)
        else:
            return
        self._is_reading_new = bool(len(rows))
        if len(rows):
            self._background.contained("delayed messages", self._bring_in(rows, is_ahead=False))

    async def _bring_in(self, rows: TimerArray, *, is_ahead: bool) -> None:
        """Read messages into memory; what cannot be read now is tried again."""
        try:
            await self._read(rows[np.argsort(rows["place"], kind="stable")], PAUSE_S if is_ahead else 0.0)
        except OrtooError as error:
            _log.emit(log_events.DELAYED_READ_FAILED_RETRYING, reason=str(error))
            self._in_trouble = True
        except Exception:
            _log.emit(log_events.DELAYED_READ_DEFECT, exc_info=True)
            self._in_trouble = True
        finally:
            if is_ahead:
                self._is_reading_ahead = False
            else:
                self._is_reading_new = False
            if self._in_trouble:
                self._read_until_ms = 0
            self._wake(0)

    async def _read(self, rows: TimerArray, pause_s: float) -> None:
        """Bring messages in, as far as there is room for their bytes; the others stay free.

        Errors: Unavailable when the disk cannot be read now, or retention moved them meanwhile.
        """
        done, places, buffer = 0, rows["place"].tolist(), StagingBuffer()
        handed_over_s = self._clock.monotonic_s()
        try:
            found = read_waiting(self._store, places, clock=self._clock, pause_s=pause_s)
            async for start, end, opened, chosen in found:
                if opened is None and self._are_moved(rows[start:end]):
                    raise Unavailable("they were just stored elsewhere, and their segment is gone")
                done = end
                if opened is None:
                    self._timers.unstage(*times_and_ids(rows[start:end]), Hold.UNREADABLE)
                    continue
                for due in by_destination(rows[start:end], opened, chosen):
                    buffer.add(due)
                if self._staging.bytes + buffer.bytes > STAGED_BYTES_MAX:
                    break
                if buffer.first_ms <= self._clock.now_ms() + URGENT_MS:
                    now_s = self._clock.monotonic_s()
                    if now_s >= handed_over_s + HANDED_OVER_S:
                        handed_over_s = now_s
                        buffer.hand_over(self._staging)
                        self._wake(0)
        finally:
            self._timers.unstage(*times_and_ids(rows[done:]))
            buffer.hand_over(self._staging)

    def _are_moved(self, rows: TimerArray) -> bool:
        """Whether any of these messages lies elsewhere since somebody looked."""
        places = self._timers.places(*times_and_ids(rows))
        return bool(((places >= 0) & (places != rows["place"])).any())

    # delivering

    def _deliver(self, now_ms: int) -> None:
        """Send everything on its way that is due, as far as there is room: for each queue one frame a tick."""
        while (room := UNDER_WAY_MAX - self._under_way) > 0:
            found = self._staging.take(now_ms, room)
            if not found:
                break
            for staged_ones in found:
                holds = self._timers.holds(staged_ones.deliver_at_ms, staged_ones.timer_ids)
                due = staged_ones.chosen(np.flatnonzero(holds == Hold.STAGED).astype("<i4"))
                if len(due) < len(staged_ones):  # they are staged again if whoever moves or recalls them leaves them
                    self._timers.unstage(staged_ones.deliver_at_ms, staged_ones.timer_ids)
                if len(due):
                    self._timers.hold(due.deliver_at_ms, due.timer_ids, Hold.FIRING)
                    self._under_way += len(due)
                    self._background.contained("delayed messages", self._deliver_to(due))

    async def _deliver_to(self, due: Due) -> None:
        """Append due messages to one queue; what cannot be is tried again, from the disk, for memory may be short."""
        sent = 0
        try:
            for batch, times, ids in due.batches(self._id_prefix):
                if not await self._append(due.destination, batch, times, ids):
                    break
                sent += batch.count
        finally:
            self._under_way -= len(due)
            if sent < len(due):
                self._timers.hold(due.deliver_at_ms[sent:], due.timer_ids[sent:], Hold.FREE)

    async def _append(self, number: int, batch: SealedBatch, times: Int64s, ids: Int64s) -> bool:
        destination = self._timers.destination_of(number)
        try:
            if destination is None:
                _log.emit(log_events.DELAYED_MESSAGES_DROPPED, messages=batch.count)
                await self._store.change(TimersDone(TimerEnd.LOST, times.tobytes(), ids.tobytes()))
                return True
            if (topic := self._store.topic(destination[0])) is None:
                raise Unavailable("their topic is not here, and nothing says yet that it is deleted")
            done = TimersDone(TimerEnd.DELIVERED, times.tobytes(), ids.tobytes())
            await self._store.append(topic.topic_id, destination[1] % topic.queue_count, batch, consumes=(done,))
        except OrtooError as error:
            _log.emit(log_events.DELAYED_DELIVERY_FAILED_RETRYING, messages=batch.count, reason=str(error))
            self._in_trouble = True
            return False
        return True


def deliver_at_column(batch: SealedBatch) -> bytes:
    """When each message is due, int64 each. Errors: Invalid when the batch has no such column."""
    fields = read_fields(memoryview(batch.records), "batch.records")
    column = record_reader.buffer(fields, NUMBERS["deliver_at_ms"], _PATH)
    record_reader.check_size(column, batch.count, 8, _PATH)
    return bytes(column)
