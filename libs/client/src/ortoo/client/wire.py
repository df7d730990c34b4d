"""Between messages and their form on the wire."""

from ortoo.common.message import Message
from ortoo.v1 import record_pb2


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
