"""What waits to be sent to one client of a push session, bounded in bytes."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ortoo.common.errors import DataLoss, Invalid
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.membership.members import CloseReason

CREDIT_MESSAGES_MAX = 1 << 31
CREDIT_BYTES_MAX = 1 << 40


class Credit:
    """What the client lets the server send. A batch goes whole while anything is left; what it takes more is owed."""

    def __init__(self) -> None:
        self.messages = 0
        self.size_bytes = 0

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
        """What was sent and is not acknowledged."""
        self._sent: deque[tuple[int, int]] = deque()

    def start(self, offset: int, *, committed: bool) -> None:
        """Begin at `offset`; `committed` tells whether the group had acknowledged up to there."""
        self.next_offset = self.sent_offset = offset
        self.acknowledged = offset if committed else None

    def jump(self, offset: int) -> None:
        """Go on elsewhere: what lay at the next offset is not stored."""
        self.next_offset = self.sent_offset = offset
        if self.acknowledged is not None:
            self.acknowledged = min(self.acknowledged, offset)

    def advance(self, next_offset: int) -> None:
        """Rows before `next_offset` were read."""
        self.next_offset = max(self.next_offset, next_offset)

    def told(self, next_offset: int, now_s: float, size_bytes: int = 0) -> None:
        """A delivery of so many bytes up to `next_offset` goes to the client."""
        if size_bytes:
            self._sent.append((next_offset, size_bytes))
            self.unacknowledged_bytes += size_bytes
        self.sent_offset = max(self.sent_offset, next_offset)
        if self.waiting_since_s is None:
            self.waiting_since_s = now_s

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


OUTBOX_BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is open."""

    session_id: str
    heartbeat_interval_ms: int
    expiry_ms: int = 0
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class Assigned:
    """The session's queues from now on."""

    generation: int
    queues: tuple[Queue, ...]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A batch, or only an offset that moves on."""

    queue: Queue
    generation: int
    topic_id: int
    first_offset: int
    next_offset: int
    stored_at_ms: int = 0
    batch: SealedBatch | None = None
    rows: bytes = b""
    messages: int = 0
    loss: DataLoss | None = None
    """Why the messages between the offsets cannot be had; None when nothing is lost."""

    @property
    def size_bytes(self) -> int:
        """What it costs of the client's credit."""
        return len(self.batch.records) if self.batch is not None else 0


@dataclass(frozen=True, slots=True)
class AcknowledgedOffsets:
    """Offsets that are durable: (queue, offset, generation)."""

    offsets: Sequence[tuple[Queue, int, int]]


@dataclass(frozen=True, slots=True)
class Closed:
    """The session ends."""

    reason: CloseReason
    message: str


Event = Opened | Assigned | Delivery | AcknowledgedOffsets | Closed


class PushOutbox:
    """Events on their way to the client. Of assignments only the newest waits; of acknowledged offsets too."""

    def __init__(self, bytes_max: int = OUTBOX_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._opened: Opened | None = None
        self._assigned: deque[Assigned] = deque()
        self._kept = False
        self._acknowledged: dict[Queue, tuple[int, int]] = {}
        self._deliveries: deque[Delivery] = deque()
        self._closed: Closed | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()

    def opened(self, event: Opened) -> None:
        """Tell that the session is open."""
        self._opened = event
        self._wake.set()

    def assigned(self, event: Assigned, *, keep: bool = False) -> list[Delivery]:
        """Tell the queues; returns the deliveries of other queues that had not left yet and never will.

        With `keep` the client hears this one even if another comes after it at once.
        """
        if self._assigned and not self._kept:
            self._assigned.pop()
        self._assigned.append(event)
        self._kept = keep
        kept = frozenset(event.queues)
        dropped = [delivery for delivery in self._deliveries if delivery.queue not in kept]
        if dropped:
            self._deliveries = deque(delivery for delivery in self._deliveries if delivery.queue in kept)
            self._bytes -= sum(delivery.size_bytes for delivery in dropped)
            self._room.set()
        self._wake.set()
        return dropped

    def acknowledged(self, queue: Queue, offset: int, generation: int) -> None:
        """Tell that an offset is durable."""
        self._acknowledged[queue] = (offset, generation)
        self._wake.set()

    async def room(self) -> None:
        """Wait until a delivery may be put."""
        while self._bytes >= self._bytes_max:
            self._room.clear()
            await self._room.wait()

    def deliver(self, delivery: Delivery) -> None:
        """Send a delivery after those before it."""
        self._deliveries.append(delivery)
        self._bytes += delivery.size_bytes
        self._wake.set()

    def close(self, event: Closed) -> None:
        """End with `event`; deliveries that have not left are dropped."""
        if self._closed is None:
            self._closed = event
            self._deliveries.clear()
            self._bytes = 0
            self._room.set()
            self._wake.set()

    async def next(self) -> Event:
        """The next event to send; after Closed nothing comes."""
        while (event := self._take()) is None:
            self._wake.clear()
            await self._wake.wait()
        return event

    def _take(self) -> Event | None:
        if self._opened is not None:
            opened, self._opened = self._opened, None
            return opened
        if self._acknowledged:
            pairs, self._acknowledged = self._acknowledged, {}
            return AcknowledgedOffsets([(queue, *pair) for queue, pair in pairs.items()])
        if self._closed is not None:
            return self._closed
        if self._assigned:
            return self._assigned.popleft()
        if self._deliveries:
            delivery = self._deliveries.popleft()
            self._bytes -= delivery.size_bytes
            self._room.set()
            return delivery
        return None
