"""An enode in memory with controlled behaviour: it delays answers, loses answers, refuses."""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ortoo.common.directory.topic import Permission, Placement
from ortoo.common.errors import NotFound, OrtooError, OutOfRange, Unavailable
from ortoo.common.groups.sinks import SinkIdentity
from ortoo.common.records.sealed_batch import SealedBatch, StoredBatch
from ortoo.enode.pops import interruptions as enode_interruptions
from ortoo.enode.store.lock_table import LockGranted, LockTable
from ortoo.enode.store.lock_table import LockRequest as TableRequest
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.routes import DeliveryMode, DirectoryUpdate, EnodeEntry, Topic
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.snode.enodes.link import (
    AppendedBatch,
    EnodeLinks,
    FetchBatchesRequest,
    FetchedBatches,
    FlushMode,
    Interruption,
    LockKey,
    LockRequest,
    LockResult,
    MessagePlace,
    OffsetRow,
    QueueRange,
    StoredOffset,
)

TOPIC = Topic("t", 77, 1, Permission.READ_WRITE, (Placement("e", 4, 4),))


class FakeEnode(GrpcEnodeLink):
    """One enode with one topic of four queues; other requests fail, because it has no streams."""

    connected = True

    def __init__(self) -> None:
        self.queues: dict[int, list[StoredBatch]] = {number: [] for number in range(4)}
        self.offsets: dict[tuple[str, int], int] = {}
        self.commits: list[dict[int, int]] = []
        self.seen: list[SealedBatch] = []
        self.refusals: deque[OrtooError] = deque()
        """Errors of the next appends, which store nothing."""
        self.lost_answers = 0
        """Number of the next appends that are stored and not answered."""
        self.commit_refusals: deque[OrtooError] = deque()
        self.gate = asyncio.Event()
        """Appends and commits wait for it."""
        self.gate.set()
        self.arrived = asyncio.Event()
        """Set when an append or a commit has arrived."""
        self.locks = LockTable((), 0.0)
        self.interruptions = enode_interruptions.Interruptions()
        self._dedup: dict[tuple[int, int, int], AppendedBatch] = {}
        self._stored = asyncio.Event()
        self._storing: set[asyncio.Task[AppendedBatch]] = set()

    def links(self) -> EnodeLinks:
        """A directory with this enode, alive."""
        return EnodeLinks(self.directory(), self.to)

    def directory(self) -> DirectoryCache:
        """A directory with this enode and its topic."""
        directory = DirectoryCache()
        directory.apply(DirectoryUpdate(1, True, (TOPIC,), enodes=(EnodeEntry("e", "h:1", "s", alive=True),)))
        return directory

    def to(self, enode: str, address: str, epoch: int = 0) -> GrpcEnodeLink:
        """The link, which is this object."""
        return self

    def append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode = FlushMode.DEFAULT
    ) -> asyncio.Future[AppendedBatch]:
        """Store a batch, or fail, as the test sets it."""
        task = asyncio.get_running_loop().create_task(self._append(queue_id, batch))
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)
        return task

    async def _append(self, queue_id: int, batch: SealedBatch) -> AppendedBatch:
        self.seen.append(batch)
        self.arrived.set()
        await self.gate.wait()
        if self.refusals:
            raise self.refusals.popleft()
        key = (batch.producer_id, queue_id, batch.first_sequence)
        appended = self._dedup.get(key)
        if appended is None:
            appended = AppendedBatch(self.end(queue_id), 5, FlushMode.SYNC)
            self.queues[queue_id].append(StoredBatch(appended.first_offset, 5, batch))
            if batch.producer_id:
                self._dedup[key] = appended
            stored, self._stored = self._stored, asyncio.Event()
            stored.set()
        if self.lost_answers:
            self.lost_answers -= 1
            raise Unavailable("the answer was lost")
        return appended

    def end(self, queue_id: int) -> int:
        """The queue's next offset."""
        return sum(stored.batch.count for stored in self.queues[queue_id])

    async def fetch(self, request: FetchBatchesRequest) -> FetchedBatches:
        """One batch at a time; waits for ever at the end."""
        while True:
            if request.generation:
                self.locks.check_generation((request.topic_id, request.group, request.queue_id), request.generation)
            end = self.end(request.queue_id)
            if request.from_offset > end:
                raise OutOfRange(begin_offset=0, end_offset=end)
            for stored in self.queues[request.queue_id]:
                if stored.next_offset > request.from_offset:
                    return FetchedBatches((stored,), stored.next_offset, end)
            if not request.wait_ms:
                return FetchedBatches((), request.from_offset, end)
            await self._stored.wait()

    async def commit_offsets(
        self,
        topic_id: int,
        group: str,
        rows: Sequence[OffsetRow],
        *,
        reset: bool = False,
        forward_only: bool = False,
        sink: SinkIdentity | None = None,
    ) -> list[int]:
        """Store offsets, or fail, as the test sets it."""
        if reset:
            for queue_id, _, _ in rows:
                self.locks.fence((topic_id, group, queue_id), 0)
            stored, self._stored = self._stored, asyncio.Event()
            stored.set()
        fenced = [q for q, _, g in rows if 0 < g < self.locks.generation((topic_id, group, q))]
        offsets = {q: offset for q, offset, _ in rows if q not in fenced}
        self.commits.append(offsets)
        self.arrived.set()
        await self.gate.wait()
        if self.commit_refusals:
            raise self.commit_refusals.popleft()
        self.offsets.update({(group, queue_id): offset for queue_id, offset in offsets.items()})
        return fenced

    async def take_locks(self, incarnation: str, requests: Sequence[LockRequest]) -> list[LockResult]:
        """Decide as an enode does, while no time passes."""
        answers = []
        for one in requests:
            key = (one.topic_id, one.group, one.queue_id)
            table_request = TableRequest(key, one.owner, one.session_id, "", one.resume)
            answer = self.locks.take(table_request, 0.0, generation_above=0)
            if isinstance(answer, LockGranted):
                answers.append(LockResult(answer.generation))
            else:
                answers.append(LockResult(0, answer.owner, 60_000))
        return answers

    async def release_locks(self, requests: Sequence[LockRequest]) -> list[bool]:
        """Release locks."""
        return [
            self.locks.release((one.topic_id, one.group, one.queue_id), one.session_id) is not None for one in requests
        ]

    async def attach(self, snode: str, incarnation: str, on_freed: Callable[[Sequence[LockKey]], None]) -> None:
        """Stay for ever."""
        await asyncio.Event().wait()

    async def query_offsets(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, int]:
        """Stored offsets."""
        return {queue_id: offset for (name, queue_id), offset in self.offsets.items() if name == group}

    async def query_starts(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, StoredOffset]:
        """Stored offsets, with the interruptions after them."""
        offsets = await self.query_offsets(topic_id, group, queue_ids)
        found = {}
        for queue_id, offset in offsets.items():
            one = self.interruptions.of((topic_id, group, queue_id), offset)
            found[queue_id] = StoredOffset(offset, Interruption(*dataclasses.astuple(one)) if one is not None else None)
        return found

    async def record_interruptions(
        self, group: str, topic_id: int, consumer: str, interruptions: Sequence[Interruption]
    ) -> None:
        """Record interruptions as an enode does."""
        for one in interruptions:
            place, committed = (topic_id, group, one.queue_id), self.offsets.get((group, one.queue_id), 0)
            self.interruptions.record(place, enode_interruptions.Interruption(*dataclasses.astuple(one)), committed)

    async def describe_queues(self, topic_id: int) -> list[QueueRange]:
        """From 0 to the end."""
        if topic_id != TOPIC.topic_id:
            raise NotFound(field="topic_id")
        return [QueueRange(number, 0, self.end(number)) for number in self.queues]

    async def find_offset(self, topic_id: int, queue_id: int, stored_at_ms: int) -> int:
        """The end."""
        return self.end(queue_id)

    async def append_deduplicated(
        self, topic_id: int, queue_id: int, batch: SealedBatch, ids: Sequence[str]
    ) -> list[MessagePlace]:
        """No mode is stored here."""
        appended = await self.append(topic_id, queue_id, batch)
        return [MessagePlace(queue_id, appended.first_offset + row) for row in range(batch.count)]

    async def use_mode(self, topic_id: int, group: str, mode: DeliveryMode) -> None:
        """Accept any mode."""
