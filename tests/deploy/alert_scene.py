"""The processes of the alert tests, and the clients that produce their traffic."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ortoo.client import Client, ConsumerSettings, OrtooError, connect
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import producer_pb2, record_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.postgres import Postgres
from ortoo.verification.servers.processes import SMALL_STORE, ProcessCluster, RoleProcess, process_cluster
from ortoo.verification.servers.valkey import Valkey
from tests.deploy.ailing_process import AilingProcess

OLD_MS = 2_000_000
"""Age of the message that its group does not consume, and of an open transaction: more than the limits of the rules."""


class AilingEnode(AilingProcess):
    """An enode whose machine can be made faulty."""

    def __init__(self, folder: Path, environ: dict[str, object]) -> None:
        """In `folder`; its clock is late at first, because the time of a log never goes back."""
        super().__init__("enode", folder, environ)
        self.ail(clock_behind_ms=OLD_MS)

    @property
    def is_late(self) -> bool:
        """Whether its clock is so late that its messages get old when the clock is corrected."""
        return self.ailments.clock_behind_ms >= OLD_MS


@dataclass(frozen=True, slots=True)
class Scene:
    """The processes, and the clients that use them."""

    database: Postgres
    redis: Valkey
    namesrv: RoleProcess
    enode: AilingEnode
    """The enode with the faulty machine."""
    snode: RoleProcess
    cluster: ProcessCluster
    mq: Client
    background: Background

    def keep_sending(self, topic: str, *, interval_s: float) -> Coroutine[Any, Any, None]:
        """Send one message after another forever; errors are ignored."""
        return keep_sending(self.mq, topic, interval_s=interval_s)

    async def publish(self, topic: str, count: int) -> None:
        """Send `count` messages by single calls; errors are ignored."""
        await publish(self.mq, topic, count)

    def keep_publishing(self, topic: str, *, interval_s: float) -> Coroutine[Any, Any, None]:
        """Send one message after another by single calls forever; errors are ignored."""
        return keep_publishing(self.mq, topic, interval_s=interval_s)

    async def catch_up(self, group: str, topic: str) -> None:
        """Let the group acknowledge all stored messages."""
        async with running(self.background, keep_receiving(self.mq, group, topic)):
            clock = SystemClock()
            lag = -1
            async with asyncio.timeout(60):
                while lag:
                    await clock.sleep(0.2)
                    with contextlib.suppress(OrtooError):
                        found = await self.mq.admin.describe_lag(group, topic)
                        lag = found.lag_messages if any(q.committed_offset >= 0 for q in found.queues) else -1

    async def send(self, topic: str, count: int) -> None:
        """Send `count` messages."""
        async with self.mq.producer(topic) as producer:
            await asyncio.gather(*await producer.send_many([b"message %d" % number for number in range(count)]))

    async def new_topic(self, topic: str) -> None:
        """Create a topic with one queue, on the faulty enode."""
        await self.mq.admin.create_topic(topic, queue_count=1, enodes=[self.enode.folder.name])


async def keep_sending(mq: Client, topic: str, *, interval_s: float) -> None:
    """Send one message after another forever; errors are ignored."""
    clock = SystemClock()
    async with mq.producer(topic) as producer:
        while True:
            with contextlib.suppress(OrtooError):
                await producer.send(b"tick")
            await clock.sleep(interval_s)


async def publish(mq: Client, topic: str, count: int) -> None:
    """Send `count` messages by single calls; errors are ignored."""
    request = producer_pb2.PublishRequest(topic=topic, messages=[record_pb2.Message(body=b"tick")])
    for _ in range(count):
        with contextlib.suppress(OrtooError):
            await mq._connection.call(ProducerServiceStub, "Publish", request)


async def keep_publishing(mq: Client, topic: str, *, interval_s: float) -> None:
    """Send one message after another by single calls forever; errors are ignored."""
    clock = SystemClock()
    while True:
        await publish(mq, topic, 1)
        await clock.sleep(interval_s)


async def keep_receiving(mq: Client, group: str, topic: str) -> None:
    """Acknowledge all messages that arrive."""
    async with mq.consumer(group, topic, ConsumerSettings(from_beginning=True, ack_interval_ms=20)) as consumer:
        async for batch in consumer.batches():
            batch.ack()


@asynccontextmanager
async def running(background: Background, work: object) -> AsyncIterator[None]:
    """Run work in the background while the block is open."""
    task = background.spawn("fault", work)  # type: ignore[arg-type]
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@asynccontextmanager
async def healthy_cluster(folder: Path, background: Background) -> AsyncIterator[list[str]]:
    """The addresses of the metrics of a second cluster. Its topic and its group have the names of the first one's."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    environ = {
        role: {"METRICS_ADDRESS": address, **(SMALL_STORE if role == "enode" else {})}
        for role, address in zip(("namesrv", "enode", "snode"), addresses, strict=True)
    }
    async with process_cluster(folder, environ=environ) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("steady")
        async with (
            running(background, keep_sending(mq, "steady", interval_s=0.1)),
            running(background, keep_receiving(mq, "steady", "steady")),
        ):
            yield addresses
