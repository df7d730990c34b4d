"""The FetchBatches stream: reads of many queues. Most reads wait at the end of their queue."""

from collections.abc import AsyncIterator, Callable
from functools import partial

from ortoo.common.errors import NOT_ACCEPTED_FIELD, OrtooError, OutOfRange, Overloaded, Unavailable
from ortoo.common.errors.status import failure_of
from ortoo.common.filters.pushdown import SelectedPart
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.layers.call_memory import current_memory_share
from ortoo.common.process.containment import Scope
from ortoo.common.records.sealed_batch import StoredBatch
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.enode.log.results import FetchResult
from ortoo.enode.reading.reader import OnBatch
from ortoo.enode.rpc.streams.outbox import Outbox
from ortoo.enode.rpc.streams.pushdown import PART_BYTES, Fetch, PushdownRead, PushdownResult
from ortoo.enode.rpc.streams.runner import result_or_error
from ortoo.enode.store.engine import Engine
from ortoo.enode.store.store import Store
from ortoo.v1 import enode_pb2, record_pb2

READS_MAX = 8_000
"""The number of open reads of one stream, including waiting ones."""
BYTES_READ_MAX = 32 << 20
"""The bytes of one stream that may be read and not yet taken by the peer."""
BYTES_DEFAULT = 1 << 20
"""The default limit of one read."""
READ_BYTES = 2 << 10
"""About the memory of an open read without its answer."""
REFUSAL_COST_BYTES = 4096
"""The cost of a refusal, so that a peer that does not read its answers is not read either."""
WAIT_MS_MAX = 120_000
"""The longest wait of one read; then the peer has to repeat it."""


class ReadStream:
    """One open FetchBatches call."""

    waits_at_stop = False

    def __init__(self, fetch: Fetch, work: DiskWork) -> None:
        self.outbox = Outbox[BulkMessage](bytes_max=BYTES_READ_MAX)
        self._memory = current_memory_share()
        self._fetch_batches = fetch
        self._work = work

    async def serve(self, requests: AsyncIterator[enode_pb2.FetchBatchesRequest], scope: Scope) -> None:
        """Read requests and start a read for each; return when the peer ends its side."""
        async for request in requests:
            self.outbox.open_requests += 1
            try:
                if self.outbox.open_requests > READS_MAX:
                    raise Overloaded(f"{READS_MAX} reads are open on this stream; open another", retry_after_ms=1000)
                if self._memory is not None:
                    self._memory.draw_fixed(READ_BYTES)
            except Overloaded as full:
                await self.outbox.reserve(REFUSAL_COST_BYTES)
                self.outbox.put(_refusal(request, full), REFUSAL_COST_BYTES)
            else:
                scope.start("fetch", self._fetch(request))

    async def _fetch(self, request: enode_pb2.FetchBatchesRequest) -> None:
        try:
            answer = await result_or_error("read", self._read(request))
            self.outbox.put(*((_refusal(request, answer), 0) if isinstance(answer, OrtooError) else answer))
        finally:
            if self._memory is not None:
                self._memory.release_fixed(READ_BYTES)

    async def _read(self, request: enode_pb2.FetchBatchesRequest) -> tuple[BulkMessage, int]:
        """The answer and the bytes reserved for it. Any error is sent as a refusal."""
        raise NotImplementedError

    async def _read_now(
        self, request: enode_pb2.FetchBatchesRequest, pushed_down: PushdownRead | None
    ) -> tuple[BulkMessage, int]:
        """Read under a reservation; returns the answer and the reserved bytes, 0 if a waiting read found nothing."""
        bytes_max = request.bytes_max or BYTES_DEFAULT
        cost_bytes = min(bytes_max + (PART_BYTES if pushed_down else 0), BYTES_READ_MAX)
        await self.outbox.reserve(cost_bytes)
        try:
            found = await self._fetch_with_pushdown(request, pushed_down)
            answer = _answer(request, found)
            if found.next_offset > request.from_offset or not request.wait_ms:
                reserved, cost_bytes = cost_bytes, 0
                return answer, reserved
            return answer, 0
        finally:
            self.outbox.release(cost_bytes)

    async def _fetch_with_pushdown(
        self, request: enode_pb2.FetchBatchesRequest, pushed_down: PushdownRead | None, wait_ms: int = 0
    ) -> FetchResult | PushdownResult:
        bytes_max = request.bytes_max or BYTES_DEFAULT
        if pushed_down is not None:
            return await pushed_down.run(self._fetch_batches, self._work, request, bytes_max, wait_ms)
        place = request.topic_id, request.queue_id, request.from_offset
        return await self._fetch_batches(*place, bytes_max=bytes_max, wait_ms=wait_ms)


class FetchStream(ReadStream):
    """The reads that the leader serves. They can wait at the end of a queue, and check generations."""

    def __init__(self, store: Store, topics: TopicCopies) -> None:
        super().__init__(store.fetch, store.engine.work)
        self._store = store
        self._topics = topics

    async def _read(self, request: enode_pb2.FetchBatchesRequest) -> tuple[BulkMessage, int]:
        """Read now, under a reservation of bytes. At the end of the queue, wait without a reservation.

        A waiting read gets batches that were just stored. These are in the store's memory anyway, and all waiting reads
        share them. So only reads of older batches need a reservation.
        """
        topic_id, queue_id = request.topic_id, request.queue_id
        if self._topics.is_missing(topic_id, queue_id):
            await self._topics.wait_for(topic_id, queue_id)
        key = (topic_id, request.group, queue_id)
        self._store.locks.table.check_generation(key, request.generation, must_match=True)
        pushed_down = PushdownRead.from_request(request)
        answer, reserved = await self._read_now(request, pushed_down)
        if reserved:
            return answer, reserved
        found = await self._fetch_with_pushdown(request, pushed_down, wait_ms=min(request.wait_ms, WAIT_MS_MAX))
        self._store.locks.table.check_generation(key, request.generation, must_match=True)
        return _answer(request, found), 0


class CommittedStream(ReadStream):
    """Reads at a follower.

    These reads return only data committed on this replica, to readers that accept any replica (`any_replica`).
    """

    def __init__(self, engine: Engine, not_leading_error: Callable[[], OrtooError]) -> None:
        super().__init__(partial(_committed, engine), engine.work)
        self._not_leading_error = not_leading_error

    async def _read(self, request: enode_pb2.FetchBatchesRequest) -> tuple[BulkMessage, int]:
        if not request.any_replica or request.wait_ms or request.group:
            raise self._not_leading_error()
        return await self._read_now(request, PushdownRead.from_request(request))


async def _committed(
    engine: Engine,
    topic_id: int,
    queue_id: int,
    from_offset: int,
    *,
    bytes_max: int,
    wait_ms: int,
    on_batch: OnBatch | None = None,
) -> FetchResult:
    """Read whole batches from an offset on. Errors: Unavailable (not stored here), DataLoss (damaged)."""
    queue = engine.catalog.queues.get((topic_id, queue_id))
    if engine.closed or queue is None or not queue.begin_offset <= from_offset < queue.end_offset:
        raise Unavailable("this replica does not have that offset: ask the enode's leader", field=NOT_ACCEPTED_FIELD)
    return await engine.reader.read(queue, from_offset, min(bytes_max, engine.settings.fetch_bytes_max), on_batch)


def _answer(request: enode_pb2.FetchBatchesRequest, found: FetchResult | PushdownResult) -> BulkMessage:
    response = enode_pb2.FetchBatchesResponse(
        request_id=request.request_id,
        next_offset=found.next_offset,
        end_offset=found.end_offset,
        batches=[_stored(one) for one in found.batches],
        pushed_down=isinstance(found, PushdownResult),
    )
    return BulkMessage(response, [one.batch.records for one in found.batches])


def _stored(one: StoredBatch | SelectedPart) -> enode_pb2.StoredBatch:
    batch = one.batch
    stored = enode_pb2.StoredBatch(
        first_offset=one.first_offset,
        stored_at_ms=one.stored_at_ms,
        batch=record_pb2.SealedBatch(
            records_crc32c=batch.records_crc32c,
            count=batch.count,
            body_inflated_bytes=batch.body_inflated_bytes,
            producer_id=batch.producer_id,
            first_sequence=batch.first_sequence,
        ),
    )
    if isinstance(one, SelectedPart):
        stored.rows, stored.next_offset, stored.row_stored_at_ms = one.rows, one.next_offset, one.row_stored_at_ms
    return stored


def _refusal(request: enode_pb2.FetchBatchesRequest, error: OrtooError) -> BulkMessage:
    begin, end = (error.begin_offset, error.end_offset) if isinstance(error, OutOfRange) else (0, 0)
    response = enode_pb2.FetchBatchesResponse(
        request_id=request.request_id, failure=failure_of(error), begin_offset=begin, end_offset=end
    )
    return BulkMessage(response)
