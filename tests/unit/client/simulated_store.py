"""A store for a producer without a network: the enode's rules for idempotence, and faults in a given order."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any
from unittest import mock

from ortoo.client.core.connection import Connection
from ortoo.client.core.queues import Queue
from ortoo.client.produce.producer import Producer
from ortoo.client.produce.producer_batch import ProducerBatch
from ortoo.client.produce.producer_settings import ProducerSettings
from ortoo.client.produce.routes import Route
from ortoo.client.requests.requester import Requester
from ortoo.common.errors import NOT_ACCEPTED_FIELD, Forbidden, OrtooError, Overloaded, Unavailable
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.common.records.view import open_batch
from ortoo.enode.changes.kinds import WindowBatch
from ortoo.enode.state.tables.dedup import Duplicate, Sequencer, SequenceWindowTable

TOPIC_ID = 7


class Fault(Enum):
    """The fault of one batch."""

    NONE = "stored and answered"
    ANSWER_LOST = "stored, then the stream breaks"
    LOST = "not stored, then the stream breaks"
    REFUSED = "not stored, the answer says to slow down"
    AWAY = "not stored, the answer says that the enode is away"
    NOT_TAKEN = "not stored, and the answer says that this is certain"
    FORBIDDEN = "not stored, and the answer says that it never will be"
    SILENT = "stored, and answered with the next batch"


REFUSALS = {
    Fault.REFUSED: Overloaded("slow down"),
    Fault.AWAY: Unavailable("the enode is away"),
    Fault.NOT_TAKEN: Unavailable("the enode stops", field=NOT_ACCEPTED_FIELD),
    Fault.FORBIDDEN: Forbidden("the permission was taken away"),
}


class SimulatedStore:
    """The contents of the queues, and an enode's rules for producers that retry."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        """Apply these faults to the first batches, one each."""
        self.queues: dict[Queue, list[bytes]] = {}
        self.sends = 0
        self.is_away = asyncio.Event()
        """While set, nothing is answered."""
        self._faults: Iterator[Fault] = iter(faults)
        self._windows = SequenceWindowTable()
        self._sequencer = Sequencer(self._windows, idle_ms=1 << 40)

    def next_fault(self) -> Fault:
        """The fault of the next batch."""
        self.sends += 1
        return next(self._faults, Fault.NONE)

    def store(self, batch: ProducerBatch) -> int:
        """Store a batch or find it again; returns its first offset. Errors: a gap, an unknown producer."""
        sealed = batch.sealed
        key = (TOPIC_ID, batch.queue.queue_id, sealed.producer_id)
        decision = self._sequencer.decide(key, sealed.first_sequence, sealed.count, sealed.records_crc32c, 0)
        if isinstance(decision, Duplicate):
            return decision.batch.first_offset
        stored = self.queues.setdefault(batch.queue, [])
        first_offset = len(stored)
        stored += open_batch(sealed).bodies()
        window = WindowBatch(sealed.first_sequence, sealed.count, first_offset, 0, sealed.records_crc32c)
        self._sequencer.add_in_flight(key, window)
        self._windows.add(key, window)
        self._sequencer.remove_in_flight(key)
        return first_offset

    def call(self, _: object, __: str, answered: Any, *, clock: object) -> "SimulatedCall":
        """Replaces ProduceCall."""
        return SimulatedCall(self, answered)


class SimulatedCall:
    """One stream to the store."""

    def __init__(self, store: SimulatedStore, answered: Any) -> None:
        self.has_responded = False
        self._store = store
        self._answered = answered
        self._unsent: deque[ProducerBatch] = deque()
        self._wake = asyncio.Event()

    def send(self, batch: ProducerBatch) -> None:
        """Send a batch after those before it."""
        self._unsent.append(batch)
        self._wake.set()

    async def run(self) -> OrtooError:
        """Answer until a fault breaks the stream."""
        owed: list[ProducerBatch] = []

        def answer(batch: ProducerBatch, error: OrtooError | None) -> None:
            """Send an answer; due answers of the queue precede a refusal."""
            for one in owed:
                self.has_responded = True
                self._answered(one, None)
            owed.clear()
            self._answered(batch, error)

        while True:
            while self._unsent and not self._store.is_away.is_set():
                await SystemClock().sleep(0)
                batch = self._unsent.popleft()
                fault = self._store.next_fault()
                if fault is Fault.LOST:
                    return Unavailable("the stream broke")
                if fault in REFUSALS:
                    answer(batch, REFUSALS[fault])
                    continue
                try:
                    batch.first_offset = self._store.store(batch)
                except OrtooError as error:
                    answer(batch, error)
                    continue
                if fault is Fault.ANSWER_LOST:
                    return Unavailable("the stream broke")
                owed.append(batch)
                if fault is Fault.SILENT and self._unsent:
                    continue
                for one in owed:
                    self.has_responded = True
                    self._answered(one, None)
                owed.clear()
            self._wake.clear()
            await self._wake.wait()


class NoNetwork(Connection):
    """A connection without a network."""

    def channel(self) -> Any:
        """Return nothing."""
        return None


@asynccontextmanager
async def producer_to(
    store: SimulatedStore, *, queue_count: int = 3, route: Route | None = None, **settings: Any
) -> AsyncIterator[Producer]:
    """A real producer whose streams end in `store`; it retries without delay."""
    queues = tuple(Queue("t", "enode-0", number) for number in range(queue_count))
    chosen = route or Route(TOPIC_ID, queues, queues)
    connection = NoNetwork(["localhost:1"], clock=SystemClock(), randomness=Randomness(1))
    connection.backoff = Backoff(first_s=0.0)

    async def query_placement(*_: object) -> Route:
        return chosen

    with (
        mock.patch("ortoo.client.produce.producer.ProduceCall", store.call),
        mock.patch("ortoo.client.produce.routes.query_placement", query_placement),
    ):
        async with Producer(
            connection, "t", ProducerSettings(**({"linger_ms": 0.0} | settings)), Requester(connection)
        ) as producer:
            yield producer
