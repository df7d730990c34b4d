"""Positions of messages: queues, and receipts of stored messages."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """The unit of order: one queue of one topic on one enode."""

    topic: str
    enode: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """The position of a stored message."""

    message_id: str
    queue: Queue
    offset: int
    """The offset in the queue; for a delayed message its number among the delayed ones."""
    stored_at_ms: int
    """Milliseconds since 1970-01-01 UTC."""
    recall_handle: str = ""
    """The handle for `Client.recall`, for a delayed message."""
    duplicate: bool = False
    """Whether a message with the same dedup id was stored before, at this position; this one was not stored."""
