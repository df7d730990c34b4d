"""Reads a queue outside groups, without a lock or an offset."""

from collections.abc import AsyncIterator, Callable, Sequence

from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Filter, filter_expressions
from ortoo.client.core.queues import Queue
from ortoo.client.core.received import ReceivedBatch
from ortoo.client.core.wire import queue_of, received_batch, wire_queue
from ortoo.common.errors import Invalid, NotFound, OrtooError, Unavailable
from ortoo.common.errors.status import error_of, rpc_errors
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.v1 import consumer_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

FAILURES_MAX = 5


async def fetch(
    connection: Connection,
    queue: Queue,
    from_offset: int = 0,
    to_offset: int = 0,
    *,
    follow: bool = False,
    filter: Filter = "*",
    columns: Sequence[str] = (),
    coalesce: bool = False,
    on_progress: Callable[[int, int], object] | None = None,
) -> AsyncIterator[ReceivedBatch]:
    """Whole batches from `from_offset` to `to_offset`, exclusive; 0 = to the queue's end at the time of the call.

    With `follow`, the iterator never ends. Only messages that match `filter` are returned. `columns` names the fields
    that the caller reads; other fields may be missing in the batches. With `coalesce`, a batch may have rows of several
    stored batches. `on_progress` is called after each answer, even if no message matches. Its arguments are the next
    offset and the topic's id. After a broken stream the read continues through the next snode. Errors: NotFound,
    OutOfRange, Invalid, Unavailable after several breaks in a row, or DataLoss, whose `end_offset` is the next readable
    offset.
    """
    tags, sql = filter_expressions(filter)
    request = consumer_pb2.FetchRequest(
        queue=wire_queue(queue),
        follow=follow,
        tag_expression=tags,
        sql_expression=sql,
        columns=columns,
        coalesce=coalesce,
    )
    at, failures, topic_id = from_offset, 0, 0
    while True:
        address = connection.address
        try:
            if to_offset == 0 and not follow:
                # Fixed at the start, so that a read that is resumed after a break ends at the same offset.
                to_offset = await _end_of(connection, queue)
                if at == to_offset:
                    return
            request.from_offset, request.to_offset = at, to_offset
            async for answer, (records,) in _batches(connection, request):
                if topic_id not in (0, answer.topic_id):
                    raise NotFound(
                        f"topic {queue.topic!r} was deleted and created again before offset {at} was read",
                        field="queue",
                    )
                failures, at, topic_id = 0, answer.next_offset, answer.topic_id
                if on_progress is not None:
                    on_progress(at, answer.topic_id)
                if answer.HasField("batch"):
                    yield received_batch(answer, queue, records)
            if not follow:
                return
        except OrtooError as error:
            failures += 1
            if not error.retriable or failures >= FAILURES_MAX:
                raise
            if not follow and at >= to_offset > from_offset:
                return
            connection.mark_failed(address)
        await connection.back_off(failures)


async def _batches(connection: Connection, request: consumer_pb2.FetchRequest) -> AsyncIterator[BulkMessage]:
    address = connection.address
    call = bulk_calls.fetch(connection.channel(), request)
    try:
        with rpc_errors(address):
            async for answer in call:
                if answer.message.HasField("failure"):
                    raise error_of(answer.message.failure)
                yield answer
    finally:
        call.cancel()


async def _end_of(connection: Connection, queue: Queue) -> int:
    answer = await connection.call(
        ConsumerServiceStub, "QueryQueues", consumer_pb2.QueryQueuesRequest(topic=queue.topic)
    )
    for state in answer.queues:
        if queue_of(state.queue) == queue:
            return int(state.end_offset)
    # The queue does not exist, or its enode is down; a read returns which.
    try:
        async for _ in _batches(connection, consumer_pb2.FetchRequest(queue=wire_queue(queue), to_offset=1)):
            break
    except Invalid as error:
        raise NotFound(error.message, field="queue") from error
    raise Unavailable(f"queue {queue.queue_id} of topic {queue.topic!r} on enode {queue.enode!r} did not answer; retry")
