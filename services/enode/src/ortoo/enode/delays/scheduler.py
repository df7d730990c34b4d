"""Delayed messages: stored aside, read into memory before they are due, then appended to their queues.

A delivery and the end of its timer are one frame of the log. So a crash can neither lose a message nor deliver it
twice. Times are those of the wall clock. When the clock is set forward, messages that became due are delivered at once.
When the clock is set back, messages that are no longer due wait.
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
from ortoo.enode.changes.kinds import StateChange
from ortoo.enode.changes.timers import TimerEnd, TimersDone, TimersSet
from ortoo.enode.delays.reading import read_delayed
from ortoo.enode.delays.staging import DueMessages, Staging, StagingBuffer, split_by_destination
from ortoo.enode.log.results import AppendResult
from ortoo.enode.log.settings import FlushMode
from ortoo.enode.state.tables.timers import NEAR_MS
from ortoo.enode.state.timer_bucket import Int64s, TimerArray, TimerStatus, times_and_ids
from ortoo.enode.store.batch_write import BatchWrite, ChangesAt, Deferral
from ortoo.enode.store.store import Store

DAY_MS = 86_400_000
DELAY_MAX_MS = 366 * DAY_MS
"""The longest delay of a message."""
TIMERS_MAX = 10_000_000
"""The number of delayed messages that an enode keeps."""
PREFETCH_MS = 15_000
"""The time before its due time at which a message is read into memory, if there is room."""
PREFETCH_MIN_MS = 6_000
"""With less than this read ahead, the next messages are read; if they lie in many batches, that takes seconds."""
PREFETCH_FIRST_MS = 2_000
"""The first read after a start covers this much time, so that it is quick; the next ones cover more."""
READ_AT_ONCE_MS = 3_000
"""A new message that is due within this time is read at once."""
STAGED_MAX = 98_304
STAGED_BYTES_MAX = 32 << 20
TAKE_MAX = 4_096
IN_FLIGHT_MAX = 16_384
"""The number of messages whose appends to their queues may be in progress."""
TICK_S = 0.01
"""Due messages are gathered for this time, so that they share frames."""
IDLE_S = 60.0
"""The longest sleep while no message is delayed; the first delayed message ends it."""
POLL_S = 0.1
"""How often the wall clock is read while a message is due soon."""
RETRY_DELAY_S = 0.2
PREFETCH_PAUSE_S = 0.002
"""Reading ahead pauses this long between batches, so that messages that are due now do not wait for it."""
URGENT_MS = 500
STAGE_INTERVAL_S = 0.1
"""Messages due within `URGENT_MS` are staged during a long read, at this interval."""
_PATH = "batch.records.deliver_at_ms"
_log = get_logger("delays")


class DelayScheduler:
    """The delayed messages of one enode."""

    def __init__(self, store: Store, background: Background, *, clock: Clock, delay_max_ms: int = DELAY_MAX_MS) -> None:
        """Deliver into `store`; the caller must spawn `run`. Longer delays than `delay_max_ms` are refused."""
        self.delay_max_ms = delay_max_ms
        self._store = store
        self._timers = store.timers
        self._timers.reset_statuses()  # a replica that becomes leader again still has the holds of its last term
        store.engine.committer.on_timers_set = self._on_timers_set
        self._background = background
        self._clock = clock
        self._staging = Staging()
        self._id_prefix = message_id_text(DELAYED_TOPIC_ID, store.enode, 0, 0)[:-1]
        self._in_flight = 0
        self._nap: asyncio.Task[None] | None = None
        self._nap_until_ms = 0
        self._is_idle = True
        """Whether no message was delayed when the current sleep began."""
        self._needs_retry = False
        self._prefetched_until_ms = 0
        """All messages known at the last read that are due before this were taken."""
        self._is_prefetching = self._is_reading_new = False
        self._next_poll_s = 0.0

    async def append(
        self,
        topic_id: int,
        queue_id: int,
        batch: SealedBatch,
        flush_mode: FlushMode = FlushMode.DEFAULT,
        consumes_at: ChangesAt | None = None,
    ) -> AppendResult:
        """Store a batch whose messages all have a delivery time. The result has the first timer id as its offset.

        `consumes_at` makes the state changes to store in the same frame, from the first timer id and the store time.
        Errors: those of `Store.append`; Invalid (batch.records.deliver_at_ms) for a time that is too far in the future.
        """
        deferral = self.make_write(topic_id, queue_id, batch, consumes_at).deferral
        assert deferral is not None
        first_ms, last_ms = deferral.min_deliver_at_ms, deferral.max_deliver_at_ms
        if first_ms < 0 or last_ms > self._clock.now_ms() + self.delay_max_ms:
            raise Invalid(
                f"{last_ms if first_ms >= 0 else first_ms} is no time within the next {self.delay_max_ms / DAY_MS:g} "
                f"days ({self.delay_max_ms} ms); give milliseconds since 1970-01-01 UTC",
                field=_PATH,
            )
        return await self._store.append(topic_id, queue_id, batch, flush_mode=flush_mode, deferral=deferral)

    def make_write(
        self, topic_id: int, queue_id: int, batch: SealedBatch, consumes_at: ChangesAt | None = None
    ) -> BatchWrite:
        """The write that stores a batch whose messages all have a delivery time. Errors: Overloaded."""
        times = read_deliver_at_column(batch)
        column = np.frombuffer(times, "<i8")
        first_ms, last_ms = int(column.min()), int(column.max())
        if self._timers.live_count + batch.count > TIMERS_MAX:
            raise Overloaded(
                f"{self._timers.live_count} messages are delayed on this enode; at most {TIMERS_MAX} are allowed",
                retry_after_ms=1_000,
            )

        def changes(first_place: int, stored_at_ms: int) -> tuple[StateChange, ...]:
            set_timers = TimersSet(
                topic_id, queue_id, first_place, batch.producer_id, batch.first_sequence, stored_at_ms,
                batch.records_crc32c, times,
            )  # fmt: skip
            return (set_timers, *(consumes_at(first_place, stored_at_ms) if consumes_at is not None else ()))

        return BatchWrite(topic_id, queue_id, batch, deferral=Deferral(DELAYED_TOPIC_ID, changes, first_ms, last_ms))

    def _on_timers_set(self, timers: TimersSet) -> None:
        """Handle stored timers: end the sleep if a new timer is due soon, or if no other timer exists."""
        first_ms = int(np.frombuffer(timers.deliver_at_ms, "<i8").min())
        if self._is_idle or first_ms < self._clock.now_ms() + READ_AT_ONCE_MS:
            self._next_poll_s = 0.0
            self._wake(0 if self._is_idle else first_ms - READ_AT_ONCE_MS)

    async def recall(self, topic_id: int, timer_id: int, deliver_at_ms: int) -> None:
        """Cancel a delayed message; after this returns it is never delivered.

        Errors: NotFound (delivered or recalled before, or never stored), Conflict (being delivered), Unavailable.
        """
        times, ids = np.array([deliver_at_ms], "<i8"), np.array([timer_id], "<i8")
        self._timers.advance(self._clock.now_ms())
        # A handle of another topic must not reveal anything about the message, not even that it is being delivered.
        status = (
            int(self._timers.statuses(times, ids)[0])
            if self._timers.belongs_to_topic(topic_id, deliver_at_ms, timer_id)
            else -1
        )
        if status == TimerStatus.FIRING:
            raise Conflict("the message is being delivered right now", field="recall_handle")
        if status in (TimerStatus.MOVING, TimerStatus.MISSED, TimerStatus.RECALLING):
            raise Unavailable(
                "the message is being moved in the log, or recalled, right now; retry", retry_after_ms=100
            )
        if status not in (TimerStatus.FREE, TimerStatus.STAGED, TimerStatus.UNREADABLE):
            raise NotFound("no such delayed message: it was delivered or recalled", field="recall_handle")
        self._timers.set_status(times, ids, TimerStatus.RECALLING)

        async def forget() -> None:
            try:
                await self._store.change(TimersDone(TimerEnd.RECALLED, times.tobytes(), ids.tobytes()))
            except OrtooError:
                is_missed = self._timers.statuses(times, ids)[0] == TimerStatus.MISSED
                self._timers.set_status(times, ids, TimerStatus.FREE if is_missed else TimerStatus(status))
                raise

        await self._background.run_shielded("recall", forget())

    async def run(self) -> None:
        """Deliver due messages for ever. A defect must not end the loop or the process, or messages would wait."""
        while True:
            now_ms = self._clock.now_ms()
            self._timers.advance(now_ms)
            try:
                self._prefetch(now_ms)
                self._deliver(self._clock.now_ms())
            except Exception:
                _log.emit(log_events.DELAYED_DELIVERY_DEFECT, exc_info=True)
                self._needs_retry = True
            await self._wait_for_next()

    async def _wait_for_next(self) -> None:
        """Sleep until a message is due, the clock has to be read, or an earlier message arrives."""
        if self._needs_retry:
            self._needs_retry = False
            await self._clock.sleep(RETRY_DELAY_S)
            return
        now_ms = self._clock.now_ms()
        self._is_idle = not self._timers.live_count
        limit_s = IDLE_S if self._is_idle else POLL_S
        next_ms = self._staging.next_ms
        next_s = (next_ms - now_ms) / 1000 if next_ms is not None else limit_s
        wait_s = min(max(next_s, TICK_S), limit_s)
        self._nap_until_ms = now_ms + int(wait_s * 1000)
        self._nap = self._background.run_contained("nap", self._clock.sleep(wait_s))
        await asyncio.wait([self._nap])
        self._nap = None

    def _wake(self, due_ms: int) -> None:
        if self._nap is not None and due_ms < self._nap_until_ms:
            self._nap.cancel()

    # bringing messages into memory

    def _prefetch(self, now_ms: int) -> None:
        """Start reads, so that messages are in memory when they are due. Messages that are due now are not delayed.

        Reading one message of a batch costs about as much as reading all, so batches are read seldom and far ahead.
        Between these reads, short reads find new messages that are due within `READ_AT_ONCE_MS`.
        """
        staging = self._staging
        has_room = staging.count <= STAGED_MAX // 2 and staging.bytes <= STAGED_BYTES_MAX // 2
        prefetched_ms = max(0, self._prefetched_until_ms - now_ms)
        if has_room and not self._is_prefetching and prefetched_ms < PREFETCH_MIN_MS:
            until_ms, room = (
                now_ms + min(PREFETCH_MS, PREFETCH_FIRST_MS + 3 * prefetched_ms),
                STAGED_MAX - staging.count,
            )
            rows = self._timers.take(until_ms, room)
            if len(rows) == room:
                until_ms = int(rows["deliver_at_ms"].max()) // NEAR_MS * NEAR_MS
            self._prefetched_until_ms = until_ms
            self._is_prefetching = bool(len(rows))
            if len(rows):
                self._background.run_contained("delayed messages", self._stage(rows, is_ahead=True))
        if self._is_reading_new or self._clock.monotonic_s() < self._next_poll_s:
            return
        self._next_poll_s = self._clock.monotonic_s() + POLL_S
        if has_room:
            rows = self._timers.take(now_ms + READ_AT_ONCE_MS, TAKE_MAX)
        elif staging.next_ms is None or staging.next_ms > now_ms:
            rows = self._timers.take(now_ms, TAKE_MAX)
        else:
            return
        self._is_reading_new = bool(len(rows))
        if len(rows):
            self._background.run_contained("delayed messages", self._stage(rows, is_ahead=False))

    async def _stage(self, rows: TimerArray, *, is_ahead: bool) -> None:
        """Read messages into memory; failed reads are retried."""
        try:
            await self._read(rows[np.argsort(rows["place"], kind="stable")], PREFETCH_PAUSE_S if is_ahead else 0.0)
        except OrtooError as error:
            _log.emit(log_events.DELAYED_READ_FAILED_RETRYING, reason=str(error))
            self._needs_retry = True
        except Exception:
            _log.emit(log_events.DELAYED_READ_DEFECT, exc_info=True)
            self._needs_retry = True
        finally:
            if is_ahead:
                self._is_prefetching = False
            else:
                self._is_reading_new = False
            if self._needs_retry:
                self._prefetched_until_ms = 0
            self._wake(0)

    async def _read(self, rows: TimerArray, pause_s: float) -> None:
        """Read the messages of `rows` into memory up to the memory limit. The other timers of `rows` become free again.

        Errors: Unavailable when the disk cannot be read now, or retention moved the messages meanwhile.
        """
        done, places, buffer = 0, rows["place"].tolist(), StagingBuffer()
        staged_s = self._clock.monotonic_s()
        try:
            found = read_delayed(self._store, places, clock=self._clock, pause_s=pause_s)
            async for start, end, opened, chosen in found:
                if opened is None and self._have_moved(rows[start:end]):
                    raise Unavailable("the delayed messages were just moved, and their old segment was deleted")
                done = end
                if opened is None:
                    self._timers.unstage(*times_and_ids(rows[start:end]), TimerStatus.UNREADABLE)
                    continue
                for due in split_by_destination(rows[start:end], opened, chosen):
                    buffer.add(due)
                if self._staging.bytes + buffer.bytes > STAGED_BYTES_MAX:
                    break
                if buffer.first_ms <= self._clock.now_ms() + URGENT_MS:
                    now_s = self._clock.monotonic_s()
                    if now_s >= staged_s + STAGE_INTERVAL_S:
                        staged_s = now_s
                        buffer.move_to(self._staging)
                        self._wake(0)
        finally:
            self._timers.unstage(*times_and_ids(rows[done:]))
            buffer.move_to(self._staging)

    def _have_moved(self, rows: TimerArray) -> bool:
        """Whether any of these messages was moved since `rows` was read."""
        places = self._timers.places(*times_and_ids(rows))
        return bool(((places >= 0) & (places != rows["place"])).any())

    # delivering

    def _deliver(self, now_ms: int) -> None:
        """Start appends of due messages, `IN_FLIGHT_MAX` messages at most. A tick appends one frame to a queue."""
        while (room := IN_FLIGHT_MAX - self._in_flight) > 0:
            found = self._staging.take(now_ms, room)
            if not found:
                break
            for staged_ones in found:
                statuses = self._timers.statuses(staged_ones.deliver_at_ms, staged_ones.timer_ids)
                due = staged_ones.select(np.flatnonzero(statuses == TimerStatus.STAGED).astype("<i4"))
                if len(due) < len(staged_ones):  # moved or recalled just now; staged again if that fails
                    self._timers.unstage(staged_ones.deliver_at_ms, staged_ones.timer_ids)
                if len(due):
                    self._timers.set_status(due.deliver_at_ms, due.timer_ids, TimerStatus.FIRING)
                    self._in_flight += len(due)
                    self._background.run_contained("delayed messages", self._deliver_to_queue(due))

    async def _deliver_to_queue(self, due: DueMessages) -> None:
        """Append due messages to one queue. Failed messages leave memory, and are read again for the retry."""
        sent = 0
        try:
            for batch, times, ids in due.batches(self._id_prefix):
                if not await self._append(due.destination, batch, times, ids):
                    break
                sent += batch.count
        finally:
            self._in_flight -= len(due)
            if sent < len(due):
                self._timers.set_status(due.deliver_at_ms[sent:], due.timer_ids[sent:], TimerStatus.FREE)

    async def _append(self, number: int, batch: SealedBatch, times: Int64s, ids: Int64s) -> bool:
        destination = self._timers.destination_of(number)
        try:
            if destination is None:
                _log.emit(log_events.DELAYED_MESSAGES_DROPPED, messages=batch.count)
                await self._store.change(TimersDone(TimerEnd.LOST, times.tobytes(), ids.tobytes()))
                return True
            if (topic := self._store.topic(destination[0])) is None:
                raise Unavailable("this enode lacks the topic of delayed messages, and no deletion of it is known")
            done = TimersDone(TimerEnd.DELIVERED, times.tobytes(), ids.tobytes())
            await self._store.append(topic.topic_id, destination[1] % topic.queue_count, batch, consumes=(done,))
        except OrtooError as error:
            _log.emit(log_events.DELAYED_DELIVERY_FAILED_RETRYING, messages=batch.count, reason=str(error))
            self._needs_retry = True
            return False
        return True


def read_deliver_at_column(batch: SealedBatch) -> bytes:
    """The delivery times, one int64 a message. Errors: Invalid if the batch has no such column."""
    fields = read_fields(memoryview(batch.records), "batch.records")
    column = record_reader.buffer(fields, NUMBERS["deliver_at_ms"], _PATH)
    record_reader.check_size(column, batch.count, 8, _PATH)
    return bytes(column)
