"""FetchBatches: reads of many queues over one stream, most of them waiting at the end of their queue."""

from collections.abc import AsyncIterator

from ortoo.common.errors import OrtooError, OutOfRange, Overloaded
from ortoo.common.errors.status import failure_of
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.grpc.call_memory import current_share
from ortoo.common.process.containment import Scope
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.enode.rpc.streams.all import outcome
from ortoo.enode.rpc.streams.outbox import Outbox
from ortoo.enode.store.store import Fetched, Store
from ortoo.v1 import enode_pb2, record_pb2

READS_MAX = 8_000
"""How many reads of one stream may be open, waiting ones included."""
BYTES_READ_MAX = 32 << 20
"""How many bytes of one stream may be read and not yet taken by the peer."""
BYTES_DEFAULT = 1 << 20
"""What one read answers at most, unless it says otherwise."""
READ_BYTES = 2 << 10
"""What an open read costs by itself, about."""
REFUSAL_COST_BYTES = 4096
"""What the refusal of a read too many counts, so that a peer that does not listen is not read either."""
WAIT_MS_MAX = 120_000
"""The longest that one read may wait; the peer asks again."""


class FetchStream:
    """One open FetchBatches call."""

    waits_at_stop = False

    def __init__(self, store: Store, topics: TopicCopies) -> None:
        self.outbox = Outbox[Bulky](bytes_max=BYTES_READ_MAX)
        self._memory = current_share()
        self._store = store
        self._topics = topics

    async def serve(self, requests: AsyncIterator[enode_pb2.FetchBatchesRequest], scope: Scope) -> None:
        """Read requests and begin one read for each; return when the peer sends no more."""
        async for request in requests:
            self.outbox.open_requests += 1
            try:
                if self.outbox.open_requests > READS_MAX:
                    raise Overloaded(f"{READS_MAX} reads are open on this stream; open another", retry_after_ms=1000)
                if self._memory is not None:
                    self._memory.fix(READ_BYTES)
            except Overloaded as full:
                await self.outbox.reserve(REFUSAL_COST_BYTES)
                self.outbox.put(_refusal(request, full), REFUSAL_COST_BYTES)
            else:
                scope.start("fetch", self._fetch(request))

    async def _fetch(self, request: enode_pb2.FetchBatchesRequest) -> None:
        try:
            answer = await outcome("read", self._read(request))
            self.outbox.put(*((_refusal(request, answer), 0) if isinstance(answer, OrtooError) else answer))
        finally:
            if self._memory is not None:
                self._memory.unfix(READ_BYTES)

    async def _read(self, request: enode_pb2.FetchBatchesRequest) -> tuple[Bulky, int]:
        """Read now, under a reservation; at the end of the queue wait without one.

        What a waiting read is woken with was just stored: those bytes are in the store's memory anyway and are shared
        by all who waited for them, so only reads that fetch old batches have to reserve.
        """
        topic_id, queue_id, from_offset = request.topic_id, request.queue_id, request.from_offset
        if self._topics.lacks(topic_id, queue_id):
            await self._topics.arrival(topic_id, queue_id)
        key = (topic_id, request.group, queue_id)
        self._store.locks.check(key, request.generation)
        bytes_max = request.bytes_max or BYTES_DEFAULT
        cost_bytes = min(bytes_max, BYTES_READ_MAX)
        await self.outbox.reserve(cost_bytes)
        try:
            fetched = await self._store.fetch(topic_id, queue_id, from_offset, bytes_max=bytes_max)
            if fetched.batches or not request.wait_ms:
                answer = _answer(request, fetched)
                reserved, cost_bytes = cost_bytes, 0
                return answer, reserved
        finally:
            self.outbox.release(cost_bytes)
        wait_ms = min(request.wait_ms, WAIT_MS_MAX)
        fetched = await self._store.fetch(topic_id, queue_id, from_offset, bytes_max=bytes_max, wait_ms=wait_ms)
        self._store.locks.check(key, request.generation)
        return _answer(request, fetched), 0


def _answer(request: enode_pb2.FetchBatchesRequest, fetched: Fetched) -> Bulky:
    response = enode_pb2.FetchBatchesResponse(
        request_id=request.request_id,
        next_offset=fetched.next_offset,
        end_offset=fetched.end_offset,
        batches=[
            enode_pb2.StoredBatch(
                first_offset=stored.first_offset,
                stored_at_ms=stored.stored_at_ms,
                batch=record_pb2.SealedBatch(
                    records_crc32c=stored.batch.records_crc32c,
                    count=stored.batch.count,
                    body_inflated_bytes=stored.batch.body_inflated_bytes,
                    producer_id=stored.batch.producer_id,
                    first_sequence=stored.batch.first_sequence,
                ),
            )
            for stored in fetched.batches
        ],
    )
    return Bulky(response, [stored.batch.records for stored in fetched.batches])


def _refusal(request: enode_pb2.FetchBatchesRequest, error: OrtooError) -> Bulky:
    begin, end = (error.begin_offset, error.end_offset) if isinstance(error, OutOfRange) else (0, 0)
    response = enode_pb2.FetchBatchesResponse(
        request_id=request.request_id, failure=failure_of(error), begin_offset=begin, end_offset=end
    )
    return Bulky(response)
