"""The start offset of a queue that was just assigned: the committed offset, or else the offset of the start rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ortoo.client.core.connection import Connection
from ortoo.client.core.queues import Queue
from ortoo.client.core.wire import queue_of, wire_queue
from ortoo.client.offsets.start_point import StartRule
from ortoo.client.offsets.store import OffsetStore
from ortoo.common.errors import OrtooError
from ortoo.common.errors.status import error_of
from ortoo.v1 import consumer_pb2, pull_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

QUEUES_MEASURED_MAX = 1_024
"""Maximum of queues in one call."""


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


@dataclass(frozen=True, slots=True)
class QueueSize:
    """The stored bytes of a part of a queue that ends at `end_offset`, exclusive."""

    end_offset: int
    size_bytes: int
    """After compression."""


async def measure_queues(
    connection: Connection, starts: Mapping[Queue, tuple[int, int]]
) -> dict[Queue, QueueSize | OrtooError]:
    """The stored bytes of queues, each from (first offset, maximum of bytes); or why a queue has no result.

    The size of a queue is that of its next batches within the maximum, of at least one batch if there is one. Errors:
    Unavailable, Unsupported (the cluster's version cannot measure).
    """
    found: dict[Queue, QueueSize | OrtooError] = {}
    queues = list(starts)
    for first in range(0, len(queues), QUEUES_MEASURED_MAX):
        request = pull_pb2.MeasureQueuesRequest()
        for queue in queues[first : first + QUEUES_MEASURED_MAX]:
            from_offset, bytes_max = starts[queue]
            request.queues.add(queue=wire_queue(queue), from_offset=from_offset, bytes_max=bytes_max)
        response = await connection.call(ConsumerServiceStub, "MeasureQueues", request)
        found |= {queue_of(one.queue): QueueSize(one.end_offset, one.size_bytes) for one in response.sizes}
        found |= {queue_of(one.queue): error_of(one.failure) for one in response.refused}
    return found


async def search_offset(connection: Connection, queue: Queue, time_ms: int) -> int:
    """The first offset stored at or after a time, or else the end of the queue. Errors: Unavailable, NotFound."""
    request = pull_pb2.SearchOffsetRequest(queue=wire_queue(queue), time_ms=time_ms)
    return int((await connection.call(ConsumerServiceStub, "SearchOffset", request)).offset)
