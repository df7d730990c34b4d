"""DescribeQueues and DescribeStore."""

from collections.abc import Iterable

from ortoo.enode.store.store import Damage, Store
from ortoo.v1 import enode_pb2


def describe_queues(store: Store, request: enode_pb2.DescribeQueuesRequest) -> enode_pb2.DescribeQueuesResponse:
    """What the queues of a topic hold."""
    return enode_pb2.DescribeQueuesResponse(
        queues=[
            enode_pb2.QueueRange(queue_id=q.queue_id, begin_offset=q.begin_offset, end_offset=q.end_offset)
            for q in store.describe_queues(request.topic_id)
        ]
    )


def describe_store(store: Store, snodes: Iterable[str]) -> enode_pb2.DescribeStoreResponse:
    """Sizes, positions, health, and which snodes are attached."""
    description = store.describe()
    return enode_pb2.DescribeStoreResponse(
        enode=description.enode,
        store_id=description.store_id,
        log_bytes=description.log_bytes,
        segment_count=description.segment_count,
        appended_position=description.appended_position,
        durable_position=description.durable_position,
        store_open_number=description.store_open_number,
        writable=description.writable,
        reason=description.reason,
        damages=map(_damage, description.damages),
        snodes=snodes,
    )


def _damage(damage: Damage) -> enode_pb2.Damage:
    return enode_pb2.Damage(
        file=damage.file,
        position=damage.position,
        length_bytes=damage.length_bytes,
        reason=damage.reason,
        queues=[
            enode_pb2.DamagedQueue(
                topic_id=q.topic_id, queue_id=q.queue_id, begin_offset=q.begin_offset, end_offset=q.end_offset
            )
            for q in damage.queues
        ],
    )
