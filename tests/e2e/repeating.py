"""Numbered producers that resend batches long after these were acknowledged."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import grpc

from ortoo.client import Client, Queue
from ortoo.client.core.wire import wire_queue
from ortoo.common.errors.status import error_of
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.channels import Channels
from ortoo.common.records.batch import encode
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.v1 import producer_pb2, record_pb2
from ortoo.verification.simulation.oracle.sent import TrackedMessage
from ortoo.verification.simulation.oracle.stored import compare_stored
from ortoo.verification.simulation.workload.application import RESTART_PAUSE_S, Application
from ortoo.verification.simulation.workload.scenario import Scenario

PRODUCERS = 12
"""Each pauses for long, so that the batches that it resends are old."""
REMEMBERED = 5
"""Number of batches of a producer that an enode remembers."""
AGAIN = 0.5
MESSAGES_MAX = 3
ANSWER_MAX_S = 10.0


@dataclass(slots=True)
class _Numbered:
    """A batch, and its place once it is known."""

    sealed: SealedBatch
    messages: list[TrackedMessage]
    first_offset: int = -1


@dataclass(slots=True)
class _Numbers:
    """A producer as enodes know it: by its number, in one queue."""

    producer_id: int
    queue: Queue
    next_sequence: int = 0
    batches: list[_Numbered] = field(default_factory=list)
    """The last batches; only the very last may be without an answer."""


class Repeating(Scenario):
    """One application that acts as several producers in turn.

    There is no consumer: the stored messages are compared.
    """

    name = "repeating"

    def build(self) -> None:
        """One application."""
        self.repeated = 0
        """Number of acknowledged batches that were acknowledged again."""
        self._producers: list[_Numbers] = []
        self.senders = [self.application("p0", self._produce)]

    async def check(self, client: Client) -> None:
        """Compare the stored messages: each batch is there once."""
        await compare_stored(client, self.oracle, self.name)

    async def _produce(self, application: Application, client: Client) -> None:
        queues = [item.queue for item in (await client.admin.describe_topic(self.name)).queues]
        while len(self._producers) < PRODUCERS:
            queue = queues[len(self._producers) % len(queues)]
            self._producers.append(_Numbers(application.chance.id64(), queue))
        async with Channels() as channels:
            while True:
                call = bulk_calls.produce(channels.channel_to(application.addresses[0]))
                try:
                    while True:
                        await self._send(application, call)
                        await application.pause_for(self.rate_per_s)
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
                    await application.clock.sleep(RESTART_PAUSE_S)
                finally:
                    call.cancel()

    async def _send(self, application: Application, call: Any) -> None:
        """Send the unanswered batch, or resend an answered one, or send the next one."""
        producer = self._producers[application.chance.below(len(self._producers))]
        if producer.batches and producer.batches[-1].first_offset < 0:
            batch = producer.batches[-1]
        elif producer.batches and application.chance.uniform(0.0, 1.0) < AGAIN:
            batch = producer.batches[application.chance.below(len(producer.batches))]
        else:
            batch = self._next(application, producer)
        sealed = batch.sealed
        wire = record_pb2.SealedBatch(
            records_crc32c=sealed.records_crc32c,
            count=sealed.count,
            body_inflated_bytes=sealed.body_inflated_bytes,
            producer_id=producer.producer_id,
            first_sequence=sealed.first_sequence,
        )
        request = producer_pb2.ProduceRequest(request_id=1, queue=wire_queue(producer.queue), batch=wire)
        async with asyncio.timeout(ANSWER_MAX_S):
            await call.write(BulkMessage(request, (sealed.records,)))
            answer = await call.read()
        if answer is grpc.aio.EOF:
            raise TimeoutError
        if not answer.HasField("failure"):
            self._stored(producer, batch, answer.first_offset)
        elif not (error := error_of(answer.failure)).retriable:
            self.oracle.violations.add("G4", f"{batch.messages[0].key} was sent again and refused: {error}")

    def _next(self, application: Application, producer: _Numbers) -> _Numbered:
        made = [application.next_message(self.name) for _ in range(1 + application.chance.below(MESSAGES_MAX))]
        sealed = encode([message for _, message in made], now_ms=application.clock.now_ms())
        sealed = replace(sealed, producer_id=producer.producer_id, first_sequence=producer.next_sequence)
        producer.next_sequence += len(made)
        producer.batches = [*producer.batches[1 - REMEMBERED :], _Numbered(sealed, [sent for sent, _ in made])]
        return producer.batches[-1]

    def _stored(self, producer: _Numbers, batch: _Numbered, first_offset: int) -> None:
        key = batch.messages[0].key
        if batch.first_offset >= 0:
            self.repeated += 1
            if batch.first_offset != first_offset:
                self.oracle.violations.add("G4", f"{key} is said to be at {batch.first_offset} and at {first_offset}")
            return
        batch.first_offset = first_offset
        for offset, sent in enumerate(batch.messages, first_offset):
            self.oracle.sent.stored(sent, self.oracle.now_s(), producer.queue, offset)
