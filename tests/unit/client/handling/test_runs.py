"""The graceful stop of every kind of consumer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest

from ortoo.client import App, Client, ConsumerSettings, Message, PoppedMessage, PullSettings, connect
from ortoo.common.process.background import Background
from ortoo.testing.pytest_broker import Broker
from tests.integration.pull_group import until

pytestmark = pytest.mark.ortoo
Handler = Callable[[Any], Awaitable[None]]
Stop = Callable[[float], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def _consuming(mq: Client, kind: str, handler: Handler) -> AsyncIterator[Stop]:
    """A consumer that runs, until its run returns; the block gets its `stop`."""
    consumer: Any
    if kind == "pop":
        consumer = mq.pop_consumer("g", "orders")
    elif kind == "push":
        consumer = mq.consumer("g", "orders", ConsumerSettings(from_beginning=True))
    else:
        consumer = mq.pull_consumer("g", "orders", PullSettings(from_beginning=True))
    async with consumer, Background("test") as background:
        run = consumer.run_in_order if kind == "pull-in-order" else consumer.run
        running = background.spawn("run", run(handler))
        yield consumer.stop
        await asyncio.wait([running])


@pytest.mark.parametrize("kind", ["pop", "push", "pull", "pull-in-order"])
async def test_a_stop_finishes_what_runs_and_begins_nothing_else(broker: Broker, kind: str) -> None:
    """Of messages of one group, the first is acknowledged; another consumer gets the others, as a first attempt."""
    await broker.create_topic("orders", queues=1)
    await broker.send("orders", *(Message(b"%d" % number, message_group="a") for number in range(3)))
    seen: list[tuple[bytes, int]] = []
    goes_on = asyncio.Event()

    async def slow(message: Any) -> None:
        seen.append((message.body, message.attempt))
        await goes_on.wait()

    async with connect() as mq:
        async with _consuming(mq, kind, slow) as stop, Background("test") as background:
            await until(lambda: bool(seen))
            begun = len(seen)  # a pop consumer or a pull consumer without order may have begun several
            stopping = background.spawn("stop", stop(60.0))
            await broker.clock.advance("10s")
            assert not stopping.done()
            goes_on.set()
            await stopping
        assert len(seen) == begun
        if begun < 3:
            async with _consuming(mq, kind, slow) as stop:
                await until(lambda: len(seen) >= 3)
                await stop(60.0)
    assert sorted(seen) == [(b"0", 1), (b"1", 1), (b"2", 1)]


@pytest.mark.parametrize("kind", ["pop", "push", "pull", "pull-in-order"])
async def test_a_stop_has_a_limit(broker: Broker, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """A handler that does not finish is cancelled, and its message is the next consumer's, as a first attempt."""
    await broker.create_topic("orders", queues=1)
    await broker.send("orders", b"one")
    seen: list[int] = []

    async def stuck(message: Any) -> None:
        seen.append(message.attempt)
        if len(seen) == 1:
            await asyncio.Event().wait()

    async with connect() as mq:
        async with _consuming(mq, kind, stuck) as stop:
            await until(lambda: bool(seen))
            begun_ms = broker.clock.now_ms()
            await stop(5.0)
            assert 5_000 <= broker.clock.now_ms() - begun_ms < 6_000
        async with _consuming(mq, kind, stuck) as stop:
            await until(lambda: len(seen) == 2)
            await stop(5.0)
    assert seen == [1, 1]
    assert "handlers_not_finished" in caplog.text


async def test_a_program_finishes_its_handlers_at_the_end_of_its_block(broker: Broker) -> None:
    """With a limit; the producers of the program are open until its handlers have ended."""
    await broker.create_topic("orders")
    await broker.create_topic("receipts")
    app = App("g")
    receipts = app.producer("receipts", bytes)
    begun = asyncio.Event()

    @app.consumer("orders")
    async def charge(message: PoppedMessage) -> None:
        begun.set()
        await broker.clock.advance("3s")
        await receipts.send(message.body)

    await broker.send("orders", b"one")
    async with connect() as mq:
        async with app.running(mq, finish_timeout_s=30.0):
            await begun.wait()
        assert (await mq.admin.describe_lag("g", "orders")).lag_messages == 0
    assert len(await broker.messages("receipts")) == 1
