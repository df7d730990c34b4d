"""`PopConsumer.run` with a broker that goes down and comes up again."""

import asyncio

import pytest

from ortoo.client import connect
from ortoo.common.process.background import Background
from ortoo.testing.pytest_broker import Broker


@pytest.mark.ortoo(topics=["orders"])
@pytest.mark.parametrize("role", ["enode", "snode"])
async def test_a_worker_outlives_a_broker_that_is_away_for_a_minute(broker: Broker, role: str) -> None:
    """A running worker continues when the broker is up again, and gets messages that were sent meanwhile."""
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def handler(message: object) -> None:
        await seen.put(message.body)  # type: ignore[attr-defined]

    async with connect() as mq, mq.pop_consumer("workers", "orders") as consumer, Background("test") as background:
        background.spawn("run", consumer.run(handler))
        await broker.send("orders", b"one")
        assert await seen.get() == b"one"
        await broker.clock.advance("1s")  # its acknowledgement is stored
        broker.kill(role, back_after="1m")
        await broker.clock.advance("2m")
        await broker.send("orders", b"two")
        assert await seen.get() == b"two"
