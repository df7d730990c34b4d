"""ProducerService."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid, OrtooError, Unavailable
from ortoo.common.errors.status import failure_of
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.process.background import Background
from ortoo.common.records.batch import open_batch
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.cluster.wire import batch_of, message_of, message_to, queue_of, queue_to, topic_to
from ortoo.snode.enodes.link import EnodeLinks, FlushMode, HalfVerdict, VerdictSource
from ortoo.snode.rpc.long_calls import LongCalls
from ortoo.snode.rpc.requests import read_failed
from ortoo.snode.send.batch_stream import ProduceAnswer, ProduceStream
from ortoo.snode.send.delayed import Delayed
from ortoo.snode.send.publisher import Publisher
from ortoo.snode.send.transactions import Check, Transactions
from ortoo.snode.topics.arrival import TopicSource
from ortoo.v1 import producer_pb2, producer_pb2_grpc

NAME = producer_pb2.DESCRIPTOR.services_by_name["ProducerService"].full_name
Context = grpc.aio.ServicerContext[Any, Any]


class ProducerService(producer_pb2_grpc.ProducerServiceServicer):
    """How messages get in."""

    def __init__(
        self,
        directory: Directory,
        watch: DirectoryWatch,
        sendable: TopicSource,
        links: EnodeLinks,
        publisher: Publisher,
        delayed: Delayed,
        transactions: Transactions,
        long_calls: LongCalls,
        background: Background,
    ) -> None:
        self._directory = directory
        self._watch = watch
        self._sendable = sendable
        self._links = links
        self._publisher = publisher
        self._delayed = delayed
        self._transactions = transactions
        self._long_calls = long_calls
        self._background = background
        self._streams: dict[ProduceStream, asyncio.Task[Any]] = {}

    def drain(self) -> None:
        """Read no further batches; the streams end when what was read is answered."""
        for stream, reading in self._streams.items():
            reading.cancel()
            stream.end(Unavailable("this snode stops; open the stream at another one and send the rest there"))

    async def Publish(self, request: producer_pb2.PublishRequest, context: Context) -> producer_pb2.PublishResponse:
        """Send a few messages; returns when they are durable."""
        queue = queue_of(request.queue) if request.HasField("queue") else None
        receipts = await self._publisher.publish(request.topic, list(map(message_of, request.messages)), queue)
        return producer_pb2.PublishResponse(
            receipts=[
                producer_pb2.Receipt(
                    message_id=r.message_id,
                    queue=queue_to(r.queue),
                    offset=r.offset,
                    recall_handle=r.recall_handle,
                    duplicate=r.duplicate,
                )
                for r in receipts
            ]
        )

    async def Produce(  # type: ignore[override]  # see bulk_calls
        self, request_iterator: AsyncIterator[Bulky], context: Context
    ) -> AsyncIterator[producer_pb2.ProduceResponse]:
        """Send batches at full speed, many in flight."""
        stream = ProduceStream(self._directory, self._sendable, self._links)
        reading = self._background.spawn("produce", _read(request_iterator, stream))
        self._streams[stream] = reading
        try:
            while answers := await stream.next_answers():
                for answer in answers:
                    yield _answer(answer)
        finally:
            del self._streams[stream]
            reading.cancel()

    async def RecallMessage(
        self, request: producer_pb2.RecallMessageRequest, context: Context
    ) -> producer_pb2.RecallMessageResponse:
        """Forget a delayed message."""
        return producer_pb2.RecallMessageResponse(message_id=await self._delayed.recall(request.recall_handle))

    async def BeginTransaction(
        self, request: producer_pb2.BeginTransactionRequest, context: Context
    ) -> producer_pb2.BeginTransactionResponse:
        """Store messages that nobody sees until they are committed."""
        begun = await self._transactions.begin(
            request.topic,
            list(map(message_of, request.messages)),
            request.producer_group,
            check_after_ms=request.check_after_ms,
            queue=queue_of(request.queue) if request.HasField("queue") else None,
            key=request.key,
        )
        return producer_pb2.BeginTransactionResponse(transaction_id=begun.transaction_id, message_ids=begun.message_ids)

    async def EndTransaction(
        self, request: producer_pb2.EndTransactionRequest, context: Context
    ) -> producer_pb2.EndTransactionResponse:
        """Commit or roll back."""
        if int(request.verdict) not in (1, 2):
            raise Invalid("a transaction ends by VERDICT_COMMIT or VERDICT_ROLL_BACK", field="verdict")
        source = VerdictSource(request.source) if request.source in (1, 2, 3) else VerdictSource.PRODUCER
        await self._transactions.end(request.transaction_id, HalfVerdict(request.verdict), source)
        return producer_pb2.EndTransactionResponse()

    async def WatchTransactionChecks(
        self, request: producer_pb2.WatchTransactionChecksRequest, context: Context
    ) -> AsyncIterator[producer_pb2.WatchTransactionChecksResponse]:
        """Ask a producer about transactions that nobody has ended."""
        check_group_name(request.producer_group, "producer_group")
        checks: asyncio.Queue[Check] = asyncio.Queue()
        with self._long_calls.running():
            gone = self._transactions.watch(request.producer_group, checks.put_nowait)
            try:
                yield producer_pb2.WatchTransactionChecksResponse()
                while True:
                    yield _check(await checks.get())
            finally:
                gone()

    async def QueryRoute(
        self, request: producer_pb2.QueryRouteRequest, context: Context
    ) -> producer_pb2.QueryRouteResponse:
        """Where the messages of a topic may go."""
        topic = await (self._sendable if request.to_send else self._watch).topic(request.topic)
        writable = self._directory.alive(topic.write_queues()) if topic.writable else []
        readable = topic.read_queues() if topic.readable else []
        return producer_pb2.QueryRouteResponse(
            topic=topic_to(topic),
            writable_queues=map(queue_to, writable),
            readable_queues=map(queue_to, readable),
        )


def add_to_server(service: ProducerService, server: Any) -> None:
    """Serve it."""
    producer_pb2_grpc.add_ProducerServiceServicer_to_server(service, server)
    bulk_calls.serve(server, {"Produce": service.Produce})


async def _read(requests: AsyncIterator[Bulky], stream: ProduceStream) -> None:
    error: OrtooError | None = None
    try:
        async for request, (records,) in requests:
            mode = FlushMode(request.flush_mode) if request.flush_mode in (0, 1, 2) else FlushMode.SYNC
            await stream.take(request.request_id, queue_of(request.queue), batch_of(request.batch, records), mode)
    except Exception as failure:
        error = read_failed(failure, "Produce")
    stream.end(error)


def _check(check: Check) -> producer_pb2.WatchTransactionChecksResponse:
    return producer_pb2.WatchTransactionChecksResponse(
        transaction_id=check.transaction_id,
        topic=check.topic,
        messages=map(message_to, open_batch(check.batch)),
        checks=check.half.checks,
        begun_at_ms=check.half.stored_at_ms,
    )


def _answer(answer: ProduceAnswer) -> producer_pb2.ProduceResponse:
    appended = answer.appended
    if appended is None:
        assert answer.error is not None
        return producer_pb2.ProduceResponse(request_id=answer.request_id, failure=failure_of(answer.error))
    return producer_pb2.ProduceResponse(
        request_id=answer.request_id,
        first_offset=appended.first_offset,
        stored_at_ms=appended.stored_at_ms,
        flush_mode=appended.flush_mode.value,  # type: ignore[arg-type]
    )
