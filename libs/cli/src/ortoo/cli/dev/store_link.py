"""The snode's link to an enode of the same process: calls instead of the wire, with the same promises."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from ortoo.common.errors import Overloaded, Unavailable
from ortoo.common.groups.pop import GiveBack, LeasePart, Popped, PopWish, ReplayWish, SendBackWish, Stale, Verdict
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.app import RunningEnode
from ortoo.enode.changes.halves import HalfOpen
from ortoo.enode.changes.halves import Source as StoreSource
from ortoo.enode.changes.halves import Verdict as StoreVerdict
from ortoo.enode.changes.lives import Mode
from ortoo.enode.deferred.check_watchers import Watcher
from ortoo.enode.store.lock_table import Granted, LockRequest, Refused
from ortoo.enode.store.store import FlushMode as StoreFlushMode
from ortoo.snode.cluster.routes import DeliveryMode
from ortoo.snode.enodes.link import (
    Appended,
    DelayedEntry,
    DueHalf,
    EnodeLink,
    Fetched,
    FlushMode,
    HalfVerdict,
    IdentifiedPlace,
    LockAnswer,
    LockKey,
    LockWish,
    MessagePlace,
    OffsetRow,
    OpenHalf,
    QueueRange,
    StoredBatch,
    VerdictSource,
)

_MODE_OF = {
    FlushMode.DEFAULT: StoreFlushMode.DEFAULT,
    FlushMode.SYNC: StoreFlushMode.SYNC,
    FlushMode.ASYNC: StoreFlushMode.ASYNC,
}
_MODE_TO = {mode: number for number, mode in _MODE_OF.items()}
FETCH_BYTES = 1 << 20
"""What one read answers at most, unless it says otherwise."""
ATTACH_INTERVAL_S = 5.0


class StoreLinks:
    """Links of a snode whose only enode lives in this process. `StoreLinks.of(enode)` is a `LinkFactory`."""

    @staticmethod
    def of(enode: RunningEnode) -> "Callable[..., StoreLinks]":
        """What `open_snode` takes as `links`."""

        def links(*, background: Background, clock: Clock, timeout_s: float, in_flight_bytes_max: int) -> StoreLinks:
            return StoreLinks(StoreLink(enode, background, clock, in_flight_bytes_max))

        return links

    def __init__(self, link: "StoreLink") -> None:
        self._link = link

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._link.close()

    def to(self, enode: str, address: str) -> EnodeLink:
        """The link to the one enode. Errors: Unavailable for another one, which this process does not have."""
        if enode != self._link.enode:
            raise Unavailable(f"`ortoo dev` has one enode, {self._link.enode}, and not {enode}")
        return self._link


class StoreLink:
    """The enode's store, as the snode sees an enode."""

    def __init__(self, enode: RunningEnode, background: Background, clock: Clock, in_flight_bytes_max: int) -> None:
        """Call the store of `enode`; at most `in_flight_bytes_max` bytes wait for the disk."""
        self.enode = enode.name
        self._store = enode.store
        self._topics = enode.topics
        self._intake = enode.intake
        self._pops = enode.pops
        self._sending = enode.sending
        self._identified = enode.identified
        self._background = background
        self._clock = clock
        self._bytes_max = in_flight_bytes_max
        self._bytes = 0
        self._closed = False

    @property
    def connected(self) -> bool:
        """Whether the store can be called."""
        return not self._closed

    def close(self) -> None:
        """Take no more calls."""
        self._closed = True

    def append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode = FlushMode.DEFAULT
    ) -> asyncio.Future[Appended]:
        """Store one batch behind those given before."""
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        size_bytes = len(batch.records)
        if self._closed:
            answer.set_exception(Unavailable(f"enode {self.enode} is closing; nothing was stored"))
        elif self._bytes and self._bytes + size_bytes > self._bytes_max:
            answer.set_exception(
                Overloaded(f"{self._bytes} bytes are on their way to enode {self.enode}; retry", retry_after_ms=50)
            )
        else:
            self._bytes += size_bytes
            # Tasks start in the order in which they are made, and the store takes a batch at the first step of its
            # task: batches of a queue keep their order.
            self._background.spawn("append", self._append(topic_id, queue_id, batch, flush_mode, answer))
        return answer

    async def _append(
        self,
        topic_id: int,
        queue_id: int,
        batch: SealedBatch,
        flush_mode: FlushMode,
        answer: asyncio.Future[Appended],
    ) -> None:
        try:
            batch.check()
            if self._topics.lacks(topic_id, queue_id):
                await self._topics.arrival(topic_id, queue_id)
            stored = await self._intake.append(topic_id, queue_id, batch, flush_mode=_MODE_OF[flush_mode])
            result = Appended(stored.first_offset, stored.stored_at_ms, _MODE_TO[stored.flush_mode])
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        except asyncio.CancelledError:
            if not answer.done():
                answer.set_exception(Unavailable(f"enode {self.enode} is closing; the outcome is unknown"))
            raise
        else:
            if not answer.done():
                answer.set_result(result)
        finally:
            self._bytes -= len(batch.records)

    async def fetch(
        self,
        topic_id: int,
        queue_id: int,
        from_offset: int,
        *,
        bytes_max: int = 0,
        wait_ms: int = 0,
        group: str = "",
        generation: int = 0,
    ) -> Fetched:
        """Read whole batches; at the end of the queue wait so long."""
        key = (topic_id, group, queue_id)
        self._store.locks.check(key, generation)
        if self._topics.lacks(topic_id, queue_id):
            await self._topics.arrival(topic_id, queue_id)
        fetched = await self._store.fetch(
            topic_id, queue_id, from_offset, bytes_max=bytes_max or FETCH_BYTES, wait_ms=wait_ms
        )
        self._store.locks.check(key, generation)
        batches = tuple(StoredBatch(b.first_offset, b.stored_at_ms, b.batch) for b in fetched.batches)
        return Fetched(batches, fetched.next_offset, fetched.end_offset)

    async def commit_offsets(self, topic_id: int, group: str, offsets: Mapping[int, int], generation: int = 0) -> None:
        """Store a group's offsets."""
        await self._topics.arrival(topic_id, max(offsets, default=0))
        await self._store.modes.use(topic_id, group, Mode.OFFSETS)
        await self._store.offsets.commit(topic_id, group, offsets, generation)

    async def commit_rows(
        self, topic_id: int, group: str, rows: Sequence[OffsetRow], *, reset: bool = False
    ) -> list[int]:
        """Store a group's offsets, each under its own generation."""
        await self._topics.arrival(topic_id, max((row[0] for row in rows), default=0))
        if not reset:
            await self._store.modes.use(topic_id, group, Mode.OFFSETS)
            return await self._store.offsets.commit_each(topic_id, group, rows)
        await self._store.offsets.reset(topic_id, group, {queue_id: offset for queue_id, offset, _ in rows})
        return []

    async def offset_groups(self, topic_id: int) -> list[str]:
        """The groups that have an offset in a topic."""
        return self._store.offsets.groups(topic_id)

    async def take_locks(self, incarnation: str, wishes: Sequence[LockWish]) -> list[LockAnswer]:
        """Take or renew locks."""
        for one in wishes:
            await self._topics.arrival(one.topic_id, one.queue_id)
        refused = await self._store.modes.refused({(w.topic_id, w.group) for w in wishes}, Mode.OFFSETS)
        wanted = [w for w in wishes if (w.topic_id, w.group) not in refused]
        taken = await self._store.locks.take(
            [
                LockRequest((one.topic_id, one.group, one.queue_id), one.owner, one.session_id, incarnation, one.resume)
                for one in wanted
            ]
        )
        answers = dict(zip(wanted, taken, strict=True))
        return [
            _lock_answer(answers[wish]) if wish in answers else LockAnswer(0, error=refused[wish.topic_id, wish.group])
            for wish in wishes
        ]

    async def release_locks(self, wishes: Sequence[LockWish]) -> list[bool]:
        """Give locks back."""
        keys = [((wish.topic_id, wish.group, wish.queue_id), wish.session_id) for wish in wishes]
        return await self._store.locks.release(keys)

    async def attach(self, snode: str, incarnation: str, freed: Callable[[Sequence[LockKey]], None]) -> None:
        """Be there for the enode for ever; its only snode needs no news of locks, it asks again by itself."""
        while True:
            self._store.locks.attached(incarnation)
            await self._clock.sleep(ATTACH_INTERVAL_S)

    async def query_offsets(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, int]:
        """A group's offsets."""
        await self._topics.arrival(topic_id)
        return self._store.offsets.of(topic_id, group, queue_ids)

    async def describe_queues(self, topic_id: int) -> list[QueueRange]:
        """What each queue of a topic holds."""
        await self._topics.arrival(topic_id)
        return [QueueRange(q.queue_id, q.begin_offset, q.end_offset) for q in self._store.describe_queues(topic_id)]

    async def recall_delayed(self, topic_id: int, timer_id: int, deliver_at_ms: int) -> None:
        """Forget a delayed message."""
        await self._intake.delays.recall(topic_id, timer_id, deliver_at_ms)

    async def list_delayed(self, topic_id: int, from_ms: int, limit: int) -> list[DelayedEntry]:
        """The delayed messages of a topic, by time."""
        await self._topics.arrival(topic_id)
        listed = self._intake.delays.listed(topic_id, from_ms, limit)
        return [DelayedEntry(one.timer_id, one.queue_id, one.deliver_at_ms) for one in listed]

    async def store_half(
        self, topic_id: int, queue_id: int, batch: SealedBatch, producer_group: str, check_after_ms: int, key: int
    ) -> int:
        """Begin a transaction."""
        await self._topics.arrival(topic_id, queue_id)
        half = await self._intake.transactions.begin(
            topic_id, queue_id, batch, producer_group=producer_group, check_after_ms=check_after_ms, key=key
        )
        return half.number

    async def settle_half(self, topic_id: int, number: int, verdict: HalfVerdict, source: VerdictSource) -> None:
        """End a transaction."""
        await self._intake.transactions.end(topic_id, number, StoreVerdict(verdict), StoreSource(source))

    async def list_halves(self, topic_id: int, producer_group: str, *, parked_only: bool, limit: int) -> list[OpenHalf]:
        """Open transactions, the oldest first."""
        listed = self._intake.transactions.listed(
            topic_id=topic_id, producer_group=producer_group, parked_only=parked_only, limit=limit
        )
        return list(map(_half, listed))

    async def resume_half(self, topic_id: int, number: int) -> None:
        """Check a parked transaction again."""
        await self._intake.transactions.resume(topic_id, number)

    async def watch_halves(self, producer_groups: Iterable[str], heard: Callable[[DueHalf], None]) -> None:
        """Hear of transactions that are due to be checked."""
        watcher = Watcher(producer_groups, lambda due: heard(DueHalf(_half(due.half), due.batch)))
        self._intake.transactions.watchers.add(watcher)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._intake.transactions.watchers.remove(watcher)

    async def find_offset(self, topic_id: int, queue_id: int, stored_at_ms: int) -> int:
        """The first offset stored at or after a time."""
        await self._topics.arrival(topic_id, queue_id)
        return await self._store.find_offset(topic_id, queue_id, stored_at_ms)

    async def find_messages(
        self, topic_id: int, *, key: str, message_id: str, begin_ms: int, end_ms: int, limit: int
    ) -> list[MessagePlace]:
        """Where messages with a key, or with an id of their producer's, lie."""
        await self._topics.arrival(topic_id)
        found = await self._store.find_messages(
            topic_id, key=key, message_id=message_id, begin_ms=begin_ms, end_ms=end_ms, limit=limit
        )
        return [MessagePlace(one.queue_id, one.offset, one.stored_at_ms) for one in found]

    async def pop(self, wish: PopWish) -> Popped:
        """Lease messages; wait for the first one as the wish says."""
        await self._topics.arrival(wish.topic_id, max(wish.queue_ids, default=0))
        return await self._pops.pop(wish)

    async def settle(self, topic_id: int, group: str, parts: Sequence[LeasePart], verdict: Verdict) -> list[Stale]:
        """Say what becomes of leased messages."""
        await self._topics.arrival(topic_id)
        if isinstance(verdict, GiveBack) and verdict.rules.dead_letter_topic_id:
            await self._topics.arrival(verdict.rules.dead_letter_topic_id)
        return await self._pops.settle(topic_id, group, parts, verdict)

    async def peek(self, wish: PopWish) -> Popped:
        """What a pop would bring, and what consumers have."""
        await self._topics.arrival(wish.topic_id, max(wish.queue_ids, default=0))
        return await self._pops.peek(wish)

    async def send_back(self, wish: SendBackWish) -> list[str]:
        """Copy messages to a group's retry topic."""
        await self._topics.arrival(wish.topic_id, wish.queue_id)
        await self._topics.arrival(wish.retry_topic_id)
        await self._topics.arrival(wish.rules.dead_letter_topic_id)
        return await self._sending.send_back(wish)

    async def replay(self, wish: ReplayWish) -> list[tuple[int, int]]:
        """Send dead letters again."""
        await self._topics.arrival(wish.target_topic_id)
        return await self._sending.replay(wish)

    async def append_identified(
        self, topic_id: int, queue_id: int, batch: SealedBatch, ids: Sequence[str]
    ) -> list[IdentifiedPlace]:
        """Store messages with ids of the application's."""
        await self._topics.arrival(topic_id, queue_id)
        places = await self._identified.append(topic_id, queue_id, batch, ids)
        return [IdentifiedPlace(one.queue_id, one.offset, one.stored_at_ms, one.duplicate) for one in places]

    async def use_mode(self, topic_id: int, group: str, mode: DeliveryMode) -> None:
        """A group consumes a topic this way."""
        await self._topics.arrival(topic_id)
        await self._store.modes.use(topic_id, group, Mode(mode))

    async def set_mode(self, topic_id: int, group: str, mode: DeliveryMode, *, force: bool) -> DeliveryMode:
        """Change how a group consumes a topic."""
        await self._topics.arrival(topic_id)
        return DeliveryMode(await self._pops.change_mode(topic_id, group, Mode(mode), force=force))

    async def modes(self, group: str) -> list[tuple[int, DeliveryMode]]:
        """How a group consumes topics."""
        return [(topic_id, DeliveryMode(mode)) for topic_id, mode in self._store.modes.of_group(group)]


def _lock_answer(answer: Granted | Refused) -> LockAnswer:
    if isinstance(answer, Granted):
        return LockAnswer(answer.generation)
    return LockAnswer(0, answer.owner, max(1, int(answer.remaining_s * 1000)))


def _half(half: HalfOpen) -> OpenHalf:
    return OpenHalf(
        half.number,
        half.topic_id,
        half.queue_id,
        half.count,
        half.stored_at_ms,
        half.next_check_ms,
        half.checks,
        half.parked,
        half.producer_group,
    )
