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
class Opened:
    """The session is open."""

    session_id: str
    heartbeat_interval_ms: int
    expiry_ms: int = 0
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class Assigned:
    """The new assignment of the session."""

    generation: int
    queues: tuple[Queue, ...]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A batch, or only a new offset."""

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
    """The reason why the messages between the offsets are unavailable; None = none is lost."""

    @property
    def size_bytes(self) -> int:
        """Its cost in the client's credit, in bytes."""
        return len(self.batch.records) if self.batch is not None else 0

    @property
    def held_bytes(self) -> int:
        """Its memory while it waits."""
        return DELIVERY_BYTES + self.size_bytes


@dataclass(frozen=True, slots=True)
class AcknowledgedOffsets:
    """Durable offsets: (queue, offset, generation)."""

    offsets: Sequence[tuple[Queue, int, int]]


@dataclass(frozen=True, slots=True)
class Closed:
    """The session has ended."""

    reason: CloseReason
    message: str


Event = Opened | Assigned | Delivery | AcknowledgedOffsets | Closed


class PushOutbox:
    """Events for the client. Of acknowledged offsets only the newest waits.

    Of assignments only the newest waits. If it returns a queue that was revoked meanwhile, an assignment without that
    queue is sent first. The queue starts again, and a client unaware of that would acknowledge by its old position.
    """

    def __init__(self, memory: MemoryShare, bytes_max: int = OUTBOX_BYTES_MAX) -> None:
        """`memory` counts the waiting events and the delivery that is being written."""
        self._memory = memory
        self._bytes_max = bytes_max
        self._bytes = 0
        self._leaving_bytes = 0
        """Memory of the last delivery passed to the transport."""
        self._opened: Opened | None = None
        self._assigned: deque[Assigned] = deque()
        self._told: frozenset[Queue] = frozenset()
        """The client's queues by the last sent assignment."""
        self._stayed: frozenset[Queue] = frozenset()
        """The queues among them that were in every assignment since."""
        self._acknowledged: dict[Queue, tuple[int, int]] = {}
        self._deliveries: deque[Delivery] = deque()
        self._closed: Closed | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()

    def opened(self, event: Opened) -> None:
        """Send that the session is open."""
        self._opened = event
        self._wake.set()

    def assigned(self, event: Assigned) -> list[Delivery]:
        """Send the queues; returns the unsent deliveries of other queues, which are dropped."""
        kept = frozenset(event.queues)
        self._stayed &= kept
        between: list[Assigned] = []
        if (self._told & kept) - self._stayed:
            between.append(Assigned(self._assigned[0].generation, tuple(sorted(self._stayed))))
        self._assigned = deque([*between, event])
        dropped = [delivery for delivery in self._deliveries if delivery.queue not in kept]
        if dropped:
            self._deliveries = deque(delivery for delivery in self._deliveries if delivery.queue in kept)
            self._drop(sum(delivery.held_bytes for delivery in dropped))
            self._room.set()
        self._wake.set()
        return dropped

    def acknowledged(self, queue: Queue, offset: int, generation: int) -> None:
        """Send that an offset is durable."""
        self._acknowledged[queue] = (offset, generation)
        self._wake.set()

    async def room(self) -> None:
        """Wait until there is space for a delivery."""
        while self._bytes >= self._bytes_max:
            self._room.clear()
            await self._room.wait()

    def deliver(self, delivery: Delivery) -> None:
        """Queue a delivery; after the end it is dropped."""
        if self._closed is not None:
            return
        self._deliveries.append(delivery)
        self._bytes += delivery.held_bytes
        self._memory.take(delivery.held_bytes)
        self._wake.set()

    def close(self, event: Closed) -> None:
        """End with `event`; unsent deliveries are dropped."""
        if self._closed is None:
            self._closed = event
            self._deliveries.clear()
            self._drop(self._bytes)
            self._room.set()
            self._wake.set()

    async def next(self) -> Event:
        """The next event to send; none follows Closed. The caller has released the previous event."""
        self._memory.give_back(self._leaving_bytes)
        self._memory.moved()
        self._leaving_bytes = 0
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
            assigned = self._assigned.popleft()
            self._told = self._stayed = frozenset(assigned.queues)
            return assigned
        if self._deliveries:
            delivery = self._deliveries.popleft()
            self._bytes -= delivery.held_bytes
            self._leaving_bytes = delivery.held_bytes
            self._room.set()
            return delivery
        return None

    def _drop(self, size_bytes: int) -> None:
        self._bytes -= size_bytes
        self._memory.give_back(size_bytes)
