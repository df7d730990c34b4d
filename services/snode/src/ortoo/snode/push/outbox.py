"""Events that wait to be sent to one client of a push session, bounded in bytes."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ortoo.common.errors import DataLoss
from ortoo.common.process.memory_budget import MemoryShare
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.membership.group_members import CloseReason

OUTBOX_BYTES_MAX = 4 << 20
DELIVERY_BYTES = 512
"""Approximate memory of a delivery beside its batch. There may be one for each message that only advances an offset."""


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The event that the session is open."""

    session_id: str
    heartbeat_interval_ms: int
    expiry_ms: int = 0
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The event with the session's new assignment of queues."""

    generation: int
    queues: tuple[Queue, ...]


@dataclass(frozen=True, slots=True)
class Delivery:
    """The event with a batch of messages, or with only a new offset after messages that were skipped."""

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
    """The reason why the messages between the offsets are unavailable; None = no message is lost."""

    @property
    def size_bytes(self) -> int:
        """The cost of the delivery in the client's credit, in bytes."""
        return len(self.batch.records) if self.batch is not None else 0

    @property
    def last_message_offset(self) -> int:
        """The offset of the last message; -1 without a message."""
        if not self.messages:
            return -1
        last_row = int.from_bytes(self.rows[-4:], "little") if self.rows else self.messages - 1
        return self.first_offset + last_row

    @property
    def held_bytes(self) -> int:
        """The memory that the delivery occupies while it waits."""
        return DELIVERY_BYTES + self.size_bytes


@dataclass(frozen=True, slots=True)
class DurableOffsets:
    """The event that committed offsets are durable: (queue, offset, generation) of each."""

    offsets: Sequence[tuple[Queue, int, int]]


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The event that the session has ended."""

    reason: CloseReason
    message: str


PushEvent = SessionOpened | Assignment | Delivery | DurableOffsets | SessionClosed


class PushOutbox:
    """The events to send to a push client. Of durable offsets of a queue, and of assignments, only the newest wait.

    If the newest assignment contains a queue that was revoked and assigned again meanwhile, an assignment without that
    queue is sent first. Otherwise the client would not notice that the queue starts again, and would acknowledge its
    old position.
    """

    def __init__(self, memory: MemoryShare, bytes_max: int = OUTBOX_BYTES_MAX) -> None:
        """`memory` counts the waiting events and the delivery that is being written."""
        self._memory = memory
        self._bytes_max = bytes_max
        self._bytes = 0
        self._in_transit_bytes = 0
        """Memory of the last delivery passed to the transport."""
        self._opened: SessionOpened | None = None
        self._assignments: deque[Assignment] = deque()
        self._sent_queues: frozenset[Queue] = frozenset()
        """The queues of the last assignment that was sent."""
        self._kept_queues: frozenset[Queue] = frozenset()
        """The queues of the last sent assignment that were in every later assignment."""
        self._committed: dict[Queue, tuple[int, int]] = {}
        self._deliveries: deque[Delivery] = deque()
        self._closed: SessionClosed | None = None
        self._wake = asyncio.Event()
        self._has_room = asyncio.Event()

    @property
    def has_deliveries(self) -> bool:
        """Whether deliveries wait to be sent."""
        return bool(self._deliveries)

    def put_opened(self, event: SessionOpened) -> None:
        """Queue the event that the session is open."""
        self._opened = event
        self._wake.set()

    def put_assignment(self, event: Assignment) -> list[Delivery]:
        """Queue an assignment. Unsent deliveries of queues that it does not contain are dropped and returned."""
        assigned_queues = frozenset(event.queues)
        self._kept_queues &= assigned_queues
        between: list[Assignment] = []
        if (self._sent_queues & assigned_queues) - self._kept_queues:
            between.append(Assignment(self._assignments[0].generation, tuple(sorted(self._kept_queues))))
        self._assignments = deque([*between, event])
        dropped = [delivery for delivery in self._deliveries if delivery.queue not in assigned_queues]
        if dropped:
            self._deliveries = deque(delivery for delivery in self._deliveries if delivery.queue in assigned_queues)
            self._release_bytes(sum(delivery.held_bytes for delivery in dropped))
            self._has_room.set()
        self._wake.set()
        return dropped

    def put_committed(self, queue: Queue, offset: int, generation: int) -> None:
        """Queue the event that a committed offset is durable."""
        self._committed[queue] = (offset, generation)
        self._wake.set()

    async def wait_for_room(self) -> None:
        """Wait until there is space for a delivery."""
        while self._bytes >= self._bytes_max:
            self._has_room.clear()
            await self._has_room.wait()

    def deliver(self, delivery: Delivery) -> None:
        """Queue a delivery; after `close`, the delivery is dropped."""
        if self._closed is not None:
            return
        self._deliveries.append(delivery)
        self._bytes += delivery.held_bytes
        self._memory.draw_unchecked(delivery.held_bytes)
        self._wake.set()

    def close(self, event: SessionClosed) -> None:
        """Make `event` the last event; unsent deliveries are dropped."""
        if self._closed is None:
            self._closed = event
            self._deliveries.clear()
            self._release_bytes(self._bytes)
            self._has_room.set()
            self._wake.set()

    async def next(self) -> PushEvent:
        """Wait for the next event, and release the memory of the previous event. No event follows SessionClosed."""
        self._memory.release(self._in_transit_bytes)
        self._memory.on_progress()
        self._in_transit_bytes = 0
        while (event := self._pop_event()) is None:
            self._wake.clear()
            await self._wake.wait()
        return event

    def _pop_event(self) -> PushEvent | None:
        if self._opened is not None:
            opened, self._opened = self._opened, None
            return opened
        if self._committed:
            pairs, self._committed = self._committed, {}
            return DurableOffsets([(queue, *pair) for queue, pair in pairs.items()])
        if self._closed is not None:
            return self._closed
        if self._assignments:
            assigned = self._assignments.popleft()
            self._sent_queues = self._kept_queues = frozenset(assigned.queues)
            return assigned
        if self._deliveries:
            delivery = self._deliveries.popleft()
            self._bytes -= delivery.held_bytes
            self._in_transit_bytes = delivery.held_bytes
            self._has_room.set()
            return delivery
        return None

    def _release_bytes(self, size_bytes: int) -> None:
        self._bytes -= size_bytes
        self._memory.release(size_bytes)
