"""A mixed workload on one store, decided by a seed and recorded.

Messages on fifty queues: plain, in mode `async`, and from producers that repeat, leave gaps and reuse sequences.
Offsets, also backwards, pops, and topics that grow, are deleted and come back. Retention, pauses and clean restarts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.changes.groups import GroupMode, ModeSet, RetryCopiesStored, RetryMarksDropped
from ortoo.enode.changes.kinds import IdsRemembered, OffsetsCommitted, StateChange
from ortoo.enode.changes.pops import PopFinished, PopLeased, PopReturned
from ortoo.enode.disk.disk import Disk
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.settings import FlushMode, StoreSettings
from ortoo.enode.state.tables.message_ids import short_id
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.model import RequestedValue, SentBatch, StoreHistory, StoreViolation
from ortoo.verification.store.single_store import SingleStore, open_single_store
from ortoo.verification.time.virtual_clock import VirtualClock

FOLDER = Path("/store")
SETTINGS = StoreSettings(
    segment_bytes=16 << 10, headroom_bytes=0, recent_bytes=8 << 10, retention_age_ms=0, retention_bytes=48 << 10,
    retention_interval_ms=450, checkpoint_records=120, checkpoint_slice_bytes=400, idle_mark_ms=50,
    flush_interval_ms=40, threads=False,
)  # fmt: skip
TOPICS = {11: ("orders", 20), 12: ("payments", 20), 13: ("visits", 10)}
GROUPS = ("billing", "search", "audit")
POPPERS = "poppers"
PRODUCERS = 3
NEEDED = (".seg", "identity", "begin", "reign", "outline")
"""Files that are not caches."""

Producer = tuple[int, int, int]
"""(topic id, queue id, producer id)."""


async def open_store(disk: Disk, clock: VirtualClock, settings: StoreSettings = SETTINGS) -> SingleStore:
    """Open the store on this disk."""
    return await open_single_store(FOLDER, settings=settings, disk=disk, clock=clock, randomness=Randomness(1))


class Workload:
    """One run. Its requests are in `history`; after `run` the store is closed."""

    def __init__(
        self, disk: MemoryDisk, clock: VirtualClock, seed: int, history: StoreHistory | None = None,
        through: Disk | None = None, settings: StoreSettings = SETTINGS,
    ) -> None:  # fmt: skip
        """Work on `disk` as `seed` decides, after `history`; `through` may be a faulty disk around it."""
        self.history = history if history is not None else StoreHistory()
        self._disk = disk
        self._through = through if through is not None else disk
        self._clock = clock
        self._settings = settings
        self._seed = seed
        self._chance = Randomness(seed)
        self._pop_chance = Randomness(seed + 1_000_000)
        self._life_chance = Randomness(seed + 2_000_000)
        self._lives = 0
        self._serial = 0
        self._leases = 0
        self._next_topic_id = 1000 + seed * 100
        self._producers: dict[Producer, list[SentBatch]] = {}
        self._popped: dict[tuple[int, str, int], int] = {}
        self._store: SingleStore

    @property
    def moment(self) -> int:
        """The number of operations of the disk."""
        return len(self._disk.operations)

    async def run(self, steps: int) -> None:
        """Open the store, do `steps` things to it, close it."""
        self._store = await open_store(self._through, self._clock, self._settings)
        for topic_id, (name, queue_count) in TOPICS.items():
            if all(topic.topic_id != topic_id for topic in self._store.topics()):
                await self._put_topic(topic_id, name, queue_count, 1)
        for _ in range(steps):
            await self._choose(
                (50, self._burst), (16, self._pause), (8, self._read), (8, self._refused), (8, self._change_topics),
                (3, self._long_pause), (2, self._restart), (2, self._big),
            )()  # fmt: skip
            self._note_begins()
        await self._store.close()
        self._note_begins()

    def _choose(self, *choices: tuple[int, Callable[[], Awaitable[None]]]) -> Callable[[], Awaitable[None]]:
        number = self._chance.below(sum(weight for weight, _ in choices))
        for weight, one in choices:
            if number < weight:
                return one
            number -= weight
        raise AssertionError

    def _note_begins(self) -> None:
        begins = {
            (topic.topic_id, row.queue_id): row.begin_offset
            for topic in self._store.topics()
            for row in self._store.describe_queues(topic.topic_id)
        }
        self.history.begins.append((self.moment, begins))

    def _queue(self) -> tuple[int, int]:
        topics = self._store.topics()
        topic = topics[self._chance.below(len(topics))]
        return topic.topic_id, self._chance.below(topic.queue_count)

    def _batch(self, length: int = 0, producer_id: int = 0, first_sequence: int = 0) -> SealedBatch:
        self._serial += 1
        head = b"%d/%d/" % (self._seed, self._serial)
        body = head + b"m" * (length or self._chance.below(900))
        return SealedBatch(body, crc32c(body), 1 + self._chance.below(9), len(body), producer_id, first_sequence)

    # Actions.

    async def _burst(self) -> None:
        work: list[Coroutine[Any, Any, object]] = []
        for _ in range(1 + self._chance.below(12)):
            kind = self._chance.below(10)
            if kind < 5:
                work.append(self._send(*self._queue(), self._batch()))
            elif kind < 6:
                work.append(self._send(*self._queue(), self._batch(), FlushMode.ASYNC))
                work.append(self._send_with_commit())
            elif kind < 8:
                work += (self._commit(), self._pop(), self._live())
            else:
                work.append(self._send_in_sequence())
        await asyncio.gather(*work)

    async def _pause(self) -> None:
        await self._clock.sleep(self._chance.uniform(0.001, 0.12))

    async def _long_pause(self) -> None:
        await self._clock.sleep(0.5)

    async def _big(self) -> None:
        await self._send(*self._queue(), self._batch(self._settings.segment_bytes // 2 + self._chance.below(20_000)))

    async def _restart(self) -> None:
        await self._store.close()
        if self._chance.below(2):
            for name in self._disk.list(FOLDER):
                if not name.endswith(NEEDED) and self._chance.below(2):
                    self._disk.remove(FOLDER / name)
        self._store = await open_store(self._through, self._clock, self._settings)

    async def _read(self) -> None:
        key = self._queue()
        begin = next(row.begin_offset for row in self._store.describe_queues(key[0]) if row.queue_id == key[1])
        fetched = await self._store.fetch(*key, begin, bytes_max=5000)
        seen = {one.batch.records: one.first_offset for one in fetched.batches}
        for sent in self.history.sends:
            if sent.key == key and sent.answered_at > self.moment and sent.batch.records in seen:
                sent.answered_at, sent.first_offset = self.moment, seen[sent.batch.records]

    async def _send(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode = FlushMode.DEFAULT
    ) -> SentBatch:
        sent = SentBatch(topic_id, queue_id, batch, self.moment)
        self.history.sends.append(sent)
        answer = await self._store.append(topic_id, queue_id, batch, flush_mode=flush_mode)
        if answer.flush_mode is FlushMode.SYNC:
            sent.answered_at, sent.first_offset = self.moment, answer.first_offset
        return sent

    async def _send_with_commit(self) -> None:
        """A batch and the commit of an offset in one frame."""
        topic_id, queue_id = self._queue()
        sent = SentBatch(topic_id, queue_id, self._batch(), self.moment)
        group = f"with-{self._seed}-{self._serial}"
        wish = RequestedValue(self._serial, self.moment)
        self.history.sends.append(sent)
        self.history.offsets[topic_id, group, queue_id] = [wish]
        self.history.pairs.append((sent, (topic_id, group, queue_id)))
        change = OffsetsCommitted(topic_id, group, 0, ((queue_id, self._serial),))
        answer = await self._store.append(topic_id, queue_id, sent.batch, consumes=(change,))
        sent.answered_at = wish.answered_at = self.moment
        sent.first_offset = answer.first_offset

    async def _send_in_sequence(self) -> None:
        topic_id = 11 + self._chance.below(3)
        key = (topic_id, self._chance.below(3), self._seed * 100 + 1 + self._chance.below(PRODUCERS))
        mine = self._producers.setdefault(key, [])
        if mine and self._chance.below(4) == 0:
            again = mine[-1 - self._chance.below(min(3, len(mine)))]
            answer = await self._store.append(*again.key, again.batch)
            if again.first_offset >= 0 and answer.first_offset != again.first_offset:
                raise StoreViolation(f"sent again to {again.key}: {answer.first_offset}, before {again.first_offset}")
            again.answered_at = min(again.answered_at, self.moment)
            again.first_offset = answer.first_offset
            return
        sequence = mine[-1].batch.first_sequence + mine[-1].batch.count if mine else 0
        batch = self._batch(0, key[2], sequence)
        sent = SentBatch(key[0], key[1], batch, self.moment)
        self.history.sends.append(sent)
        mine.append(sent)
        answer = await self._store.append(key[0], key[1], batch)
        sent.answered_at, sent.first_offset = self.moment, answer.first_offset

    async def _refused(self) -> None:
        """Send batches that must be refused, and never found."""
        topic_id, queue_id = self._queue()
        attempts = [(topic_id, 999, self._batch()), (topic_id, queue_id, self._batch(0, 999, 5))]
        for (topic, queue, producer_id), mine in list(self._producers.items())[:2]:
            if topic in self.history.topics and mine:
                last = mine[-1].batch
                end = last.first_sequence + last.count
                attempts.append((topic, queue, self._batch(0, producer_id, end + 3)))
                other = self._batch(0, producer_id, last.first_sequence)
                attempts.append((topic, queue, SealedBatch(
                    other.records, other.records_crc32c, last.count, len(other.records), producer_id,
                    last.first_sequence,
                )))  # fmt: skip
        for topic, queue, batch in attempts:
            self.history.sends.append(SentBatch(topic, queue, batch, self.moment, refused=True))
            try:
                await self._store.append(topic, queue, batch)
            except OrtooError as error:
                if isinstance(error, Unavailable) and not error.field:
                    raise
            else:
                raise StoreViolation(f"stored in {(topic, queue)} although sequence {batch.first_sequence} is wrong")

    async def _commit(self) -> None:
        topic_id, queue_id = self._queue()
        group = GROUPS[self._chance.below(len(GROUPS))]
        count = next(one.queue_count for one in self._store.topics() if one.topic_id == topic_id)
        queue_ids = {queue_id, (queue_id + 1) % count, (queue_id + 3) % count}
        offsets = {one: self._chance.below(1000) for one in queue_ids}
        wishes = []
        for one, offset in offsets.items():
            wishes.append(RequestedValue(offset, self.moment))
            self.history.offsets.setdefault((topic_id, group, one), []).append(wishes[-1])
        await self._store.offsets.commit(topic_id, group, offsets)
        for wish in wishes:
            wish.answered_at = self.moment

    async def _pop(self) -> None:
        """Lease messages, release one, finish the later half before the earlier one."""
        topics = self._store.topics()
        topic = topics[self._pop_chance.below(len(topics))]
        topic_id, queue_id = topic.topic_id, self._pop_chance.below(topic.queue_count)
        key = (topic_id, POPPERS, queue_id)
        if key not in self._popped:
            self._popped[key] = self._store.offsets.of(topic_id, POPPERS).get(queue_id, 0)
            self.history.offsets.setdefault(key, []).append(RequestedValue(self._popped[key], self.moment))
        at, count = self._popped[key], 1 + self._pop_chance.below(6)
        middle = at + count // 2
        self._popped[key] = at + count
        self._leases += 1
        place = (topic_id, POPPERS, queue_id)
        until_ms, number = self._clock.now_ms() + 1000, (self._store.engine.appender.store_open << 40) + self._leases
        await self._store.engine.store_without_waiting([PopLeased(*place, number, until_ms, 1000, ((at, count, 1),))])
        wish = RequestedValue(at + count, self.moment)
        self.history.offsets[key].append(wish)
        changes: list[StateChange] = [PopFinished(*place, 1, ((middle, at + count - middle),))]
        if middle > at:
            changes.insert(0, PopReturned(*place, number, until_ms, 1000, ((at, 1, 1),)))
            changes.append(PopFinished(*place, 1, ((at, middle - at),)))
        await self._store.engine.store(changes)
        wish.answered_at = self.moment

    async def _live(self) -> None:
        """Nack messages by offset, set a group's consume mode, remember ids: some of it together with a batch."""
        chance, topics = self._life_chance, self._store.topics()
        if chance.below(6):
            return
        topic = topics[chance.below(len(topics))]
        topic_id, queue_id = topic.topic_id, chance.below(topic.queue_count)
        group = GROUPS[chance.below(len(GROUPS))]
        marks = tuple((chance.below(1000), chance.below(2)) for _ in range(3))
        changes: list[StateChange] = [
            RetryCopiesStored(topic_id, group, queue_id, marks),
            ModeSet(topic_id, f"mode-{chance.below(4)}", GroupMode(chance.below(4))),
        ]
        if chance.below(6) == 0:
            changes.append(RetryMarksDropped(topic_id, group, (queue_id, 0)))
        await self._store.engine.store(changes)
        self._lives += 1
        body = b"live %d/%d" % (self._seed, self._lives)
        batch = SealedBatch(body, crc32c(body), 1 + chance.below(4), len(body))
        ids = tuple(short_id(str(chance.below(200))) for _ in range(batch.count))

        def remembered(first_offset: int, stored_at_ms: int) -> tuple[StateChange, ...]:
            until_ms = stored_at_ms + 2_000
            return (IdsRemembered(topic_id, queue_id, first_offset, False, stored_at_ms, until_ms, ids),)

        sent = SentBatch(topic_id, queue_id, batch, self.moment)
        self.history.sends.append(sent)
        answer = await self._store.append(topic_id, queue_id, batch, consumes_at=remembered)
        sent.answered_at, sent.first_offset = self.moment, answer.first_offset

    async def _change_topics(self) -> None:
        passing = [one for one in self._store.topics() if one.topic_id >= 1000]
        if passing and self._chance.below(2):
            gone = passing[0].topic_id
            wish = RequestedValue(None, self.moment)
            self.history.topics[gone].append(wish)
            await self._store.delete_topics([gone])
            wish.answered_at = self.moment
            for key in [key for key in self._producers if key[0] == gone]:
                del self._producers[key]
        elif len(passing) < 2:
            self._next_topic_id += 1
            await self._put_topic(self._next_topic_id, "passing", 2, 1)
        else:
            old = passing[-1]
            await self._put_topic(old.topic_id, old.name, old.queue_count + 1, old.version + 1)

    async def _put_topic(self, topic_id: int, name: str, queue_count: int, version: int) -> None:
        wish = RequestedValue((name, queue_count, version), self.moment)
        self.history.topics.setdefault(topic_id, []).append(wish)
        await self._store.put_topics([TopicCopy(topic_id, name, queue_count, version)])
        wish.answered_at = self.moment
