"""The credit of a push session and the positions of its queues: pure bookkeeping."""

from collections import deque
from dataclasses import dataclass

from ortoo.common.errors import Invalid
from ortoo.snode.cluster.routes import Queue

CREDIT_MESSAGES_MAX = 1 << 31
CREDIT_BYTES_MAX = 1 << 40
MERGED_BYTES_MAX = 64 << 10
"""Consecutive deliveries are remembered as one up to this size, because there may be very many small deliveries."""


@dataclass(slots=True)
class Credit:
    """The credit of a push client, in messages and bytes.

    A whole batch is sent while any credit is left, so that the credit may become negative.
    """

    messages: int = 0
    size_bytes: int = 0

    @property
    def is_available(self) -> bool:
        """Whether a batch may be sent."""
        return self.messages > 0 and self.size_bytes > 0

    def grant(self, messages: int, size_bytes: int) -> None:
        """Add the credit that the client has granted."""
        self.messages = min(self.messages + messages, CREDIT_MESSAGES_MAX)
        self.size_bytes = min(self.size_bytes + size_bytes, CREDIT_BYTES_MAX)

    def charge(self, messages: int, size_bytes: int) -> None:
        """Subtract the messages and bytes of a delivery."""
        self.messages -= messages
        self.size_bytes -= size_bytes


class QueueCursor:
    """The offsets up to which a session has read, sent and acknowledged one queue.

    Invariant: `committed_offset` <= `sent_offset` <= `next_offset`, so no message is acknowledged before it was sent.
    """

    def __init__(self, queue: Queue, generation: int) -> None:
        """`generation` is the generation of the assignment that added the queue to the session."""
        self.queue = queue
        self.since_generation = generation
        self.next_offset = -1
        """The next offset to read; -1 = unknown."""
        self.sent_offset = -1
        """All messages before this offset were sent, or were reported as not matching."""
        self.committed_offset: int | None = None
        """All messages before this offset are processed; None = the group has no offset yet."""
        self.end_offset = 0
        """The last reported end of the queue."""
        self.waiting_since_s: float | None = None
        """The time since which an acknowledgement is due; None = none is due."""
        self.unacknowledged_bytes = 0
        """Bytes sent and not acknowledged. Deliveries that are remembered as one count until the last
        of them is acknowledged."""
        self.unacknowledged_messages = 0
        """Messages sent and not acknowledged, counted like the bytes."""
        self.last_message_offset = -1
        """The offset of the last message that was sent."""
        self._start_offset = -1
        self._sent: deque[tuple[int, int, int]] = deque()

    def start(self, offset: int, *, is_committed: bool) -> None:
        """Begin at `offset`. `is_committed` = the group has acknowledged all messages before this offset."""
        self.next_offset = self.sent_offset = self._start_offset = offset
        self.committed_offset = offset if is_committed else None

    def jump(self, offset: int) -> None:
        """Continue at `offset`, because the next offset is not stored."""
        self.next_offset = self.sent_offset = self._start_offset = offset
        if self.committed_offset is not None:
            self.committed_offset = min(self.committed_offset, offset)

    def advance(self, next_offset: int) -> None:
        """Record that the messages before `next_offset` are read."""
        self.next_offset = max(self.next_offset, next_offset)

    def on_sent(
        self, next_offset: int, now_s: float, size_bytes: int, messages: int = 0, last_message_offset: int = -1
    ) -> None:
        """Record that a delivery with the messages before `next_offset` was sent to the client.

        It has `messages` messages of `size_bytes` bytes together, and the last one has `last_message_offset`.
        """
        if size_bytes:
            can_merge = self._sent and self._sent[-1][1] < MERGED_BYTES_MAX
            _, merged_bytes, merged_messages = self._sent.pop() if can_merge else (0, 0, 0)
            self._sent.append((next_offset, merged_bytes + size_bytes, merged_messages + messages))
            self.unacknowledged_bytes += size_bytes
            self.unacknowledged_messages += messages
            self.last_message_offset = last_message_offset
        self.sent_offset = max(self.sent_offset, next_offset)
        if self.waiting_since_s is None:
            self.waiting_since_s = now_s

    @property
    def has_sent(self) -> bool:
        """Whether any message was sent since the last `start` or `jump`."""
        return self.sent_offset > self._start_offset

    @property
    def unacknowledged_count(self) -> int:
        """Number of messages sent and not acknowledged."""
        return max(0, self.sent_offset - self.first_unacknowledged_offset)

    @property
    def first_unacknowledged_offset(self) -> int:
        """The first offset that is not acknowledged."""
        return self._start_offset if self.committed_offset is None else self.committed_offset

    def restart_wait(self, now_s: float) -> None:
        """Restart the timeout for acknowledgements, because the queue was suspended until now."""
        if self.waiting_since_s is not None:
            self.waiting_since_s = now_s

    @property
    def unreported_count(self) -> int:
        """The number of messages that were skipped since the last delivery."""
        return self.next_offset - self.sent_offset

    def commit(self, offset: int, generation: int, now_s: float) -> bool:
        """Record an acknowledgement of the messages before `offset`; returns whether it is new.

        It is not new if its offset was acknowledged before, or its `generation` is that of an earlier assignment.
        Errors: Invalid if messages before `offset` were never sent.
        """
        if 0 < generation < self.since_generation or self.sent_offset < 0:
            return False
        if offset > self.sent_offset or offset < 0:
            raise Invalid(
                f"offset {offset} of queue {self.queue} was never delivered; give at most {self.sent_offset}",
                field="commit.offsets.offset",
            )
        if self.committed_offset is not None and offset <= self.committed_offset:
            return False
        self.committed_offset = offset
        while self._sent and self._sent[0][0] <= offset:
            _, size_bytes, messages = self._sent.popleft()
            self.unacknowledged_bytes -= size_bytes
            self.unacknowledged_messages -= messages
        self.waiting_since_s = now_s if offset < self.sent_offset else None
        return True
