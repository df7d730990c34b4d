"""Between the messages of ortoo.v1 and plain values: fields of the same name by a rule, what differs by hand."""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message as WireMessage

from ortoo.common.errors import Invalid
from ortoo.common.errors.status import TABLE, failure_of
from ortoo.common.groups.allocation import AllocationStrategy
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.cluster.wire import batch_to, message_to, queue_of, queue_to
from ortoo.snode.membership.members import Member, Subscription
from ortoo.v1 import consumer_pb2, session_pb2, topic_pb2

WRITERS: dict[type, Callable[[Any], WireMessage]] = {
    Queue: queue_to,
    Message: message_to,
    SealedBatch: batch_to,
    **{kind: failure_of for kind, _, _ in TABLE},
}
"""What writes a field's value that is no number or text."""
M = TypeVar("M", bound=WireMessage)
V = TypeVar("V")


def written(kind: type[M], value: object, **others: Any) -> M:
    """A message of `kind`: each field is that of `others`, or else `value`'s of the same name.

    Queues, messages, batches and errors become what stands for them on the wire; None leaves a field out. A field that
    neither has is a defect and raises AttributeError.
    """
    fields: dict[str, Any] = {}
    for name in _field_names(kind.DESCRIPTOR):
        field = others[name] if name in others else getattr(value, name)
        writer = WRITERS.get(type(field))
        fields[name] = field if writer is None else writer(field)
    return kind(**fields)


def read(kind: type[V], message: WireMessage, **others: Any) -> V:
    """A dataclass of `kind`: each field is that of `others`, or else `message`'s of the same name.

    Queues are read; a field that neither has keeps its default.
    """
    known = message.DESCRIPTOR.fields_by_name
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in known and field.name not in others:
            found = getattr(message, field.name)
            others[field.name] = queue_of(found) if isinstance(found, topic_pb2.Queue) else found
    return kind(**others)


def body_text(message: Message) -> str:
    """A message's body as text for people; empty when it is none."""
    try:
        return message.body.decode()
    except UnicodeDecodeError:
        return ""


def how_consuming(wanted: consumer_pb2.OpenSession | session_pb2.RegisterConsumer) -> dict[str, Any]:
    """How a client wants to be a consumer: the fields of a member of these names. Errors: Invalid."""
    number = wanted.strategy or AllocationStrategy.AVERAGELY
    if number not in list(AllocationStrategy):
        raise Invalid(f"{number} is no strategy; give one of 1 to {len(AllocationStrategy)}", field="strategy")
    return {
        "broadcast": wanted.message_model == consumer_pb2.MESSAGE_MODEL_BROADCAST,
        "strategy": AllocationStrategy(number),
        "configured": tuple(map(queue_of, wanted.configured_queues)),
        "rooms": tuple(wanted.rooms),
    }


def subscriptions(items: Iterable[consumer_pb2.Subscription]) -> tuple[Subscription, ...]:
    """Subscriptions, read."""
    return tuple(read(Subscription, one) for one in items)


def member_to(member: Member) -> consumer_pb2.Member:
    """One member, written."""
    model = consumer_pb2.MESSAGE_MODEL_BROADCAST if member.broadcast else consumer_pb2.MESSAGE_MODEL_CLUSTERING
    wanted = [written(consumer_pb2.Subscription, one) for one in member.subscriptions]
    return written(consumer_pb2.Member, member, subscriptions=wanted, message_model=model)


@functools.cache
def _field_names(message: Descriptor) -> tuple[str, ...]:
    return tuple(field.name for field in message.fields)
