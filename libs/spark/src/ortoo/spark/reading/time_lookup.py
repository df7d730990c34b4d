"""Which offset a queue had at a time."""

from ortoo.client import Queue, Unsupported
from ortoo.spark.core.link import Link
from ortoo.spark.reading.topic_state import Range
from ortoo.v1 import pull_pb2, topic_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

__all__ = ["offset_at"]


def offset_at(link: Link, queue: Queue, held: Range, time_ms: int) -> int:
    """The first offset stored at or after `time_ms`; the end of the queue if there is none."""
    request = pull_pb2.SearchOffsetRequest(
        queue=topic_pb2.Queue(topic=queue.topic, enode=queue.enode, queue_id=queue.queue_id), time_ms=time_ms
    )
    try:
        found = int(link.call(ConsumerServiceStub, "SearchOffset", request).offset)
    except Unsupported:
        found = _bisected(link, queue, held, time_ms)
    return min(max(found, held.begin), held.end)


def _bisected(link: Link, queue: Queue, held: Range, time_ms: int) -> int:
    """The same from servers that do not search: times never go back within a queue, so halving finds it."""
    low, high = held.begin, held.end
    while low < high:
        middle = (low + high) // 2
        batches = list(link.fetch(queue, middle, middle + 1, columns=("count",)))
        if batches and batches[0].stored_at_ms < time_ms:
            low = middle + 1
        else:
            high = middle
    return low
