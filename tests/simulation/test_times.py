"""Durations on virtual time, which real clocks can only bound from above, and a busy machine breaks."""

import asyncio
from collections.abc import AsyncIterator, Awaitable

import grpc
import pytest

from ortoo.client import Client, FlowLimits, PoppedMessage, PopSettings, PullStatus, ReceivedMessage, connect
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.testing.pytest_broker import Broker
from ortoo.v1 import failure_pb2, producer_pb2, pull_pb2, record_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from tests.integration.pull_group import beside, only_queue, prompt, send, stored_offset, until
from tests.integration.snode_calls import batch_request, queue

pytestmark = pytest.mark.ortoo(topics=["jobs"])
SOON_S = 0.3
"""A few packets and a few writes, some of them slow."""
ENODE_LIMIT_S = 4.5


@pytest.fixture
async def mq(broker: Broker) -> AsyncIterator[Client]:
    """A client, and the topic "one" of one queue."""
    await broker.create_topic("one", queues=1)
    async with connect() as client:
        yield client


async def seconds(broker: Broker, work: Awaitable[object]) -> float:
    """The virtual seconds that `work` takes."""
    begun_ms = broker.clock.now_ms()
    await work
    return (broker.clock.now_ms() - begun_ms) / 1000


# Leases.


async def test_a_handler_ten_times_longer_than_the_lease_gets_its_message_once(broker: Broker, mq: Client) -> None:
    """The lease is renewed while the handler runs; other waiting consumers do not get the message."""
    await broker.send("jobs", b"slow")
    seen: list[int] = []
    begun, handled = asyncio.Event(), asyncio.Event()

    async def handle(message: PoppedMessage) -> None:
        seen.append(message.attempt)
        begun.set()
        await SystemClock().sleep(15.0)  # of virtual time, as an application's own work
        handled.set()

    settings = PopSettings(invisible_ms=1500)
    async with mq.pop_consumer("g", "jobs", settings=settings) as one, Background("worker") as background:
        running = background.spawn("run", one.run(handle))
        await begun.wait()
        async with mq.pop_consumer("g", "jobs", settings=settings) as other:
            spare = background.spawn("pop", other.pop(wait_ms=17_000))
            await handled.wait()
            assert await spare == []
        running.cancel()
    assert seen == [1]


async def test_a_consumer_that_is_gone_loses_its_messages_within_the_lease_and_a_second(
    broker: Broker, mq: Client
) -> None:
    """It disconnects without leaving and renews no lease (G8)."""
    await broker.send("jobs", b"a")
    settings = PopSettings(invisible_ms=1500, renew_max_ms=0)
    async with mq.pop_consumer("g", "jobs", settings=settings) as gone, mq.pop_consumer("g", "jobs") as other:
        assert len(await gone.pop()) == 1
        popping = beside(other.pop())
        assert 1.3 < await seconds(broker, popping) < 2.5
        [again] = await popping
        assert again.attempt == 2
        await again.ack()


async def test_a_killed_consumer_loses_its_message_within_the_lease_and_a_second(broker: Broker, mq: Client) -> None:
    """A process renewed its lease until it was killed; another one, waiting, gets the message (G8)."""
    await broker.send("jobs", b"work")
    popped = asyncio.Event()
    process = broker._stage.world.process("consumer")

    async def consume() -> None:
        settings = PopSettings(invisible_ms=1500)
        async with connect() as own, own.pop_consumer("g", "jobs", settings=settings) as consumer:
            [message] = await consumer.pop()
            assert message.attempt == 1
            popped.set()
            await asyncio.Event().wait()

    process.spawn("consume", consume())
    await popped.wait()
    async with mq.pop_consumer("g", "jobs") as other:
        assert await other.pop(wait_ms=3_000) == []  # the lease is renewed
        process.kill()
        popping = beside(other.pop())
        assert await seconds(broker, popping) < 2.5
        [message] = await popping
        assert message.attempt == 2
        await message.ack()


# Pulls.


async def test_a_pull_waits_for_a_message_at_the_end_of_its_queue(broker: Broker, mq: Client) -> None:
    """E-154: a message ends the wait at once. Without one the answer comes at the end of the wait."""
    place = await only_queue(mq, "one")
    reader = mq.pull_consumer("g")
    pulling = beside(reader.pull(place, 0, wait_ms=300))
    assert 0.3 <= await seconds(broker, pulling) < 0.3 + SOON_S
    assert (await pulling).status is PullStatus.NO_NEW
    waiting = beside(reader.pull(place, 0, wait_ms=15_000))
    await broker.clock.advance("5s")
    assert not waiting.done()
    await send(mq, [b"hello"], "one")
    assert await seconds(broker, waiting) < SOON_S
    found = await waiting
    assert (found.status, found.next_offset, found.batches[0].bodies()) == (PullStatus.FOUND, 1, [b"hello"])


async def test_pulling_stops_at_the_limit_and_goes_on_soon_after(broker: Broker, mq: Client) -> None:
    """E-140, E-143: with nothing processed at most the limit and one pull are held. One ack resumes pulling."""
    place = await only_queue(mq, "one")
    await send(mq, range(2000), "one")
    async with mq.pull_consumer("g", "one", prompt(limits=FlowLimits(messages_max=100))) as consumer:
        await until(lambda: place in consumer.queues and consumer.position(place) > 100)
        await broker.clock.advance("5s")
        held = consumer.position(place)
        assert held <= 132
        batch = await consumer.poll()
        assert batch is not None
        batch.ack()
        assert await seconds(broker, until(lambda: consumer.position(place) > held)) < SOON_S


async def test_pulling_stops_at_the_size(broker: Broker, mq: Client) -> None:
    """E-141: at most the limit and one pull of 1 MiB messages are held. One ack resumes pulling."""
    place = await only_queue(mq, "one")
    await broker.send("one", *[b"x" * (1 << 20)] * 8)
    async with mq.pull_consumer("g", "one", prompt(limits=FlowLimits(bytes_max=2 << 20))) as consumer:
        await until(lambda: place in consumer.queues and consumer.position(place) >= 3)
        await broker.clock.advance("5s")
        assert consumer.position(place) <= 4
        while (batch := await consumer.poll(15_000)) is not None and batch.next_offset < 8:
            batch.ack()
        assert batch is not None


async def test_one_stuck_message_stops_pulling_at_the_span(broker: Broker, mq: Client) -> None:
    """E-142: few messages are held, but the newest is more than the span ahead of the stuck one."""
    place = await only_queue(mq, "one")
    await send(mq, range(2000), "one")
    stuck = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.offset == 0:
            await stuck.wait()

    async with mq.pull_consumer("g", "one", prompt(limits=FlowLimits(span_max=500))) as consumer:
        running = beside(consumer.run(handle))
        await until(lambda: place in consumer.queues and consumer.position(place) > 501)
        await broker.clock.advance("5s")
        assert consumer.position(place) <= 501 + 32
        assert await stored_offset(mq, "g", place) == 0
        stuck.set()
        await until(lambda: consumer.position(place) == 2000)
        running.cancel()


# A frozen enode.


async def test_frozen_enode_gives_a_prompt_error_and_works_again_when_thawed(broker: Broker, mq: Client) -> None:
    """With the enode frozen a producer gets Unavailable within its limit, instead of hanging (E-241)."""
    async with Channels() as channels:
        producer = ProducerServiceStub(channels.channel_to(broker.address))
        request = producer_pb2.PublishRequest(topic="one", messages=[record_pb2.Message(body=b"x")])
        await producer.Publish(request)

        async def refused() -> None:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await producer.Publish(request)
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE

        async def unanswered() -> None:
            batches = [batch_request(n, queue("one"), [b"x"]) for n in range(5)]
            async for answer in producer.Produce(iter(batches)):
                assert answer.failure.kind == failure_pb2.FAILURE_KIND_UNAVAILABLE

        with broker.freeze("enode"):
            assert await seconds(broker, refused()) < ENODE_LIMIT_S
            assert await seconds(broker, unanswered()) < ENODE_LIMIT_S
        before = len(await broker.messages("one"))
        await broker.send("one", b"y")
        assert len(await broker.messages("one")) > before


async def test_frozen_enode_lets_no_consumer_wait_in_silence(broker: Broker, mq: Client) -> None:
    """Pulls, locks, commits and queries of offsets are answered within the limit as well (E-241)."""
    async with Channels() as channels:
        consumer = ConsumerServiceStub(channels.channel_to(broker.address))
        place = queue("one")
        commit = pull_pb2.CommitConsumerOffsetsRequest(
            group="g", offsets=[pull_pb2.ConsumerOffset(queue=place, offset=0)]
        )
        await consumer.CommitOffsets(commit)

        async def pull() -> None:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await consumer.Pull(pull_pb2.PullRequest(group="g", queue=place))
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE

        async def lock() -> None:
            request = pull_pb2.LockQueuesRequest(group="g", client_id="a", queues=[place])
            [refused] = (await consumer.LockQueues(request)).refused
            assert refused.failure.kind == failure_pb2.FAILURE_KIND_UNAVAILABLE

        async def store() -> None:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await consumer.CommitOffsets(commit)
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE

        async def ask() -> None:
            request = pull_pb2.QueryConsumerOffsetsRequest(group="g", queues=[place])
            [refused] = (await consumer.QueryOffsets(request)).refused
            assert refused.failure.kind == failure_pb2.FAILURE_KIND_UNAVAILABLE

        with broker.freeze("enode"):
            for question in (pull, lock, store, ask):
                assert await seconds(broker, question()) < ENODE_LIMIT_S
