"""The client's pop consumer against a real cluster."""

import asyncio
from pathlib import Path

import pytest

from ortoo.client import (
    Client,
    Fenced,
    Message,
    PopConsumer,
    PoppedMessage,
    PopSettings,
    RetryLater,
    StoredMessage,
    blocking,
    connect,
)
from ortoo.common.groups.pop import SETTLED_OFFSETS_MAX
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.cluster import open_cluster

CLOCK = SystemClock()


async def send(mq: Client, *bodies: str, group: str | None = None, topic: str = "jobs") -> None:
    """Send messages."""
    async with mq.producer(topic) as producer:
        await (await producer.send_many([Message(body.encode(), message_group=group) for body in bodies]))


async def test_workers_share_a_topic_of_one_queue(tmp_path: Path) -> None:
    """Ten workers, one queue: every worker gets messages, each message comes once."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=1)
        await send(mq, *[str(number) for number in range(200)])
        seen: list[tuple[int, str]] = []
        done = asyncio.Event()

        async def work(worker: int) -> None:
            async def handle(message: PoppedMessage) -> None:
                await CLOCK.sleep(0.005)
                seen.append((worker, message.body.decode()))
                if len(seen) == 200:
                    done.set()

            async with mq.pop_consumer("g", "jobs") as consumer:
                await consumer.run(handle, concurrency=2)

        async with Background("workers") as background:
            tasks = [background.spawn("worker", work(number)) for number in range(10)]
            await done.wait()
            for task in tasks:
                task.cancel()
        assert sorted(int(body) for _, body in seen) == list(range(200))
        assert len({worker for worker, _ in seen}) == 10


async def test_workers_of_one_consumer_pop_together_and_settle_their_own(tmp_path: Path) -> None:
    """Each message goes to one worker, whose lease covers its own messages only; a worker that leaves loses none."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=2)
        await send(mq, *[str(number) for number in range(3000)])
        seen: list[str] = []
        async with (
            mq.pop_consumer("g", "jobs", settings=PopSettings(messages_max=16, invisible_ms=600_000)) as consumer,
            Background("workers") as background,
        ):

            async def work() -> None:
                while len(seen) < 3000:
                    popped = await consumer.pop(wait_ms=300)
                    leases = {message.lease for message in popped}
                    assert {message.offset for message in popped} == {at for one in leases for at in one.open_offsets}
                    seen.extend(message.body.decode() for message in popped)
                    await asyncio.gather(*[consumer.ack(lease, sorted(lease.open_offsets)) for lease in leases])

            async def leave() -> None:
                while len(seen) < 2000:
                    leaving = background.spawn("pop", consumer.pop(wait_ms=300))
                    await CLOCK.sleep(0.001)
                    leaving.cancel()
                    await asyncio.wait([leaving])
                    for message in () if leaving.cancelled() else leaving.result():
                        await message.nack(0, count_attempt=False)

            await asyncio.gather(leave(), *[work() for _ in range(8)])
        assert sorted(map(int, seen)) == list(range(3000))


async def test_a_consumer_with_more_messages_than_fit_a_request_releases_them_all(tmp_path: Path) -> None:
    """It renews and releases them in several requests, so that the next consumer gets each at once, uncounted."""
    count, settings = SETTLED_OFFSETS_MAX + 1_616, PopSettings(messages_max=1_024, invisible_ms=600_000, wait_ms=5_000)
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=4)  # a queue has at most 10,000 unfinished messages of a group
        async with mq.producer("jobs") as producer:
            for begin in range(0, count, 1_000):
                await (await producer.send_many(str(number).encode() for number in range(begin, begin + 1_000)))

        async def pop_all(consumer: PopConsumer) -> list[PoppedMessage]:
            popped: list[PoppedMessage] = []
            while len(popped) < count:
                more = await consumer.pop()
                assert more, f"{len(popped)} of {count} messages are available"
                popped += more
            return popped

        async with mq.pop_consumer("g", "jobs", settings=settings) as consumer:
            unfinished = await pop_all(consumer)
        assert len({message.body for message in unfinished}) == count
        async with mq.pop_consumer("g", "jobs", settings=settings) as consumer:
            again = await pop_all(consumer)
            assert {message.attempt for message in again} == {1}
            offsets = {lease: list(lease.open_offsets) for lease in (message.lease for message in again)}
            await asyncio.gather(*[consumer.ack(lease, chosen) for lease, chosen in offsets.items()])
            assert not consumer._leases


async def test_a_failing_handler_decides_when_its_message_comes_again(tmp_path: Path) -> None:
    """RetryLater with a delay, without counting, parked; and an error of its own."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs")
        await send(mq, "a")
        attempts: list[int] = []
        parked = asyncio.Event()

        async def handle(message: PoppedMessage) -> None:
            attempts.append(message.attempt)
            if len(attempts) == 1:
                raise RetryLater(delay_ms=50)
            if len(attempts) == 2:
                raise RetryLater(delay_ms=0, count_attempt=False)
            parked.set()
            raise RetryLater(-1) from ValueError("hopeless")

        async with mq.pop_consumer("g", "jobs") as consumer, Background("worker") as background:
            running = background.spawn("run", consumer.run(handle))
            await parked.wait()
            letters: list[StoredMessage] = []
            while not letters:
                await CLOCK.sleep(0.05)
                topics = [one.name for one in await mq.admin.list_topics()]
                if "%DLQ%g" in topics:
                    letters = [one async for one in mq.admin.tail("%DLQ%g", from_beginning=True, follow=False)]
            running.cancel()
        assert attempts == [1, 2, 2]
        assert letters[0].message.properties["DLQ_ERROR"] == "ValueError: hopeless"


async def test_leaving_gives_back_what_was_not_processed_without_counting(tmp_path: Path) -> None:
    """The next consumer gets it at once, as the same attempt."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=1)
        await send(mq, "a", "b")
        async with mq.pop_consumer("g", "jobs") as one:
            first, _ = await one.pop()
            await first.ack()
        async with mq.pop_consumer("g", "jobs") as other:
            [again] = await other.pop(wait_ms=0)
            assert (again.body, again.attempt) == (b"b", 1)
            await again.ack()


async def test_an_acknowledgement_that_comes_too_late_is_told(tmp_path: Path) -> None:
    """The error is Fenced: another consumer has the message."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs")
        await send(mq, "a")
        settings = PopSettings(invisible_ms=50, renew_max_ms=0)
        async with mq.pop_consumer("g", "jobs", settings=settings) as one:
            [late] = await one.pop()
            [now] = await one.pop()
            with pytest.raises(Fenced):
                await late.ack()
            await now.ack()


async def test_messages_of_a_message_group_keep_their_order_over_many_workers(tmp_path: Path) -> None:
    """G5, through the client: 20 groups, 8 workers, every tenth delivery fails once."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=2)
        for key in range(20):
            await send(mq, *[f"{key}/{number}" for number in range(10)], group=f"k{key}")
        done: dict[str, list[int]] = {}
        finished = asyncio.Event()

        async def handle(message: PoppedMessage) -> None:
            key, number = message.body.decode().split("/")
            if message.attempt == 1 and (int(key) + int(number)) % 10 == 0:
                raise RetryLater(delay_ms=20)
            done.setdefault(key, []).append(int(number))
            if sum(map(len, done.values())) == 200:
                finished.set()

        async def work() -> None:
            async with mq.pop_consumer("g", "jobs", settings=PopSettings(in_order=True)) as consumer:
                await consumer.run(handle, concurrency=4)

        async with Background("workers") as background:
            tasks = [background.spawn("worker", work()) for _ in range(8)]
            await finished.wait()
            for task in tasks:
                task.cancel()
        assert all(numbers == list(range(10)) for numbers in done.values())


async def test_the_blocking_facade_pops_and_settles(tmp_path: Path) -> None:
    """Without an event loop in the application."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=1)
        await send(mq, "a", "b")

        def work() -> list[bytes]:
            with blocking.connect(cluster.address) as client, client.pop_consumer("g", "jobs") as consumer:
                first, second = consumer.pop()
                consumer.ack(first)
                consumer.nack(second, 0)
                [again] = consumer.pop()
                consumer.ack(again)
                return [first.body, second.body, again.body]

        assert await asyncio.to_thread(work) == [b"a", b"b", b"b"]
