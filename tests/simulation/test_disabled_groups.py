"""An operator disables a group and enables it again, while its consumers run."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ortoo.client import Client, Conflict, ConsumerSettings, PullSettings
from ortoo.common.process.background import Background
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from tests.simulation.scripted_cluster import ScriptedCluster, play

Handler = Callable[[Any], Awaitable[None]]
DISABLED_S = 90.0


@asynccontextmanager
async def pushing(client: Client, handle: Handler) -> AsyncIterator[Awaitable[None]]:
    """A running push consumer."""
    async with client.consumer("g", "t", ConsumerSettings(from_beginning=True)) as consumer:
        yield consumer.run(handle)


@asynccontextmanager
async def pulling(client: Client, handle: Handler) -> AsyncIterator[Awaitable[None]]:
    """A running pull consumer."""
    async with client.pull_consumer("g", "t", PullSettings(from_beginning=True)) as consumer:
        yield consumer.run(handle)


@asynccontextmanager
async def popping(client: Client, handle: Handler) -> AsyncIterator[Awaitable[None]]:
    """A running pop consumer."""
    async with client.pop_consumer("g", "t") as consumer:
        yield consumer.run(handle)


@pytest.mark.parametrize("restarts", [False, True], ids=["", "snode restarts"])
@pytest.mark.parametrize("consuming", [pushing, pulling, popping])
def test_running_consumers_wait_until_their_group_is_enabled(consuming: Any, restarts: bool) -> None:
    """The same consumer gets no message meanwhile, and all messages afterwards."""

    async def script(stage: ScriptedCluster) -> None:
        got: list[bytes] = []

        async def handle(message: Any) -> None:
            got.append(message.body)

        async with stage.connect("app") as client, stage.connect("consumer") as other:
            await client.admin.ensure_topic("t", queue_count=1)
            await client.admin.put_group("g")
            async with client.producer("t") as producer, consuming(other, handle) as run, Background("run") as runs:
                task = runs.spawn("consume", run)
                await producer.send(b"before")
                await until(stage, lambda: got == [b"before"])
                await client.admin.put_group("g", consume_enabled=False)
                await stage.clock.sleep(60)  # waiting pops and pulls that began before have ended
                await producer.send(b"meanwhile")
                if restarts:
                    await stage.cluster.snodes[0].stop()
                    stage.cluster.snodes[0].start()
                    await stage.cluster.snodes[0].ready.wait()
                await stage.clock.sleep(DISABLED_S)
                assert not task.done()
                assert got == [b"before"]
                await client.admin.put_group("g", consume_enabled=True)
                await until(stage, lambda: got == [b"before", b"meanwhile"])
                task.cancel()

    play(script, shape=ClusterShape(enodes=1, snodes=1))


@pytest.mark.parametrize("consuming", [pushing, pulling, popping])
def test_a_consumer_of_a_disabled_group_is_refused_at_its_start(consuming: Any) -> None:
    """The error names the group, so that a forgotten setting is found at once."""

    async def script(stage: ScriptedCluster) -> None:
        async def handle(message: Any) -> None:
            """Never called."""

        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            await client.admin.put_group("g", consume_enabled=False)
            with pytest.raises(Conflict, match="group g may not consume"):
                async with asyncio.timeout(60), consuming(client, handle) as run:
                    await run

    play(script, shape=ClusterShape(enodes=1, snodes=1))


async def until(stage: ScriptedCluster, is_true: Callable[[], bool]) -> None:
    """Wait for a condition for a minute of virtual time."""
    async with asyncio.timeout(60):
        while not is_true():
            await stage.clock.sleep(0.1)
