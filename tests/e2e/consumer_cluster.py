"""Processes for consumer tests: name server, enodes, two snodes, a real Valkey, and consumers that record messages."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.client import Client, ConsumerSettings, Queue, connect
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.processes import ProcessCluster, process_cluster
from ortoo.verification.servers.valkey import Valkey, valkey

POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class ConsumerCluster:
    """The processes."""

    cluster: ProcessCluster
    store: Valkey

    @property
    def addresses(self) -> list[str]:
        """The snodes, the first one first."""
        return [snode.address for snode in self.cluster.snodes]


@contextlib.asynccontextmanager
async def consumer_cluster(
    folder: Path, *, snodes: int = 2, enodes: int = 1, snode_settings: Mapping[str, object] | None = None
) -> AsyncIterator[ConsumerCluster]:
    """Start them; leave nothing running."""
    async with valkey(folder / "valkey") as store:
        settings = {"REDIS_URL": store.url, "LOG_LEVEL": "warning", **(snode_settings or {})}
        async with process_cluster(folder, snodes=snodes, enodes=enodes, environ={"snode": settings}) as cluster:
            yield ConsumerCluster(cluster, store)


@dataclass(slots=True)
class Books:
    """The deliveries to the consumers of one group."""

    received: Counter[tuple[Queue, int]] = field(default_factory=Counter)
    """(queue, offset) to number of deliveries."""
    last_at_s: float = 0.0

    @property
    def duplicates(self) -> int:
        """Deliveries beyond the first of each message."""
        return sum(self.received.values()) - len(self.received)

    def missing(self, ends: Mapping[Queue, int]) -> int:
        """The number of messages that were never received, given the end of each queue."""
        return sum(ends.values()) - sum(1 for queue, offset in self.received if offset < ends.get(queue, 0))


class Member:
    """One consumer, with its current queues."""

    def __init__(self, client: Client, group: str, topic: str, books: Books, name: str = "") -> None:
        self.consumer = client.consumer(group, topic, ConsumerSettings(from_beginning=True, client_id=name))
        self._books = books
        self._clock = SystemClock()

    async def run(self) -> None:
        """Consume until cancelled."""
        async with self.consumer:
            async for batch in self.consumer.batches():
                self._books.received.update((batch.queue, offset) for offset in batch.offsets)
                self._books.last_at_s = self._clock.monotonic_s()
                batch.ack()


@contextlib.asynccontextmanager
async def members(
    addresses: Sequence[str], group: str, topic: str, count: int, books: Books, *, prefix: str = "member"
) -> AsyncIterator[list[Member]]:
    """Start `count` consumers, each with a connection of its own."""
    async with contextlib.AsyncExitStack() as parts:
        clients = [await parts.enter_async_context(connect(list(addresses))) for _ in range(count)]
        found = [Member(client, group, topic, books, f"{prefix}-{number:04}") for number, client in enumerate(clients)]
        background = await parts.enter_async_context(Background("members"))
        for member in found:
            background.spawn("member", member.run())
        yield found


def settled(found: Sequence[Member], queue_count: int) -> bool:
    """Whether each queue has exactly one owner, according to the consumers."""
    owned = [queue for member in found for queue in member.consumer.queues]
    return len(owned) == len(set(owned)) == queue_count


async def until(condition: Callable[[], bool], timeout_s: float) -> float:
    """Wait for a condition and return the seconds it took. Errors: TimeoutError."""
    clock = SystemClock()
    began_s = clock.monotonic_s()
    async with asyncio.timeout(timeout_s):
        while not condition():
            await clock.sleep(POLL_S)
    return clock.monotonic_s() - began_s


async def ends_of(client: Client, topic: str) -> dict[Queue, int]:
    """The end offset of each queue of a topic."""
    described = await client.admin.describe_topic(topic)
    return {one.queue: one.end_offset for one in described.queues}
