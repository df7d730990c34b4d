"""The store: one log, and the queues, offsets and topics that are folded from it."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from sys import maxsize

from ortoo.common.errors import Invalid, NotFound, OutOfRange, Unavailable
from ortoo.common.records.sealed_batch import SealedBatch, StoredBatch, crc32c
from ortoo.enode.changes.kinds import StateChange, TopicDeleted, WindowBatch, encode_changes
from ortoo.enode.index.catalog import QueueLog
from ortoo.enode.index.key_index import KIND_KEY, KIND_MESSAGE_ID
from ortoo.enode.index.key_search import FoundMessage, KeyQuery, LogStretch
from ortoo.enode.log.frame import FrameHeader, FrameKind, frame_bytes
from ortoo.enode.log.results import (
    AppendResult,
    FetchResult,
    QueueRange,
    QueueSize,
    StoreDescription,
    TopicCopy,
)
from ortoo.enode.log.settings import FlushMode
from ortoo.enode.reading.reader import OnBatch
from ortoo.enode.state.tables.dedup import Duplicate
from ortoo.enode.state.tables.halves import HalfMessageTable
from ortoo.enode.state.tables.schedules import ScheduleTable
from ortoo.enode.state.tables.timers import TimerTable
from ortoo.enode.state.tables.topics import topic_change
from ortoo.enode.store.batch_write import BatchWrite, ChangesAt, Deferral
from ortoo.enode.store.delivery_modes import GroupDeliveryModes
from ortoo.enode.store.engine import Engine
from ortoo.enode.store.group_offsets import GroupOffsets, QueueTrims, SinkAccounts
from ortoo.enode.store.queue_locks import DurableQueueLocks
from ortoo.enode.store.stats import describe_store

FETCH_BYTES = 1 << 20
FIND_LIMIT = 32
FIND_LIMIT_MAX = 1000


class Store:
    """One open store. All methods belong to the event loop that opened it; none blocks it."""

    def __init__(self, engine: Engine) -> None:
        """Wrap an open `engine`."""
        self.engine = engine
        """The parts of the store, for code that decides over its state."""
        for heard in (engine.committer.on_stored, engine.committer.on_applied):
            heard.clear()  # of a replica's previous term of leadership, which is no longer served
        self.locks = DurableQueueLocks(engine, engine.clock)
        """The locks of queues."""
        self.offsets = GroupOffsets(engine, self.locks, self._topic)
        """The committed offsets of groups."""
        self.sinks = SinkAccounts(engine, self.offsets)
        """The accounts of exactly-once sinks."""
        self.modes = GroupDeliveryModes(engine)
        """The delivery modes of groups."""
        self.trims = QueueTrims(engine, self.locks, self._topic)
        """Trims of queues by operators."""
        self._settings = engine.settings
        self._clock = engine.clock
        self._loop = asyncio.get_running_loop()
        self._catalog = engine.catalog
        self._state = engine.state
        self._appender = engine.appender
        self._sequencer = engine.committer.sequencer
        self._reader = engine.reader
        self._deleting_topic_ids: set[int] = set()
        self._fetches = 0

    async def append(
        self,
        topic_id: int,
        queue_id: int,
        batch: SealedBatch,
        *,
        flush_mode: FlushMode = FlushMode.DEFAULT,
        consumes: tuple[StateChange, ...] = (),
        deferral: Deferral | None = None,
        consumes_at: ChangesAt | None = None,
    ) -> AppendResult:
        """Store one batch; the caller has run `batch.check()`. Returns at the time that `flush_mode` selects.

        `consumes` are state changes in the same frame, so both are stored or neither. `consumes_at` is a
        function that computes such changes from the first message's offset and the time of storing. With a `deferral`
        the batch is stored in a system topic, invisible to consumers; the answer's offset is its place there. Batches
        of one queue get their offsets in the order of the calls. Cancelling the caller does not cancel an accepted
        append. A batch sent again answers its first offset.

        Errors:
        * NotFound (field "topic_id", "queue_id", or "batch.producer_id" for a forgotten producer).
        * Invalid (field "batch.first_sequence") when it overlaps an earlier batch.
        * Conflict when the sequence was used for other bytes, or too long ago to know its offset.
        * Unavailable for a gap in the sequence; nothing is stored, and the missing batch must be sent first.
        * Overloaded when the disk is full or too many bytes wait; nothing is stored.
        * Unavailable when the disk failed or the store is closing; the outcome is unknown.
        """
        write = BatchWrite(topic_id, queue_id, batch, consumes, deferral, consumes_at)
        begun = self.begin(write, flush_mode)
        if begun is None:
            await self._appender.reserve_space(write.length_bytes(), is_state=False)
            begun = self.begin(write, flush_mode, has_room=True)
            assert begun is not None
        return await begun

    def begin(
        self, write: BatchWrite, flush_mode: FlushMode, *, has_room: bool = False
    ) -> asyncio.Future[AppendResult] | None:
        """Accept a batch as `append` does, at once; None when room must be made first. Errors: as `append`."""
        batch, appender = write.batch, self._appender
        queue = self._queue_to_append(write.topic_id, write.queue_id, write.deferral)
        if flush_mode is FlushMode.DEFAULT:
            flush_mode = self._settings.flush_mode
        if batch.producer_id:
            key, now_ms = (write.topic_id, write.queue_id, batch.producer_id), self._clock.now_ms()
            duplicate = self._sequencer.decide(key, batch.first_sequence, batch.count, batch.records_crc32c, now_ms)
            if duplicate is not None:
                return self._answer_duplicate(duplicate, flush_mode)
        appender.check_accepting(length := write.length_bytes())
        if not has_room and not appender.fits(length):
            return None
        return self._answer_for(self._append_placed(queue, write, flush_mode), flush_mode)

    def _answer_for(self, answer: AppendResult, flush_mode: FlushMode) -> asyncio.Future[AppendResult]:
        """`answer`, as soon as the mode allows. `ASYNC` is at once, or with other replicas when this disk has it."""
        if flush_mode is FlushMode.ASYNC and self._appender.commit_limit is None:
            self._appender.flush_due.set()
            return self._answer_now(answer)
        return self._answer_when_flushed(answer, early=flush_mode is FlushMode.ASYNC)

    def _answer_now(self, answer: AppendResult) -> asyncio.Future[AppendResult]:
        done: asyncio.Future[AppendResult] = self._loop.create_future()
        done.set_result(answer)
        return done

    def _append_placed(self, queue: QueueLog, write: BatchWrite, flush_mode: FlushMode) -> AppendResult:
        """Accept a batch for which there is room. Nothing may be awaited between the check for room and this call."""
        appender, batch, deferral = self._appender, write.batch, write.deferral
        if write.consumes or write.consumes_at or deferral:
            appender.seal_changes()  # changes that were accepted earlier come first in the log
        first_offset, stored_at_ms = queue.next_offset, appender.next_stored_at_ms()
        consumes = self.engine.record_use(write.changes_at(first_offset, stored_at_ms))
        prefix = encode_changes([change.encoded() for change in consumes]) if consumes else b""
        header = FrameHeader(
            kind=FrameKind.MESSAGES,
            position=appender.appended_position,
            durable_below=appender.durable_position,
            leader_epoch=appender.epoch,
            store_open=appender.store_open,
            stored_at_ms=stored_at_ms,
            length=len(batch.records),
            prefix_length=len(prefix),
            prefix_crc=crc32c(prefix) if prefix else 0,
            payload_crc=batch.records_crc32c,
            topic_id=queue.key[0],
            queue_id=queue.key[1],
            item_count=batch.count,
            first_offset=first_offset,
            producer_id=0 if deferral else batch.producer_id,
            first_sequence=0 if deferral else batch.first_sequence,
            min_deliver_at_ms=deferral.min_deliver_at_ms if deferral else 0,
            max_deliver_at_ms=deferral.max_deliver_at_ms if deferral else 0,
            inflated_bytes=batch.body_inflated_bytes,
        )
        if batch.producer_id:
            sent = WindowBatch(batch.first_sequence, batch.count, first_offset, stored_at_ms, batch.records_crc32c)
            self._sequencer.add_in_flight((write.topic_id, write.queue_id, batch.producer_id), sent)
        queue.next_offset = first_offset + batch.count
        appender.append_batch(header, batch, queue, prefix, consumes)
        return AppendResult(first_offset, stored_at_ms, flush_mode)

    async def append_all(self, writes: Sequence[BatchWrite], check: Callable[[], object] | None = None) -> None:
        """Store several batches without sequences, all or none; returns when durable. Room is made before.

        `check` runs right before. Errors: as `append`, and those of `check`. Invalid when they have more bytes than may
        wait for the disk.
        """
        appender, limit = self._appender, self._settings.pending_bytes_max
        if (length := sum(frame_bytes(one.length_bytes()) for one in writes)) > limit:
            raise Invalid(f"{length} bytes together, but at most {limit} fit: request fewer messages")
        appender.check_accepting(length)
        if not appender.fits(length):
            await appender.reserve_space(length, is_state=False)
            appender.check_accepting(length)
        if check is not None:
            check()
        queues = [self._queue_to_append(write.topic_id, write.queue_id, write.deferral) for write in writes]
        if answers := [self._append_placed(*one, FlushMode.SYNC) for one in zip(queues, writes, strict=True)]:
            await self._answer_when_flushed(answers[-1])

    async def fetch(
        self,
        topic_id: int,
        queue_id: int,
        from_offset: int,
        *,
        bytes_max: int = 0,
        wait_ms: int = 0,
        on_batch: OnBatch | None = None,
        before: int = maxsize,
    ) -> FetchResult:
        """Read whole batches from `from_offset` on; the first may start before it. At the end, wait for more.

        At least one batch is returned if there is one, and further ones while they fit `bytes_max` (0 = 1 MiB). These
        begin before the offset `before`. A queue that exists and is empty has the range 0 to 0. After `wait_ms` at the
        end the answer is empty. With `on_batch` the batches are passed to it, and the answer holds none of them.

        Errors:
        * NotFound (field "topic_id" or "queue_id").
        * OutOfRange with begin and end when `from_offset` lies outside begin..end.
        * DataLoss when the batch at `from_offset` is damaged, naming the next readable offset.
        * Overloaded when too many readers wait.
        """
        self.engine.check_open()
        self._fetches += 1
        queue = self._queue_to_read(topic_id, queue_id)
        begin, end = queue.begin_offset, queue.end_offset
        if not begin <= from_offset <= end:
            reason = f"offset {from_offset} is not stored; the queue holds {begin} to {end}"
            raise OutOfRange(reason, field="from_offset", begin_offset=begin, end_offset=end)
        if from_offset == queue.end_offset:
            if wait_ms > 0:
                await self.engine.waiting.wait_in(queue.waiters, self._clock.monotonic_s() + wait_ms / 1000)
                queue = self._queue_to_read(topic_id, queue_id)
            if from_offset >= queue.end_offset or self.engine.closed:
                return FetchResult((), from_offset, queue.end_offset)
        bytes_max = min(bytes_max or FETCH_BYTES, self._settings.fetch_bytes_max)
        return await self._reader.read(queue, from_offset, bytes_max, on_batch, before)

    def describe_queues(self, topic_id: int) -> list[QueueRange]:
        """All queues of a topic, in order of queue id. Errors: NotFound."""
        queues = self._catalog.queues
        floor = self._catalog.floor
        ranges = []
        for queue_id in range(self._topic(topic_id).queue_count):
            queue = queues.get((topic_id, queue_id))
            begin, end = (queue.begin_offset, queue.end_offset) if queue is not None else (floor, floor)
            ranges.append(QueueRange(queue_id, begin, end))
        return ranges

    def last_times_ms(self, topic_id: int) -> list[int]:
        """When the last message of each queue of a topic was stored; 0 = none is stored. Errors: NotFound."""
        keys = ((topic_id, queue_id) for queue_id in range(self._topic(topic_id).queue_count))
        queues = map(self._catalog.queues.get, keys)
        return [0 if queue is None else queue.last_stored_at_ms for queue in queues]

    def queue_range(self, topic_id: int, queue_id: int) -> QueueRange:
        """The offset range of one queue. Errors: NotFound."""
        queue = self._catalog.queues.get((topic_id, queue_id))
        if queue is None or topic_id in self._deleting_topic_ids:
            queue = self._queue_to_read(topic_id, queue_id)
        return QueueRange(queue_id, queue.begin_offset, queue.end_offset)

    def topic_name(self, topic_id: int) -> str:
        """The name of a topic. Errors: NotFound."""
        return self._topic(topic_id).name

    async def find_offset(self, topic_id: int, queue_id: int, stored_at_ms: int) -> int:
        """The first offset stored at or after a time; the queue's end if there is none. Errors: NotFound."""
        return await self._reader.find_time(self._queue_to_read(topic_id, queue_id), stored_at_ms)

    async def measure_queue(self, topic_id: int, queue_id: int, from_offset: int, bytes_max: int) -> QueueSize:
        """The stored bytes of a queue from `from_offset` on, within `bytes_max`; at least one batch, if there is one.

        Errors: NotFound, DataLoss, Unavailable.
        """
        return await self._reader.measure(self._queue_to_read(topic_id, queue_id), from_offset, bytes_max)

    async def find_messages(
        self,
        topic_id: int,
        *,
        key: str = "",
        message_id: str = "",
        begin_ms: int = 0,
        end_ms: int = 0,
        limit: int = 0,
    ) -> list[FoundMessage]:
        """Messages with this key, or with this id chosen by their producer, stored in [begin_ms, end_ms); newest first.

        Give one of `key` and `message_id`. An `end_ms` of 0 is no end, a `limit` of 0 is 32. Ids that contain the
        place of a message need no search: fetch the offset they name.
        Errors: NotFound (topic), Invalid, Unavailable (the search is down, or the key index is switched off).
        """
        self._topic(topic_id)
        if bool(key) == bool(message_id):
            raise Invalid("give a key or a message id, and not both", field="key")
        if not 0 <= limit <= FIND_LIMIT_MAX:
            raise Invalid(f"{limit}; expected 1 to {FIND_LIMIT_MAX}, or 0 for {FIND_LIMIT}", field="limit")
        self.engine.check_open()
        if not self._settings.key_index:
            raise Unavailable("the key index is switched off")
        kind = KIND_KEY if key else KIND_MESSAGE_ID
        end = self._appender.readable_position
        stretches = [LogStretch(one.base, min(end, one.end or end), one.end is not None and one.end <= end)
                     for one in self._catalog.segments if one.base < end]  # fmt: skip
        query = KeyQuery(topic_id, kind, key or message_id, begin_ms, end_ms or 1 << 62, limit or FIND_LIMIT)
        found = await self.engine.keys.find(query, stretches)
        return [one for one in found if one.offset >= self._catalog.queue((topic_id, one.queue_id)).begin_offset]

    async def read_deferred(self, system_topic_id: int, place: int, *, bytes_max: int) -> tuple[StoredBatch, ...]:
        """Whole deferred batches, from the one at `place` on. Errors: DataLoss, Unavailable."""
        self.engine.check_open()
        return (await self._reader.read(self._catalog.queue((system_topic_id, 0)), place, bytes_max)).batches

    async def change(self, *changes: StateChange) -> None:
        """Store changes of the state; returns when they are durable. Errors: Overloaded, Unavailable."""
        await self.engine.store(changes)

    @property
    def timers(self) -> TimerTable:
        """The delayed messages."""
        return self._state.timers

    @property
    def halves(self) -> HalfMessageTable:
        """The transactions."""
        return self._state.halves

    @property
    def schedules(self) -> ScheduleTable:
        """The schedules of recurring messages."""
        return self._state.schedules

    def topic(self, topic_id: int) -> TopicCopy | None:
        """The copy of a topic, if there is one."""
        return None if topic_id in self._deleting_topic_ids else self._state.topics.get(topic_id)

    @property
    def enode(self) -> str:
        """The enode that owns this store."""
        return self.engine.identity.enode

    def describe(self) -> StoreDescription:
        """Sizes, positions, health and damages of the store."""
        return describe_store(self.engine, self._fetches)

    async def put_topics(self, topics: Sequence[TopicCopy]) -> None:
        """Store copies of topics; returns when they are durable. A copy older than the stored one changes nothing."""
        await self.engine.store([topic_change(copy) for copy in topics])

    async def delete_topics(self, topic_ids: Iterable[int]) -> None:
        """Forget topics, their queues and the groups' offsets in them; unknown ids are ignored."""
        deleting = [topic_id for topic_id in topic_ids if self._state.topics.get(topic_id) is not None]
        self._deleting_topic_ids.update(deleting)
        try:
            await self.engine.store([TopicDeleted(topic_id) for topic_id in deleting])
            deleted = frozenset(deleting)
            self.locks.table.drop(lambda pair: pair[0] in deleted)
        finally:
            self._deleting_topic_ids.difference_update(deleting)

    def topics(self) -> list[TopicCopy]:
        """All topic copies, by topic id."""
        return self._state.topics.all()

    def _topic(self, topic_id: int) -> TopicCopy:
        topic = self._state.topics.get(topic_id)
        if topic is None or topic_id in self._deleting_topic_ids:
            raise NotFound(f"this enode has no topic {topic_id:#x}", field="topic_id")
        return topic

    def _queue_to_append(self, topic_id: int, queue_id: int, deferral: Deferral | None) -> QueueLog:
        """The queue for the batch: its destination, or the queue of the system topic.

        Errors: NotFound. Unavailable when the store is closed. Overloaded when the index has no room.
        """
        self.engine.check_open()
        queue = self._queue(topic_id, queue_id)
        queue = queue if deferral is None else self._catalog.queue((deferral.system_topic_id, 0))
        self._catalog.check_capacity(queue, self._settings.index_bytes_max)
        return queue

    def _queue_to_read(self, topic_id: int, queue_id: int) -> QueueLog:
        """The queue to read; one beyond the topic's count is readable while it holds messages."""
        self._topic(topic_id)
        return self._catalog.queues.get((topic_id, queue_id)) or self._queue(topic_id, queue_id)

    def _queue(self, topic_id: int, queue_id: int) -> QueueLog:
        """A queue of a topic, made at its first use. Errors: NotFound."""
        topic = self._topic(topic_id)
        if not 0 <= queue_id < topic.queue_count:
            raise NotFound(f"topic {topic.name} has queues 0 to {topic.queue_count - 1} here", field="queue_id")
        return self._catalog.queue((topic_id, queue_id))

    def _answer_duplicate(self, duplicate: Duplicate, flush_mode: FlushMode) -> asyncio.Future[AppendResult]:
        batch = duplicate.batch
        if duplicate.durable:
            return self._answer_now(AppendResult(batch.first_offset, batch.stored_at_ms, FlushMode.SYNC))
        answer = AppendResult(batch.first_offset, batch.stored_at_ms, flush_mode)
        self._appender.check_disk()
        return self._answer_for(answer, flush_mode)

    def _answer_when_flushed(self, answer: AppendResult, *, early: bool = False) -> asyncio.Future[AppendResult]:
        """Done, with `answer`, when everything accepted before is committed; with `early`, also if this disk has it."""
        waiter: asyncio.Future[AppendResult] = self._loop.create_future()
        self._appender.add_waiter(waiter, answer, early=early)
        self._appender.request_flush()
        return waiter
