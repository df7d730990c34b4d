"""`PopConsumer.run` with a broker that goes down and comes up again."""

import asyncio
from collections.abc import Sequence

import pytest

from ortoo.client import PoppedMessage, connect
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


@pytest.mark.ortoo(topics=["orders"])
@pytest.mark.parametrize("in_batches", [False, True])
async def test_a_cancelled_run_releases_the_messages_of_its_handlers(broker: Broker, in_batches: bool) -> None:
    """The consumer stays open and would renew their leases; the next run gets them, as their first attempt."""
    seen = list[tuple[bytes, int]]()

    async def never(message: object) -> None:
        await asyncio.Event().wait()

    async def take(given: PoppedMessage | Sequence[PoppedMessage]) -> None:
        seen.extend((one.body, one.attempt) for one in (given if isinstance(given, Sequence) else [given]))

    async with connect() as mq, mq.pop_consumer("workers", "orders") as consumer:
        for handler in (never, take):
            async with Background("test") as background:
                running = consumer.run_batches(handler) if in_batches else consumer.run(handler, concurrency=2)
                background.spawn("run", running)
                for body in (b"one", b"two") if handler is never else ():
                    await broker.send("orders", body)
                await broker.clock.advance("10s")
    assert sorted(seen) == [(b"one", 1), (b"two", 1)]
