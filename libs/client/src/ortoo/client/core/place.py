"""Where messages are: queues, and receipts for what was stored in them."""

from dataclasses import dataclass

RETRY_PREFIX = "%RETRY%"
"""Before a group's name: the topic of the messages that it gave back."""


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """The unit of order: one queue of one topic on one enode."""

    topic: str
    enode: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a message is stored."""

    message_id: str
    queue: Queue
    offset: int
    """Its number in the queue; of a delayed message its number among those that wait."""
    stored_at_ms: int
    """Milliseconds since 1970-01-01 UTC."""
    recall_handle: str = ""
    """Of a delayed message: what `Client.recall` takes."""
    duplicate: bool = False
    """A message with the same dedup id was stored before, here; this one was not."""
