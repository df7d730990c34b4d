"""Between the plain values of the name server and the messages of the wire."""

import dataclasses

from ortoo.common.errors import Invalid
from ortoo.common.groups.retry_policy import RetryKind, RetryPolicy
from ortoo.namesrv.catalog.users import User
from ortoo.namesrv.decisions.groups import SLOW_GRACE_DEFAULT_MS, Group
from ortoo.namesrv.decisions.leases import Enode, LogPlaces, Snode
from ortoo.namesrv.decisions.publish_order import PublishPlace
from ortoo.namesrv.decisions.route_changes import RouteChange
from ortoo.namesrv.decisions.topics import MessageType, NewTopic, Permission, Topic, TopicChange
from ortoo.v1 import namesrv_pb2, topic_pb2

REPLICAS_MAX = 64


def permission_of(number: int) -> Permission:
    """A permission, read. Errors: Invalid for a number this version does not know."""
    try:
        return Permission(number)
    except ValueError:
        known = ", ".join(f"PERMISSION_{p.name}" for p in Permission if p)
        raise Invalid(f"{number} is no permission; give one of {known}", field="permission") from None


def message_type_of(number: int) -> MessageType:
    """A kind of messages, read. Errors: Invalid for a number this version does not know."""
    try:
        return MessageType(number)
    except ValueError:
        known = ", ".join(f"MESSAGE_TYPE_{kind.name}" for kind in MessageType)
        raise Invalid(f"{number} is no message type; give one of {known}", field="message_type") from None


def new_topic_of(request: namesrv_pb2.CreateTopicRequest) -> NewTopic:
    """A wish for a topic, read."""
    return NewTopic(
        request.name,
        request.read_queue_count,
        request.write_queue_count,
        permission_of(request.permission),
        tuple(request.enodes),
        message_type_of(request.message_type),
    )


def topic_change_of(request: namesrv_pb2.UpdateTopicRequest) -> TopicChange:
    """A wish for a change, read."""
    return TopicChange(
        request.name,
        request.read_queue_count,
        request.write_queue_count,
        permission_of(request.permission),
        tuple(request.add_enodes),
        tuple(PublishPlace(place.enode, place.queue_count) for place in request.publish_order.places)
        if request.HasField("publish_order")
        else None,
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
            places=[topic_pb2.PublishPlace(enode=p.enode, queue_count=p.queue_count) for p in topic.publish_order]
        )
        if topic.publish_order
        else None,
    )


def group_of(group: topic_pb2.Group) -> Group:
    """A group, read; its version and time of creation are not the caller's to say."""
    return Group(
        group.name,
        0,
        group.consume_enabled,
        group.slow_consumer_threshold_messages,
        group.slow_consumer_grace_ms if group.HasField("slow_consumer_grace_ms") else SLOW_GRACE_DEFAULT_MS,
        0,
        group.broadcast_enabled or not group.HasField("broadcast_enabled"),
        group.notify_members_changed or not group.HasField("notify_members_changed"),
        group.unacknowledged_bytes_max,
        group.attempts_max,
        retry_of(group.retry),
        group.in_flight_max,
        group.park_expired,
    )


def retry_of(retry: topic_pb2.RetryPolicy) -> RetryPolicy:
    """A back-off policy, read. Errors: Invalid for a kind this version does not know."""
    try:
        kind = RetryKind(retry.kind)
    except ValueError:
        raise Invalid(
            f"{retry.kind} is no kind of back-off that this version knows", field="group.retry.kind"
        ) from None
    return RetryPolicy(kind, retry.first_ms, retry.longest_ms, retry.factor, tuple(retry.listed_ms))


def group_to(group: Group) -> topic_pb2.Group:
    """A group, written."""
    return topic_pb2.Group(**dataclasses.asdict(group))


def log_places_of(enode: topic_pb2.Enode) -> LogPlaces:
    """Who else has an enode's log, read. Errors: Invalid."""
    if len(enode.replicas) > REPLICAS_MAX:
        raise Invalid(f"{len(enode.replicas)} replicas; expected at most {REPLICAS_MAX}", field="enode.replicas")
    replicas = tuple((one.replica_id, one.address) for one in enode.replicas)
    return LogPlaces(enode.role, enode.replica_id, enode.replication_address, replicas)


def enode_to(enode: Enode) -> topic_pb2.Enode:
    """A storage node, written."""
    return topic_pb2.Enode(
        name=enode.name,
        address=enode.address,
        store_id=enode.store_id,
        alive=enode.alive,
        role=enode.log.role,
        replica_id=enode.log.replica_id,
        replication_address=enode.log.replication_address,
        replicas=[topic_pb2.Replica(replica_id=number, address=address) for number, address in enode.log.replicas],
    )


def snode_to(snode: Snode) -> topic_pb2.Snode:
    """A proxy, written."""
    return topic_pb2.Snode(name=snode.name, address=snode.address, alive=snode.alive)


def change_to(change: RouteChange) -> namesrv_pb2.WatchRoutesResponse:
    """One message of the watch, written."""
    return namesrv_pb2.WatchRoutesResponse(
        version=change.version,
        snapshot=change.snapshot,
        topics=map(topic_to, change.topics),
        deleted_topics=change.deleted_topics,
        groups=map(group_to, change.groups),
        deleted_groups=change.deleted_groups,
        enodes=map(enode_to, change.enodes),
        snodes=map(snode_to, change.snodes),
    )


def user_to(user: User) -> namesrv_pb2.User:
    """A user, written; the secret stays here."""
    return namesrv_pb2.User(access_key=user.access_key, enabled=user.enabled, created_at_ms=user.created_at_ms)
