"""What a push session may send and what it has been told: pure bookkeeping."""

from collections import deque
from dataclasses import dataclass

from ortoo.common.errors import Invalid
from ortoo.snode.cluster.routes import Queue

CREDIT_MESSAGES_MAX = 1 << 31
CREDIT_BYTES_MAX = 1 << 40
STEP_BYTES = 64 << 10
"""Deliveries are remembered together up to this size: there may be hundreds of thousands, of one small message each."""


@dataclass(slots=True)
class Credit:
    """What the client lets the server send. A batch goes whole while anything is left; what it takes more is owed."""

    messages: int = 0
    size_bytes: int = 0

    @property
    def open(self) -> bool:
        """Whether a batch may go."""
        return self.messages > 0 and self.size_bytes > 0

    def grant(self, messages: int, size_bytes: int) -> None:
        """Add to what is left."""
        self.messages = min(self.messages + messages, CREDIT_MESSAGES_MAX)
        self.size_bytes = min(self.size_bytes + size_bytes, CREDIT_BYTES_MAX)

    def charge(self, messages: int, size_bytes: int) -> None:
        """Take what was sent."""
        self.messages -= messages
        self.size_bytes -= size_bytes


class QueueCursor:
    """How far one queue of a session is: read, sent, acknowledged."""

    def __init__(self, queue: Queue, generation: int) -> None:
        """`generation` is the assignment that gave the queue to the session."""
        self.queue = queue
        self.since_generation = generation
        self.next_offset = -1
        """Where to read next; -1 = not known yet."""
        self.sent_offset = -1
        """Everything before it was sent, or was not wanted and told."""
        self.acknowledged: int | None = None
        """Everything before it is processed; None = the group has no offset yet."""
        self.end_offset = 0
        """The end of the queue as last heard."""
        self.waiting_since_s: float | None = None
        """Since when an acknowledgement is awaited."""
        self.unacknowledged_bytes = 0
        """What was sent and is not acknowledged; of deliveries that are remembered together all, until the last is."""
        self._began_at = -1
        self._sent: deque[tuple[int, int]] = deque()

    def start(self, offset: int, *, committed: bool) -> None:
        """Begin at `offset`; `committed` tells whether the group had acknowledged up to there."""
        self.next_offset = self.sent_offset = self._began_at = offset
        self.acknowledged = offset if committed else None

    def jump(self, offset: int) -> None:
        """Go on elsewhere: what lay at the next offset is not stored."""
        self.next_offset = self.sent_offset = self._began_at = offset
        if self.acknowledged is not None:
            self.acknowledged = min(self.acknowledged, offset)

    def advance(self, next_offset: int) -> None:
        """Rows before `next_offset` were read."""
        self.next_offset = max(self.next_offset, next_offset)

    def told(self, next_offset: int, now_s: float, size_bytes: int) -> None:
        """A delivery of so many bytes up to `next_offset` goes to the client."""
        if size_bytes:
            together = self._sent.pop()[1] if self._sent and self._sent[-1][1] < STEP_BYTES else 0
            self._sent.append((next_offset, together + size_bytes))
            self.unacknowledged_bytes += size_bytes
        self.sent_offset = max(self.sent_offset, next_offset)
        if self.waiting_since_s is None:
            self.waiting_since_s = now_s

    @property
    def has_sent(self) -> bool:
        """Whether the client was told of anything since it began, or jumped."""
        return self.sent_offset > self._began_at

    def wait_anew(self, now_s: float) -> None:
        """What is awaited is awaited from now on: the client was not asked before."""
        if self.waiting_since_s is not None:
            self.waiting_since_s = now_s

    @property
    def untold(self) -> int:
        """How many messages were read and passed over since the last delivery."""
        return self.next_offset - self.sent_offset

    def acknowledge(self, offset: int, generation: int, now_s: float) -> bool:
        """Take an acknowledgement; False if it says nothing new or comes from before the queue was assigned.

        Errors: Invalid when it names messages that were never sent.
        """
        if 0 < generation < self.since_generation or self.sent_offset < 0:
            return False
        if offset > self.sent_offset or offset < 0:
            raise Invalid(
                f"{offset} acknowledged for queue {self.queue}, but deliveries went up to {self.sent_offset}",
                field="acknowledge.offsets.offset",
            )
        if self.acknowledged is not None and offset <= self.acknowledged:
            return False
        self.acknowledged = offset
        while self._sent and self._sent[0][0] <= offset:
            self.unacknowledged_bytes -= self._sent.popleft()[1]
        self.waiting_since_s = now_s if offset < self.sent_offset else None
        return True
