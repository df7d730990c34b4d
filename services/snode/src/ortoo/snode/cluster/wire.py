"""Conversion between plain values and protobuf messages."""

from ortoo.common.groups.failure_rule import ATTEMPTS_MAX
from ortoo.common.groups.handle_seal import HandleKey, HandleKeys
from ortoo.common.groups.retry_policy import RetryKind, RetryPolicy
from ortoo.common.grpc.bulk_calls import envelope_to
from ortoo.common.grpc.messages import read, write
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode.cluster.routes import (
    UNACKNOWLEDGED_BYTES_MAX,
    EnodeEntry,
    EnodeMember,
    Group,
    MemberState,
    MessageType,
    Permission,
    PublishPlace,
    Queue,
    RouteChange,
    Topic,
)
from ortoo.v1 import namesrv_pb2, record_pb2, topic_pb2


def topic_of(topic: topic_pb2.Topic) -> Topic:
    """A topic; values that only newer processes know count as unset."""
    permission, message_type = int(topic.permission), int(topic.message_type)
    return read(
        Topic,
        topic,
        permission=Permission(permission) if 0 < permission <= max(Permission) else Permission.READ_WRITE,
        message_type=MessageType(message_type) if message_type <= max(MessageType) else MessageType.UNSPECIFIED,
        publish_order=tuple(read(PublishPlace, place) for place in topic.publish_order.places),
    )


def topic_to(topic: Topic) -> topic_pb2.Topic:
    """The message of a topic."""
    places = [write(topic_pb2.PublishPlace, place) for place in topic.publish_order]
    order = topic_pb2.PublishOrder(places=places) if places else None
    return write(topic_pb2.Topic, topic, publish_order=order)


def group_of(group: topic_pb2.Group) -> Group:
    """A group."""
    return read(
        Group,
        group,
        slow_consumer_grace_ms=group.slow_consumer_grace_ms,
        unacknowledged_bytes_max=group.unacknowledged_bytes_max or UNACKNOWLEDGED_BYTES_MAX,
        attempts_max=group.attempts_max or ATTEMPTS_MAX,
        retry=retry_of(group.retry),
    )


def retry_of(retry: topic_pb2.RetryPolicy) -> RetryPolicy:
    """A back-off policy; an unknown kind, of a newer process, becomes the classic one."""
    number = int(retry.kind)
    return read(RetryPolicy, retry, kind=RetryKind(number) if number <= max(RetryKind) else RetryKind.CLASSIC)


def enode_of(enode: topic_pb2.Enode) -> EnodeEntry:
    """A storage node."""
    members = tuple(
        EnodeMember(one.number, one.disk, MemberState(one.state if one.state <= max(MemberState) else 0), one.address)
        for one in enode.members
    )
    return read(EnodeEntry, enode, members=members)


def change_of(news: namesrv_pb2.WatchRoutesResponse) -> RouteChange:
    """One message of the watch."""
    keys = tuple(read(HandleKey, key) for key in news.handle_keys.keys)
    return read(
        RouteChange,
        news,
        topics=tuple(map(topic_of, news.topics)),
        groups=tuple(map(group_of, news.groups)),
        enodes=tuple(map(enode_of, news.enodes)),
        handle_keys=HandleKeys(keys, news.handle_keys.unsigned_until_ms) if keys else None,
    )


def queue_of(queue: topic_pb2.Queue) -> Queue:
    """A queue."""
    return Queue(queue.topic, queue.enode, queue.queue_id)


def queue_to(queue: Queue) -> topic_pb2.Queue:
    """The message of a queue."""
    return topic_pb2.Queue(topic=queue.topic, enode=queue.enode, queue_id=queue.queue_id)


def batch_to(batch: SealedBatch) -> record_pb2.SealedBatch:
    """The message of a sealed batch."""
    envelope = envelope_to(batch)
    envelope.records = batch.records
    return envelope


def message_of(message: record_pb2.Message) -> Message:
    """A single message."""
    return Message(
        message.body,
        message.tag or None,
        tuple(message.keys),
        message_group=message.message_group or None,
        properties=dict(sorted(message.properties.items())),  # the order of a protobuf map is random
        message_id=message.message_id or None,
        born_at_ms=message.born_at_ms or None,
        deliver_at_ms=message.deliver_at_ms or None,
        expire_at_ms=message.expire_at_ms or None,
        priority=message.priority if message.HasField("priority") else None,
    )
