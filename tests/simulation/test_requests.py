"""Requests and replies on virtual time: timeouts, killed snodes and requesters that have ended."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ortoo.client import App, Client, PoppedMessage, PopSettings, RequestTimeout, Unavailable, connect
from ortoo.common.process.background import Background
from ortoo.testing.pytest_broker import Broker

pytestmark = pytest.mark.ortoo(topics=["jobs"])


@pytest.fixture
async def mq(broker: Broker) -> AsyncIterator[Client]:
    """A client."""
    async with connect() as client:
        yield client


async def take(mq: Client) -> PoppedMessage:
    """The next message, under a long lease."""
    async with mq.pop_consumer("g", "jobs", settings=PopSettings(invisible_ms=7_200_000)) as consumer:
        while not (popped := await consumer.pop(wait_ms=10_000)):
            pass
        await popped[0].ack()
        return popped[0]


async def test_a_request_times_out_at_its_time(broker: Broker, mq: Client) -> None:
    """Ten minutes without a reply end after ten minutes."""
    async with mq.producer("jobs") as producer:
        begun_ms = broker.clock.now_ms()
        with pytest.raises(RequestTimeout, match=r"in topic jobs within 600 s, although the request was stored"):
            await producer.request(b"?", timeout_s=600)
        assert 600_000 <= broker.clock.now_ms() - begun_ms < 601_000


@pytest.mark.parametrize("size", [3_000, 4_060, 4_096, 8_100])
async def test_many_requests_of_one_moment_share_calls_that_fit(mq: Client, size: int) -> None:
    """The snode adds properties to each request, so a call has fewer requests than messages would fit."""

    async def handle(message: PoppedMessage) -> None:
        await message.reply(b"!")

    async with (
        mq.pop_consumer("g", "jobs") as consumer,
        Background("replier") as background,
        mq.producer("jobs") as producer,
    ):
        background.spawn("run", consumer.run(handle, concurrency=64))
        replies = await asyncio.gather(*[producer.request(b"x" * size, timeout_s=60) for _ in range(600)])
    assert {reply.body for reply in replies} == {b"!"}


async def test_a_request_without_a_snode_times_out_at_its_time(broker: Broker, mq: Client) -> None:
    """The error tells that no snode has confirmed the request."""
    async with mq.producer("jobs") as producer, Background("ask") as background:
        replying = background.spawn("take", take(mq))
        first = background.spawn("ask", producer.request(b"?", timeout_s=30))
        await (await replying).reply(b"!")
        assert (await first).body == b"!"
        broker.kill("snode")
        begun_ms = broker.clock.now_ms()
        with pytest.raises(RequestTimeout, match="no snode confirmed that the request is stored"):
            await producer.request(b"?", timeout_s=20)
        assert broker.clock.now_ms() - begun_ms < 21_000
        await broker.start("snode")


@pytest.mark.parametrize("away_s", [1, 20])
async def test_a_reply_waits_for_a_killed_snode(broker: Broker, mq: Client, away_s: int) -> None:
    """The snode is killed between request and reply. The requester registers again, and the reply finds it."""
    async with mq.producer("jobs") as producer, Background("ask") as background:
        asked = background.spawn("ask", producer.request(b"?", timeout_s=120))
        message = await take(mq)
        broker.kill("snode", back_after=away_s)
        assert await message.reply(b"after the kill")
        assert (await asked).body == b"after the kill"


async def test_a_reply_to_a_requester_that_has_ended_fails_at_the_timeout(broker: Broker, mq: Client) -> None:
    """Until then the requester could connect again."""
    async with connect() as requester, requester.producer("jobs") as producer, Background("ask") as background:
        begun_ms = broker.clock.now_ms()
        asked = background.spawn("ask", producer.request(b"?", timeout_s=60))
        message = await take(mq)
        asked.cancel()
        await asyncio.wait([asked])
    with pytest.raises(Unavailable, match="is not connected to a snode"):
        await message.reply(b"!")
    assert 50_000 <= broker.clock.now_ms() - begun_ms <= 61_000


async def test_requesters_that_have_ended_do_not_stop_a_program(broker: Broker, mq: Client) -> None:
    """Its handlers have two places. Replies to ended requesters leave them long before the timeout of the requests."""
    app = App("squares")

    @app.consumer("jobs", concurrency=2)
    async def square(number: int) -> int:
        return number**2

    async with connect() as ended, ended.producer("jobs") as producer, Background("ask") as background:
        asked = [background.spawn("ask", producer.request(b"7", timeout_s=1_200)) for _ in range(2)]
        await broker.clock.advance(5)  # until both are stored
        for one in asked:
            one.cancel()
        await asyncio.wait(asked)
    async with app.running(mq), mq.producer("jobs") as producer:
        assert (await producer.request(b"8", timeout_s=100)).body == b"64"
