"""The Append stream: many batches in flight, stored in the order in which the log accepts them."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from ortoo.common.errors import OrtooError, Overloaded
from ortoo.common.errors.status import failure_of
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.process.containment import Scope, as_ortoo_error
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.appends.router import AppendRouter
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.enode.log.results import AppendResult
from ortoo.enode.log.settings import FlushMode
from ortoo.enode.rpc.streams.outbox import Outbox
from ortoo.enode.rpc.streams.queue_order import QueueOrder, Turn
from ortoo.enode.rpc.streams.runner import result_or_error
from ortoo.v1 import enode_pb2

BYTES_IN_FLIGHT_MAX = 32 << 20
"""The unflushed bytes of one stream at which it is no longer read."""
REQUEST_COST_BYTES = 4096
"""The cost of a request beside its batch. It bounds small requests as well, to 8,192 of them."""

AppendTurn = Turn[enode_pb2.AppendResponse]
_MODE_OF = {
    enode_pb2.FLUSH_MODE_UNSPECIFIED: FlushMode.DEFAULT,
    enode_pb2.FLUSH_MODE_SYNC: FlushMode.SYNC,
    enode_pb2.FLUSH_MODE_ASYNC: FlushMode.ASYNC,
}
_MODE_TO = {mode: number for number, mode in _MODE_OF.items()}


class AppendStream:
    """One open Append call."""

    waits_at_stop = True

    def __init__(self, appends: AppendRouter, topics: TopicCopies) -> None:
        self.outbox = Outbox[enode_pb2.AppendResponse](bytes_max=BYTES_IN_FLIGHT_MAX)
        self._appends = appends
        self._topics = topics
        self._order = QueueOrder[enode_pb2.AppendResponse](self.outbox.put)
        self._arriving: dict[tuple[int, int], asyncio.Future[None]] = {}
        """Queue to the last append that waits for its topic to arrive here; done when that append continues."""
        self._unstarted = 0
        """The number of appends whose task has not started yet; later requests must not overtake them."""

    async def serve(self, requests: AsyncIterator[BulkMessage], scope: Scope) -> None:
        """Read requests and start an append for each; return when the peer ends its side."""
        async for request, (records,) in requests:
            batch = batch_of(request.batch, records)
            cost_bytes = len(batch.records) + REQUEST_COST_BYTES
            queue = (request.topic_id, request.queue_id)
            refusal: Overloaded | None = None
            try:
                await self.outbox.reserve(cost_bytes)
            except Overloaded as full:
                refusal, cost_bytes = full, 0
            self.outbox.open_requests += 1  # only now: a request still waiting for memory at the end gets no answer
            turn = self._order.take_turn(queue, cost_bytes)
            if refusal is not None:
                self._order.answer(turn, _answer(request, refusal))
            elif not self._unstarted and (begun := self._start_now(request, batch)) is not None:
                begun.add_done_callback(partial(self._answer_done, request, turn))
            else:
                self._unstarted += 1
                scope.start("append", self._append(request, batch, turn))
            del request, records, batch

    def _start_now(self, request: enode_pb2.AppendRequest, batch: SealedBatch) -> asyncio.Future[AppendResult] | None:
        """Start an append that only has to wait for the disk, as most appends do; None if it needs a task."""
        queue = (request.topic_id, request.queue_id)
        if queue in self._arriving or self._topics.is_missing(*queue):
            return None
        try:
            batch.check()
            return self._appends.begin(*queue, batch, _mode(request))
        except Exception as error:
            failed: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    def _answer_done(
        self, request: enode_pb2.AppendRequest, turn: AppendTurn, done: asyncio.Future[AppendResult]
    ) -> None:
        if not done.cancelled():
            error = done.exception()
            failure = as_ortoo_error(error, "the append") if isinstance(error, Exception) else None
            self._order.answer(turn, _answer(request, failure or done.result()))

    async def _append(self, request: enode_pb2.AppendRequest, batch: SealedBatch, turn: AppendTurn) -> None:
        self._unstarted -= 1  # from now on later requests find it in `_arriving` if it has to wait
        self._order.answer(turn, _answer(request, await result_or_error("append", self._stored(request, batch))))

    async def _stored(self, request: enode_pb2.AppendRequest, batch: SealedBatch) -> AppendResult:
        topic_id, queue_id = request.topic_id, request.queue_id
        batch.check()
        if (topic_id, queue_id) in self._arriving or self._topics.is_missing(topic_id, queue_id):
            await self._wait_for_topic(topic_id, queue_id)
        return await self._appends.append(topic_id, queue_id, batch, flush_mode=_mode(request))

    async def _wait_for_topic(self, topic_id: int, queue_id: int) -> None:
        """Wait for a topic that is just being created. Later appends of the queue wait until this append continues."""
        before = self._arriving.get((topic_id, queue_id))
        own = self._arriving[topic_id, queue_id] = asyncio.get_running_loop().create_future()
        try:
            if self._topics.is_missing(topic_id, queue_id):
                await self._topics.wait_for(topic_id, queue_id)
        finally:
            if before is not None:
                await asyncio.wait([before])
            own.set_result(None)
            if self._arriving[topic_id, queue_id] is own:
                del self._arriving[topic_id, queue_id]


def _mode(request: enode_pb2.AppendRequest) -> FlushMode:
    return _MODE_OF.get(request.flush_mode, FlushMode.SYNC)


def _answer(request: enode_pb2.AppendRequest, result: AppendResult | OrtooError) -> enode_pb2.AppendResponse:
    if isinstance(result, OrtooError):
        return enode_pb2.AppendResponse(request_id=request.request_id, failure=failure_of(result))
    return enode_pb2.AppendResponse(
        request_id=request.request_id,
        first_offset=result.first_offset,
        stored_at_ms=result.stored_at_ms,
        flush_mode=_MODE_TO[result.flush_mode],
    )
