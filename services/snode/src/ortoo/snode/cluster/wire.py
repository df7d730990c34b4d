"""Conversion between plain values and protobuf messages."""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from ortoo.common.directory.group import DEFAULTS, ZERO_IS_DEFAULT, Group
from ortoo.common.directory.topic import MessageType, Permission, Placement, PublishPlace
from ortoo.common.errors import DataLoss
from ortoo.common.groups.group_topics import OwnedTopicKind, TopicOwner, owner_of_name, parent_of_topic
from ortoo.common.groups.handle_seal import HandleKey, HandleKeys
from ortoo.common.groups.retry_policy import RetryKind, RetryPolicy
from ortoo.common.grpc.bulk_calls import envelope_of
from ortoo.common.grpc.enum_values import known_or
from ortoo.common.grpc.messages import is_repeated, read, write
from ortoo.common.process.clock import Clock
from ortoo.common.process.long_work import in_slices
from ortoo.common.records.columns import KEYS, RARE_COLUMNS, TAG, Layout, MessageColumn
from ortoo.common.records.message import Message
from ortoo.common.records.message_fields import NO_RARE_FIELDS, RareFields
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode.cluster.routes import DirectoryUpdate, EnodeEntry, EnodeReplica, EnodeReplicaState, Queue, Topic
from ortoo.v1 import namesrv_pb2, record_pb2, topic_pb2

NO_SETS: Mapping[int, tuple[Placement, ...]] = {}
PLACEMENT_SETS_MAX = 1_024
"""The number of different sets of placements that topics share. Topics with further sets have a set of their own."""


@lru_cache(maxsize=PLACEMENT_SETS_MAX)
def _share(placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
    """The first of all equal tuples, because most topics have the same queues on the same enodes."""
    return placements


def decode_topic(topic: topic_pb2.Topic, sets: Mapping[int, tuple[Placement, ...]] = NO_SETS) -> Topic:
    """Decode a topic. Enum values of a newer process, which this process does not know, become unset.

    `sets` has the placements that the topic may name by id. Errors: DataLoss if it lacks them.
    """
    if topic.HasField("owner_group"):
        owner = TopicOwner(topic.owner_group, known_or(OwnedTopicKind, topic.owner_kind, OwnedTopicKind.UNSPECIFIED))
    else:
        owner = owner_of_name(topic.name)
    if topic.placement_set_id and topic.placement_set_id not in sets:
        raise DataLoss(f"topic {topic.name} names placements that the name server did not send; the watch restarts")
    return read(
        Topic,
        topic,
        permission=known_or(Permission, topic.permission or Permission.READ_WRITE, Permission.READ_WRITE),
        message_type=known_or(MessageType, topic.message_type, MessageType.UNSPECIFIED),
        placements=sets.get(topic.placement_set_id) or _decode_placements(topic.placements),
        publish_order=tuple(read(PublishPlace, place) for place in topic.publish_order.places),
        parent=sys.intern(topic.parent if topic.HasField("parent") else parent_of_topic(topic.name) or ""),
        owner_group=owner.group,
        owner_kind=owner.kind,
    )


def _decode_placements(placements: Iterable[topic_pb2.Placement]) -> tuple[Placement, ...]:
    return _share(tuple(read(Placement, place) for place in placements))


def encode_topic(topic: Topic) -> topic_pb2.Topic:
    """The protobuf message of a topic."""
    places = [write(topic_pb2.PublishPlace, place) for place in topic.publish_order]
    order = topic_pb2.PublishOrder(places=places) if places else None
    return write(topic_pb2.Topic, topic, publish_order=order)


def decode_group(group: topic_pb2.Group) -> Group:
    """Decode a group."""
    return read(
        Group,
        group,
        slow_consumer_grace_ms=group.slow_consumer_grace_ms,
        retry=decode_retry_policy(group.retry),
        **{name: getattr(group, name) or getattr(DEFAULTS, name) for name in ZERO_IS_DEFAULT},
    )


def decode_retry_policy(retry: topic_pb2.RetryPolicy) -> RetryPolicy:
    """Decode a back-off policy. A kind that this process does not know becomes the classic kind."""
    return read(RetryPolicy, retry, kind=known_or(RetryKind, retry.kind, RetryKind.CLASSIC))


def decode_enode(enode: topic_pb2.Enode) -> EnodeEntry:
    """Decode an enode."""
    replicas = tuple(
        EnodeReplica(
            one.number,
            one.disk,
            known_or(EnodeReplicaState, one.state, EnodeReplicaState.UNSPECIFIED),
            one.address,
        )
        for one in enode.replicas
    )
    return read(EnodeEntry, enode, replicas=replicas)


def decode_update(update: namesrv_pb2.WatchRoutesResponse) -> DirectoryUpdate:
    """Decode one message of the name server's watch."""
    sets = _decode_sets(update)
    topics = [decode_topic(topic, sets) for topic in update.topics]
    return _decode_update(update, topics, map(decode_group, update.groups))


async def decode_in_slices(update: namesrv_pb2.WatchRoutesResponse, clock: Clock) -> DirectoryUpdate:
    """Decode one message of the name server's watch. The event loop does other work after each slice of its rows."""
    sets, topics, groups = _decode_sets(update), list[Topic](), list[Group]()
    async for some_topics in in_slices(update.topics, clock):
        topics += [decode_topic(topic, sets) for topic in some_topics]
    async for some_groups in in_slices(update.groups, clock):
        groups += map(decode_group, some_groups)
    return _decode_update(update, topics, groups)


def _decode_sets(update: namesrv_pb2.WatchRoutesResponse) -> dict[int, tuple[Placement, ...]]:
    """The sets of placements in an update, by id."""
    return {one.set_id: _decode_placements(one.placements) for one in update.placement_sets}


def _decode_update(
    update: namesrv_pb2.WatchRoutesResponse, topics: Iterable[Topic], groups: Iterable[Group]
) -> DirectoryUpdate:
    keys = tuple(read(HandleKey, key) for key in update.handle_keys.keys)
    return read(
        DirectoryUpdate,
        update,
        topics=tuple(topics),
        groups=tuple(groups),
        enodes=tuple(map(decode_enode, update.enodes)),
        handle_keys=HandleKeys(keys, update.handle_keys.unsigned_until_ms) if keys else None,
    )


def decode_queue(queue: topic_pb2.Queue) -> Queue:
    """Decode a queue."""
    return Queue(queue.topic, queue.enode, queue.queue_id)


def encode_queue(queue: Queue) -> topic_pb2.Queue:
    """The protobuf message of a queue."""
    return topic_pb2.Queue(topic=queue.topic, enode=queue.enode, queue_id=queue.queue_id)


def encode_batch(batch: SealedBatch) -> record_pb2.SealedBatch:
    """The protobuf message of a sealed batch."""
    envelope = envelope_of(batch)
    envelope.records = batch.records
    return envelope


def decode_message(message: record_pb2.Message) -> Message:
    """Read a single message; fields without a value are absent."""
    rare = RareFields._make([get(message) for get in _RARE])
    return Message.of(message.body, _TAG(message), _KEYS(message), NO_RARE_FIELDS if rare == NO_RARE_FIELDS else rare)


def _getter(column: MessageColumn[Any]) -> Callable[[record_pb2.Message], Any]:
    """The function that reads one column of a message. It is faster than `ortoo.common.grpc.messages.read`."""
    name, default, field = column.name, column.default, record_pb2.Message.DESCRIPTOR.fields_by_name.get(column.name)
    if field is None:
        return lambda message: default
    if column.layout is Layout.MAPS:
        return lambda message: dict(sorted(getattr(message, name).items()))  # the order of a protobuf map is random
    if field.has_presence:
        return lambda message: getattr(message, name) if message.HasField(name) else default  # type: ignore[arg-type]
    if is_repeated(field):
        return lambda message: tuple(getattr(message, name))
    return lambda message: getattr(message, name) or default


_TAG, _KEYS = _getter(TAG), _getter(KEYS)
_RARE: Final = [_getter(column) for column in RARE_COLUMNS]
