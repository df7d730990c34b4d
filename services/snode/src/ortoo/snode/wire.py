"""Between the plain values of the snode and the messages of the wire."""

import dataclasses

from ortoo.common.message import Message
from ortoo.common.retry_policy import RetryKind, RetryPolicy
from ortoo.common.sealed_batch import SealedBatch
from ortoo.snode.routes import (
    ATTEMPTS_MAX,
    UNACKNOWLEDGED_BYTES_MAX,
    EnodeEntry,
    Group,
    MessageType,
    Permission,
    Placement,
    PublishPlace,
    Queue,
    RouteChange,
    SnodeEntry,
    Topic,
)
from ortoo.v1 import namesrv_pb2, record_pb2, topic_pb2


def topic_of(topic: topic_pb2.Topic) -> Topic:
    """A topic, read."""
    return Topic(
        topic.name,
        topic.topic_id,
        topic.version,
        Permission(topic.permission or topic_pb2.PERMISSION_READ_WRITE),
        tuple(Placement(p.enode, p.read_queue_count, p.write_queue_count) for p in topic.placements),
        topic.created_at_ms,
        MessageType(topic.message_type),
        tuple(PublishPlace(p.enode, p.queue_count) for p in topic.publish_order.places),
    )


def topic_to(topic: Topic) -> topic_pb2.Topic:
    """A topic, written."""
    return topic_pb2.Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        version=topic.version,
        permission=topic.permission.value,  # type: ignore[arg-type]
        placements=[
            topic_pb2.Placement(
                enode=p.enode, read_queue_count=p.read_queue_count, write_queue_count=p.write_queue_count
            )
            for p in topic.placements
        ],
        created_at_ms=topic.created_at_ms,
        message_type=topic.message_type.value,  # type: ignore[arg-type]
        publish_order=topic_pb2.PublishOrder(
            places=[topic_pb2.PublishPlace(**p._asdict()) for p in topic.publish_order]
        )
        if topic.publish_order
        else None,
    )


def group_of(group: topic_pb2.Group) -> Group:
    """A group, read."""
    return Group(
        group.name,
        group.version,
        group.consume_enabled,
        group.slow_consumer_threshold_messages,
        group.slow_consumer_grace_ms,
        group.created_at_ms,
        group.broadcast_enabled or not group.HasField("broadcast_enabled"),
        group.notify_members_changed or not group.HasField("notify_members_changed"),
        group.unacknowledged_bytes_max or UNACKNOWLEDGED_BYTES_MAX,
        group.attempts_max or ATTEMPTS_MAX,
        retry_of(group.retry),
        group.in_flight_max,
        group.park_expired,
    )


def retry_of(retry: topic_pb2.RetryPolicy) -> RetryPolicy:
    """A back-off policy, read; one of a kind that only newer processes know is the classic one."""
    number = int(retry.kind)
    kind = RetryKind(number) if number <= max(RetryKind) else RetryKind.CLASSIC
    return RetryPolicy(kind, retry.first_ms, retry.longest_ms, retry.factor, tuple(retry.listed_ms))


def group_to(group: Group) -> topic_pb2.Group:
    """A group, written."""
    return topic_pb2.Group(**dataclasses.asdict(group))


def enode_to(enode: EnodeEntry) -> topic_pb2.Enode:
    """A storage node, written."""
    return topic_pb2.Enode(
        name=enode.name,
        address=enode.address,
        store_id=enode.store_id,
        alive=enode.alive,
        role=enode.role,
        replica_id=enode.replica_id,
        replication_address=enode.replication_address,
        replicas=[topic_pb2.Replica(replica_id=number, address=address) for number, address in enode.replicas],
    )


def enode_of(enode: topic_pb2.Enode) -> EnodeEntry:
    """A storage node, read."""
    return EnodeEntry(
        enode.name,
        enode.address,
        enode.store_id,
        enode.alive,
        enode.role,
        enode.replica_id,
        enode.replication_address,
        tuple((one.replica_id, one.address) for one in enode.replicas),
    )


def snode_to(snode: SnodeEntry) -> topic_pb2.Snode:
    """A proxy, written."""
    return topic_pb2.Snode(name=snode.name, address=snode.address, alive=snode.alive)


def change_of(news: namesrv_pb2.WatchRoutesResponse) -> RouteChange:
    """One message of the watch, read."""
    return RouteChange(
        news.version,
        news.snapshot,
        tuple(map(topic_of, news.topics)),
        tuple(news.deleted_topics),
        tuple(map(group_of, news.groups)),
        tuple(news.deleted_groups),
        tuple(map(enode_of, news.enodes)),
        tuple(SnodeEntry(s.name, s.address, s.alive) for s in news.snodes),
    )


def queue_of(queue: topic_pb2.Queue) -> Queue:
    """A queue, read."""
    return Queue(queue.topic, queue.enode, queue.queue_id)


def queue_to(queue: Queue) -> topic_pb2.Queue:
    """A queue, written."""
    return topic_pb2.Queue(topic=queue.topic, enode=queue.enode, queue_id=queue.queue_id)


def batch_of(batch: record_pb2.SealedBatch, records: bytes | None = None) -> SealedBatch:
    """A sealed batch, read; `records` are its bytes if they came beside it."""
    return SealedBatch(
        batch.records if records is None else records,
        batch.records_crc32c,
        batch.count,
        batch.body_inflated_bytes,
        batch.producer_id,
        batch.first_sequence,
        batch.delayed,
    )


def batch_to(batch: SealedBatch) -> record_pb2.SealedBatch:
    """A sealed batch, written."""
    envelope = envelope_to(batch)
    envelope.records = batch.records
    return envelope


def envelope_to(batch: SealedBatch) -> record_pb2.SealedBatch:
    """A sealed batch without its bytes, which travel beside it."""
    return record_pb2.SealedBatch(
        records_crc32c=batch.records_crc32c,
        count=batch.count,
        body_inflated_bytes=batch.body_inflated_bytes,
        producer_id=batch.producer_id,
        first_sequence=batch.first_sequence,
        delayed=batch.delayed,
    )


def message_of(message: record_pb2.Message) -> Message:
    """A single message, read."""
    return Message(
        message.body,
        message.tag or None,
        tuple(message.keys),
        message_group=message.message_group or None,
        properties=dict(sorted(message.properties.items())),  # the order of a protobuf map is that of chance
        message_id=message.message_id or None,
        born_at_ms=message.born_at_ms or None,
        deliver_at_ms=message.deliver_at_ms or None,
        expire_at_ms=message.expire_at_ms or None,
        priority=message.priority if message.HasField("priority") else None,
    )


def message_to(message: Message) -> record_pb2.Message:
    """A single message, written."""
    return record_pb2.Message(
        body=message.body,
        tag=message.tag or "",
        keys=message.keys,
        message_group=message.message_group or "",
        properties=dict(message.properties),
        message_id=message.message_id or "",
        born_at_ms=message.born_at_ms or 0,
        deliver_at_ms=message.deliver_at_ms or 0,
        expire_at_ms=message.expire_at_ms or 0,
        priority=message.priority,
    )
