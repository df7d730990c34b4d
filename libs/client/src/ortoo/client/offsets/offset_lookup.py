"""The start offset of a queue that was just assigned: the committed offset, or else the offset of the start rule."""

from collections.abc import Sequence

from ortoo.client.core.connection import Connection
from ortoo.client.core.queues import Queue
from ortoo.client.core.wire import queue_of, wire_queue
from ortoo.client.offsets.start_point import StartRule
from ortoo.client.offsets.store import OffsetStore
from ortoo.v1 import consumer_pb2, pull_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub


async def start_offsets(
    connection: Connection, store: OffsetStore, queues: Sequence[Queue], rule: StartRule
) -> dict[Queue, int]:
    """The first offset to consume in each queue; queues whose offset cannot be determined now are missing.

    Errors: Unavailable, NotFound.
    """
    committed = await store.load(queues)
    starts = {queue: offset for queue, offset in committed.items() if offset is not None}
    without_offset = [queue for queue in committed if queue not in starts]
    ranges = await offset_ranges(connection, {queue.topic for queue in without_offset}) if without_offset else {}
    for queue in without_offset:
        if queue in ranges:
            begin, end = ranges[queue]
            at_time = None
            if rule.needs_time(queue.topic):
                at_time = await search_offset(connection, queue, rule.from_time_ms or 0)
            starts[queue] = rule.offset(queue.topic, begin, end, at_time)
    return starts


async def offset_ranges(connection: Connection, topics: set[str]) -> dict[Queue, tuple[int, int]]:
    """The first stored offset and the next offset to be stored, for every queue of some topics.

    Errors: Unavailable, NotFound.
    """
    ranges: dict[Queue, tuple[int, int]] = {}
    for topic in sorted(topics):
        request = consumer_pb2.QueryQueuesRequest(topic=topic)
        answer = await connection.call(ConsumerServiceStub, "QueryQueues", request)
        ranges |= {queue_of(it.queue): (it.begin_offset, it.end_offset) for it in answer.queues}
    return ranges


async def search_offset(connection: Connection, queue: Queue, time_ms: int) -> int:
    """The first offset stored at or after a time, or else the end of the queue. Errors: Unavailable, NotFound."""
    request = pull_pb2.SearchOffsetRequest(queue=wire_queue(queue), time_ms=time_ms)
    return int((await connection.call(ConsumerServiceStub, "SearchOffset", request)).offset)
