"""ProducerService: sends, recalls, transactions and routes."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid, OrtooError, Overloaded, Unavailable
from ortoo.common.errors.status import failure_of
from ortoo.common.groups.requests import RequestOptions
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.enum_values import check_known, find_unknown, known_or
from ortoo.common.grpc.errors import Context, translate_error
from ortoo.common.grpc.messages import read, write
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.containment import as_ortoo_error
from ortoo.common.records.batch import open_batch
from ortoo.snode import log_events
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.wire import decode_message, decode_queue, encode_queue, encode_topic
from ortoo.snode.enodes.link import EnodeLinks, FlushMode, HalfVerdict, VerdictSource
from ortoo.snode.observe.send_latency import SendLatency
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.snode.rpc.streams import LongCalls
from ortoo.snode.send import SendComponents
from ortoo.snode.send.batch_stream import ProduceResult, ProduceStream
from ortoo.snode.send.transactions import TransactionCheckCall
from ortoo.snode.topics import TopicComponents
from ortoo.v1 import producer_pb2 as pb
from ortoo.v1 import producer_pb2_grpc, record_pb2

CHECKS_MAX, CHECKS_BYTES_MAX = 1_000, 16 << 20
"""Maximum number and bytes of checks that wait for a slow producer; further ones are dropped."""
_log = get_logger("producer")
NAME = pb.DESCRIPTOR.services_by_name["ProducerService"].full_name


@dataclass(eq=False)
class ProducerService(producer_pb2_grpc.ProducerServiceServicer):
    """The service by which producers send messages."""

    runtime: Runtime
    cluster: ClusterView
    links: EnodeLinks
    topics: TopicComponents
    sending: SendComponents
    long_calls: LongCalls
    send_latency: SendLatency
    _streams: dict[ProduceStream, asyncio.Task[Any]] = field(init=False, default_factory=dict)

    @property
    def connections(self) -> int:
        """The number of open Produce streams."""
        return len(self._streams)

    def drain(self) -> None:
        """Stop reading batches; each stream ends when the batches read so far are answered."""
        for stream in self._streams:
            self._end(stream, "this snode is stopping")

    def _end(self, stream: ProduceStream, reason: str) -> None:
        self._streams[stream].cancel()
        stream.finish(Unavailable(f"{reason}; open the stream at another snode and send the remaining batches there"))

    async def Publish(self, request: pb.PublishRequest, context: Context) -> pb.PublishResponse:
        """Store a few messages; returns when they are durable."""
        queue = decode_queue(request.queue) if request.HasField("queue") else None
        options = [read(RequestOptions, one) for one in request.requests]
        receipts = await self.sending.publisher.publish(
            request.topic, list(map(decode_message, request.messages)), queue, options
        )
        return pb.PublishResponse(receipts=[write(pb.Receipt, one) for one in receipts])

    async def Produce(  # type: ignore[override]  # see bulk_calls
        self, request_iterator: AsyncIterator[BulkMessage], context: Context
    ) -> AsyncIterator[pb.ProduceResponse]:
        """Store batches at full speed, with many batches in flight."""
        memory = self.runtime.memory.share("produce streams")
        directory, topics, clock = self.cluster.directory, self.topics.producer_topics, self.runtime.clock
        stream = ProduceStream(directory, topics, self.links, memory, clock, self.send_latency.observe_batch)
        scope = self.runtime.background.scope(
            "Produce", failed=lambda error: stream.finish(as_ortoo_error(error, "Produce"))
        )
        self._streams[stream] = scope.start("read", _read_batches(request_iterator, stream))
        try:
            with self.runtime.stream_ages.track(lambda: self._end(stream, "the stream has reached its age")):
                while answers := await stream.next_results():
                    for answer in answers:
                        yield _encode_result(answer)
        finally:
            stream.memory.close()
            del self._streams[stream]
            scope.cancel()

    async def RecallMessage(self, request: pb.RecallMessageRequest, context: Context) -> pb.RecallMessageResponse:
        """Recall a delayed message."""
        return pb.RecallMessageResponse(message_id=await self.sending.delayed.recall(request.recall_handle))

    async def BeginTransaction(
        self, request: pb.BeginTransactionRequest, context: Context
    ) -> pb.BeginTransactionResponse:
        """Store messages that stay invisible until they are committed."""
        started = await self.sending.transactions.begin(
            request.topic,
            list(map(decode_message, request.messages)),
            request.producer_group,
            check_after_ms=request.check_after_ms,
            queue=decode_queue(request.queue) if request.HasField("queue") else None,
            key=request.key,
        )
        return pb.BeginTransactionResponse(transaction_id=started.transaction_id, message_ids=started.message_ids)

    async def EndTransaction(self, request: pb.EndTransactionRequest, context: Context) -> pb.EndTransactionResponse:
        """Commit or roll back a transaction."""
        verdict = known_or(HalfVerdict, request.verdict, None)
        if verdict is None:
            raise Invalid("expected VERDICT_COMMIT or VERDICT_ROLL_BACK", field="verdict")
        check_known(request, "source")
        source = known_or(VerdictSource, request.source, VerdictSource.PRODUCER)
        await self.sending.transactions.end(request.transaction_id, verdict, source)
        return pb.EndTransactionResponse()

    async def WatchTransactionChecks(
        self, request: pb.WatchTransactionChecksRequest, context: Context
    ) -> AsyncIterator[pb.WatchTransactionChecksResponse]:
        """Send a producer the checks of open transactions."""
        check_group_name(request.producer_group, "producer_group")
        checks: asyncio.Queue[TransactionCheckCall] = asyncio.Queue(CHECKS_MAX)
        waiting_bytes = 0
        principal = PRINCIPAL.get()
        with self.long_calls.track() as memory:

            def ask(check: TransactionCheckCall) -> bool:
                nonlocal waiting_bytes
                if not principal.may_send_to(check.topic):
                    return False
                size_bytes = len(check.batch.records)
                if checks.full() or waiting_bytes + size_bytes > CHECKS_BYTES_MAX:  # the enode repeats the check
                    return True
                try:
                    memory.draw(size_bytes)
                except Overloaded as error:
                    _log.emit(log_events.TRANSACTION_CHECK_SKIPPED, transaction=check.transaction_id, reason=str(error))
                else:
                    checks.put_nowait(check)
                    waiting_bytes += size_bytes
                return True

            self.sending.transactions.add_producer(request.producer_group, ask)
            try:
                yield pb.WatchTransactionChecksResponse()
                while True:
                    check = await checks.get()
                    yield _encode_check(check)
                    memory.release(len(check.batch.records))
                    waiting_bytes -= len(check.batch.records)
            finally:
                self.sending.transactions.remove_producer(request.producer_group, ask)

    async def QueryRoute(self, request: pb.QueryRouteRequest, context: Context) -> pb.QueryRouteResponse:
        """The queues to which messages of a topic may be sent."""
        topic = await (self.topics.producer_topics if request.for_write else self.cluster.watch).topic(request.topic)
        takes_messages = topic.writable and not topic.owner_kind
        writable = self.cluster.directory.available_queues(topic.write_queues()) if takes_messages else []
        readable = topic.read_queues() if topic.readable else []
        return pb.QueryRouteResponse(
            topic=encode_topic(topic),
            writable_queues=map(encode_queue, writable),
            readable_queues=map(encode_queue, readable),
        )


def add_to_server(service: ProducerService, server: Any) -> None:
    """Add the service to a server."""
    bulk_calls.add_service(server, producer_pb2_grpc.add_ProducerServiceServicer_to_server, service, "Produce")


async def _read_batches(requests: AsyncIterator[BulkMessage], stream: ProduceStream) -> None:
    error: OrtooError | None = None
    try:
        async for request, (records,) in requests:
            queue, batch = decode_queue(request.queue), batch_of(request.batch, records)
            mode, refusal = known_or(FlushMode, request.flush_mode, FlushMode.SYNC), find_unknown(request, "flush_mode")
            await stream.submit(request.request_id, queue, batch, mode, refusal)
            del request, records, batch
    except Exception as failure:
        error = translate_error(failure, "Produce")
    stream.finish(error)


def _encode_check(check: TransactionCheckCall) -> pb.WatchTransactionChecksResponse:
    return write(
        pb.WatchTransactionChecksResponse,
        check,
        messages=[write(record_pb2.Message, one) for one in open_batch(check.batch)],
        checks=check.half.checks,
        started_at_ms=check.half.stored_at_ms,
    )


def _encode_result(result: ProduceResult) -> pb.ProduceResponse:
    if result.error is not None:
        return pb.ProduceResponse(request_id=result.request_id, failure=failure_of(result.error))
    return write(pb.ProduceResponse, result.appended, request_id=result.request_id, recall_seal=result.recall_seal)
