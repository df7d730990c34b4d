"""What a sender of single messages is told: where each one was stored."""

from dataclasses import dataclass

from ortoo.common.records.message import Message
from ortoo.common.records.message_id import message_id_text
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.send.delayed import delayed_message_id, recall_handle


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a message was stored."""

    message_id: str
    queue: Queue
    offset: int
    """Of a delayed message its number among those that wait."""
    recall_handle: str = ""
    """Of a delayed message."""
    duplicate: bool = False
    """It was stored before."""


def receipt_of(topic: Topic, queue: Queue, message: Message, offset: int, *, duplicate: bool = False) -> Receipt:
    """The receipt of a message that lies in a queue."""
    if message.deliver_at_ms is not None:
        made = delayed_message_id(queue.enode, offset)
        handle = recall_handle(queue, topic.topic_id, offset, message.deliver_at_ms)
        return Receipt(message.message_id or made, queue, offset, handle, duplicate)
    made = message_id_text(topic.topic_id, queue.enode, queue.queue_id, offset)
    return Receipt(message.message_id or made, queue, offset, duplicate=duplicate)
