"""Conversion of consumers between ortoo.v1 messages and plain values, where names differ."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.common.errors.status import failure_of
from ortoo.common.groups.allocation import AllocationStrategy
from ortoo.common.grpc.enum_values import check_known, known_or
from ortoo.common.grpc.messages import read, write
from ortoo.common.records.message import Message
from ortoo.snode.cluster.wire import decode_queue
from ortoo.snode.membership.group_members import GroupMember, Subscription
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.v1 import consumer_pb2, failure_pb2, session_pb2

BODY_TEXT_BYTES_MAX = 256 << 10
"""Limit of the readable text of a body, which is returned beside the body."""


def body_text(message: Message) -> str:
    """The body of a message as readable text; empty if the body is not text or is too long."""
    if len(message.body) > BODY_TEXT_BYTES_MAX:
        return ""
    try:
        return message.body.decode()
    except UnicodeDecodeError:
        return ""


def encode_failure(error: OrtooError | None) -> failure_pb2.Failure | None:
    """The protobuf message of an error, or None for None. The error is counted as reported."""
    return failure_of(error) if error is not None else None


def consumer_options(request: consumer_pb2.OpenSession | session_pb2.RegisterConsumer) -> dict[str, Any]:
    """The options of a consumer, as values for the fields of GroupMember by name. Errors: Invalid."""
    check_known(request, "strategy", "message_model")
    return {
        "broadcast": request.message_model == consumer_pb2.MESSAGE_MODEL_BROADCAST,
        "strategy": known_or(AllocationStrategy, request.strategy, AllocationStrategy.AVERAGELY),
        "configured": tuple(map(decode_queue, request.configured_queues)),
        "rooms": tuple(request.zones),
    }


def decode_subscriptions(items: Iterable[consumer_pb2.Subscription]) -> tuple[Subscription, ...]:
    """Decode the subscriptions in a request."""
    return tuple(read(Subscription, one) for one in items)


def visible_member(member: GroupMember) -> GroupMember:
    """A group member with the topics that the caller may see, and with its session id only for its own user."""
    principal = PRINCIPAL.get()
    if principal.is_unrestricted:
        return member
    shown = tuple(one for one in member.subscriptions if principal.may_see(one.topic))
    session_id = member.session_id if principal.owns(member.user) else ""
    return dataclasses.replace(member, session_id=session_id, subscriptions=shown)


def encode_member(member: GroupMember) -> consumer_pb2.GroupMember:
    """The protobuf message of a group member, as the caller may see it."""
    member = visible_member(member)
    model = consumer_pb2.MESSAGE_MODEL_BROADCAST if member.broadcast else consumer_pb2.MESSAGE_MODEL_CLUSTERING
    return write(consumer_pb2.GroupMember, member, message_model=model, zone=member.room, joined_at_ms=member.since_ms)
