"""Producing and consuming for a measured time, with every message verified."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bench.workload import Bodies, fingerprint
from ortoo.client import Consumer, ConsumerSettings, Producer, Queue, connect

CHUNK_MESSAGES = 8_192
CHUNK_BYTES = 4 << 20


async def make_topic(address: str, topic: str, queues: int) -> None:
    """Create a topic on the cluster at `address`."""
    async with connect(address) as mq:
        await mq.admin.create_topic(topic, queue_count=queues)


@dataclass(slots=True)
class Sent:
    """The messages that a producer sent and that were acknowledged."""

    messages: int = 0
    body_bytes: int = 0
    seconds: float = 0.0
    fingerprint: int = 0

    @property
    def messages_per_s(self) -> float:
        """Acknowledged messages a second."""
        return self.messages / self.seconds

    def figures(self) -> dict[str, float]:
        """Its figures as benchmarks print them."""
        return {
            "messages": self.messages,
            "seconds": round(self.seconds, 2),
            "messages_per_s": round(self.messages_per_s),
            "mb_per_s": round(self.body_bytes / self.seconds / 1e6, 1),
        }


async def produce_for(
    producer: Producer, body_bytes: int, seconds: float, *, verify: bool = False, messages_max: int = 1 << 62
) -> Sent:
    """Send as fast as the producer accepts messages, then wait for every acknowledgement."""
    bodies, sent = Bodies(body_bytes), Sent()
    started = time.perf_counter()
    while time.perf_counter() - started < seconds and sent.messages < messages_max:
        chunk = bodies.take(min(CHUNK_MESSAGES, 1 + CHUNK_BYTES // body_bytes, messages_max - sent.messages))
        await producer.send_many(chunk)
        sent.messages += len(chunk)
        if verify:
            sent.fingerprint += fingerprint(chunk)
    await producer.flush()
    sent.seconds = time.perf_counter() - started
    sent.body_bytes = sent.messages * body_bytes
    return sent


@dataclass(slots=True)
class Received:
    """The messages that a consumer received; contents and order are checked on arrival."""

    messages: int = 0
    fingerprint: int = 0
    out_of_order: int = 0
    gaps: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _next_offset: dict[Queue, int] = field(default_factory=dict)
    _last_body: dict[Queue, bytes] = field(default_factory=dict)

    async def collect(self, consumer: Consumer, *, verify: bool = True) -> None:
        """Receive until cancelled."""
        async for batch in consumer.batches():
            bodies = batch.bodies()
            queue = batch.queue
            if batch.offsets[0] != self._next_offset.get(queue, 0):
                self.gaps += 1
            self._next_offset[queue] = batch.next_offset
            if verify:
                if bodies[0] <= self._last_body.get(queue, b"") or bodies != sorted(bodies):
                    self.out_of_order += 1
                self._last_body[queue] = bodies[-1]
                self.fingerprint += fingerprint(bodies)
            batch.ack()
            self.messages += len(bodies)
            self.arrived.set()

    async def reach(self, messages: int) -> None:
        """Wait until `messages` messages have arrived."""
        while self.messages < messages:
            self.arrived.clear()
            await self.arrived.wait()

    def faults(self, sent: Sent) -> dict[str, object]:
        """Differences from `sent`: missing, repeated, changed or reordered messages."""
        same = (self.fingerprint - sent.fingerprint) % (1 << 64) == 0
        return {
            "lost": max(0, sent.messages - self.messages),
            "duplicates": max(0, self.messages - sent.messages),
            "contents_equal": same,
            "batches_out_of_order": self.out_of_order,
            "gaps": self.gaps,
        }


@asynccontextmanager
async def consuming(address: str, group: str, topic: str, *, verify: bool = True) -> AsyncIterator[Received]:
    """A consumer with a connection of its own that collects from the first message."""
    received = Received()
    async with connect(address) as mq, mq.consumer(group, topic, ConsumerSettings(from_beginning=True)) as consumer:
        task = asyncio.get_running_loop().create_task(received.collect(consumer, verify=verify))
        try:
            yield received
        finally:
            task.cancel()
            await asyncio.wait([task])


async def ticks(rate: float, count: int) -> AsyncIterator[float]:
    """Yield the planned time of each tick of `rate` a second, on the monotonic clock, when it is due.

    A late tick still has its planned time, so a delay measured from it includes the stall.
    """
    started = time.perf_counter()
    for number in range(count):
        planned = started + number / rate
        if (wait := planned - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        yield planned
