"""One pull consumer against a real cluster: messages, offsets, corrections, limits."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Barrier, current_thread

import pytest

from ortoo.client import (
    Client,
    Conflict,
    Invalid,
    Message,
    PullStatus,
    ReceivedMessage,
    RetryLater,
    blocking,
    connect,
)
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.integration.pull_group import PROMPT, beside, only_queue, prompt, send, stored_offset, until


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """One of each role, with the topic t of four queues and the topic one of one."""
    async with open_cluster(tmp_path) as opened:
        await opened.create_topic("t")
        await opened.create_topic("one", queues=1)
        yield opened


@pytest.fixture
async def mq(cluster: InProcessCluster) -> AsyncIterator[Client]:
    """A client; a test that hangs is ended."""
    async with asyncio.timeout(60), connect(cluster.address) as opened:
        yield opened


async def test_what_was_sent_is_pulled_and_acknowledged(mq: Client) -> None:
    """E-109: every message comes once, and leaving stores the group's offsets, whatever the interval."""
    await send(mq, range(300), spread=True)
    found: set[bytes] = set()
    async with mq.pull_consumer("g", "t", prompt(commit_first_ms=60_000)) as consumer:
        async for message in consumer:
            assert message.body not in found
            found.add(message.body)
            message.ack()
            if len(found) == 300:
                break
    assert (await mq.admin.describe_lag("g", "t")).lag_messages == 0


async def test_offsets_are_stored_at_their_pace(mq: Client) -> None:
    """E-108: with a short interval the stored offset follows the acknowledgements during consumption."""
    await send(mq, range(50), "one")
    queue = await only_queue(mq, "one")
    async with mq.pull_consumer("g", "one", PROMPT) as consumer:
        batch = await consumer.poll()
        assert batch is not None
        batch[0].ack()
        batch[2].ack()

        async def is_stored() -> bool:
            return await consumer.committed(queue) == 1

        await until(is_stored)


async def test_an_offset_that_is_not_stored_is_corrected(mq: Client) -> None:
    """E-155: beyond the end the answer names the end, at the end there is nothing new. A consumer continues there."""
    queue = await only_queue(mq, "one")
    await send(mq, range(10), "one")
    reader = mq.pull_consumer("g")
    beyond = await reader.pull(queue, 500)
    assert (beyond.status, beyond.next_offset, beyond.begin_offset) == (PullStatus.OFFSET_ILLEGAL, 10, 0)
    assert (await reader.pull(queue, 10)).status is PullStatus.NO_NEW
    async with mq.pull_consumer("g", "one", PROMPT) as consumer:
        await until(lambda: queue in consumer.queues)
        consumer.seek(queue, 500)
        await until(lambda: consumer.position(queue) == 10)
        await send(mq, [b"new"], "one")
        batch = await consumer.poll(10_000)
        assert batch is not None
        assert batch[0].offset == 10


async def test_a_pull_gives_as_many_messages_as_were_asked_for(mq: Client) -> None:
    """A stored batch of a thousand is cut by the server; a tag filter skips messages and keeps offsets."""
    queue = await only_queue(mq, "one")
    async with mq.producer("one") as producer:
        await (await producer.send_many([Message(b"%d" % n, "even" if n % 2 == 0 else "odd") for n in range(1000)]))
    reader = mq.pull_consumer("g")
    first = await reader.pull(queue, 0, messages_max=10)
    assert [it.offset for batch in first.batches for it in batch] == list(range(10))
    odd = await reader.pull(queue, first.next_offset, messages_max=5, filter="odd")
    assert [(it.offset, it.body) for batch in odd.batches for it in batch] == [
        (n, b"%d" % n) for n in (11, 13, 15, 17, 19)
    ]


async def test_a_consumer_goes_where_it_is_told(mq: Client) -> None:
    """Seeking works in both directions, to the first message, to the end, and to a time."""
    queue = await only_queue(mq, "one")
    await send(mq, range(20), "one")
    async with mq.pull_consumer("g", settings=PROMPT) as consumer:
        consumer.assign([queue])
        await until(lambda: consumer.queues == (queue,))

        async def first_at(offset: int) -> None:
            batch = await consumer.poll(10_000)
            assert batch is not None
            assert batch[0].offset == offset

        await first_at(0)
        consumer.seek(queue, 15)
        await first_at(15)
        consumer.seek(queue, 3)
        await first_at(3)
        await consumer.seek_to_end(queue)
        await send(mq, range(1), "one")
        await first_at(20)
        await consumer.seek_to_begin(queue)
        await first_at(0)
        assert await consumer.search_offset(queue, 0) == 0
        assert await consumer.search_offset(queue, 1 << 45) == 21
        with pytest.raises(Invalid, match="expected 0 or more"):
            consumer.seek(queue, -1)


@pytest.mark.parametrize(("rule", "first"), [({}, 20), ({"from_beginning": True}, 0), ({"from_time_ms": 1}, 0)])
async def test_a_new_group_begins_where_its_rule_says(mq: Client, rule: dict[str, int], first: int) -> None:
    """E-156: at the end, at the first message, or at a time. It is stored, and the next consumer starts there."""
    queue = await only_queue(mq, "one")
    await send(mq, range(20), "one")
    settings = prompt(**({"from_beginning": False} | rule))
    async with mq.pull_consumer("g", "one", settings) as consumer:

        async def is_stored() -> bool:
            return await stored_offset(mq, "g", queue) == first

        await until(is_stored)
        assert consumer.queues == (queue,)
    async with mq.pull_consumer("g", "one", prompt(from_beginning=not first)) as consumer:
        await send(mq, range(1), "one")
        batch = await consumer.poll(10_000)
        assert batch is not None
        assert batch[0].offset == first


async def test_a_suspended_consumer_takes_nothing_and_goes_on_where_it_was(mq: Client) -> None:
    """E-147: all queues or one. The consumer keeps its queues and resumes at its offsets."""
    queue = await only_queue(mq, "one")
    async with mq.pull_consumer("g", ["one", "t"], PROMPT) as consumer:
        await until(lambda: len(consumer.queues) == 5)
        consumer.suspend(queue)
        await send(mq, range(5), "one")
        await send(mq, range(5), "t")
        other = await consumer.poll(10_000)
        assert other is not None
        assert other.queue.topic == "t"
        consumer.suspend()
        await send(mq, range(5), "t")
        assert await consumer.poll(300) is None
        assert len(consumer.queues) == 5
        consumer.resume()
        topics: set[str] = set()
        while topics != {"one", "t"}:
            batch = await consumer.poll(10_000)
            assert batch is not None
            topics.add(batch.queue.topic)


async def test_handlers_run_beside_one_another(mq: Client) -> None:
    """E-145: by default twenty callbacks are in progress at a time."""
    await send(mq, range(100))
    running, most, done = 0, 0, 0
    full = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        if running == 20:
            full.set()
        await full.wait()
        running -= 1
        done += 1

    async with mq.pull_consumer("g", "t", PROMPT) as consumer:
        task = beside(consumer.run(handle))
        await until(lambda: done == 100)
        assert most == 20
        with pytest.raises(Conflict, match="call poll, run"):
            await consumer.poll()
        task.cancel()
    assert (await mq.admin.describe_lag("g", "t")).lag_messages == 0


async def test_the_offset_stays_before_the_first_message_that_is_not_done(mq: Client) -> None:
    """E-148: nine of ten are processed. The stored offset is that of the remaining one."""
    queue = await only_queue(mq, "one")
    await send(mq, range(10), "one")
    stuck = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.offset == 4:
            await stuck.wait()

    async with mq.pull_consumer("g", "one", PROMPT) as consumer:
        running = beside(consumer.run(handle))

        async def is_stored(offset: int) -> bool:
            return await stored_offset(mq, "g", queue) == offset

        await until(lambda: is_stored(4))
        stuck.set()
        await until(lambda: is_stored(10))
        running.cancel()


async def test_in_order_a_failure_blocks_its_queue_until_it_is_done(mq: Client) -> None:
    """E-151: the first failure is repeated after its pause, and no other message of the queue comes in between."""
    await send(mq, range(6), "one")
    seen: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.offset)
        if message.offset == 2 and seen.count(2) < 3:
            raise RetryLater(delay_ms=20)

    async with mq.pull_consumer("g", "one", PROMPT) as consumer:
        task = beside(consumer.run_in_order(handle))
        await until(lambda: len(seen) == 8)
        task.cancel()
    assert seen == [0, 1, 2, 2, 2, 3, 4, 5]


async def test_every_broadcast_member_gets_everything_and_goes_on_from_its_file(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    """E-112: two consumers each get all messages, and after a restart each continues at the offsets of its own file."""
    settings = prompt(broadcast=True, offsets_folder=tmp_path / "offsets")
    async with asyncio.timeout(60), connect(cluster.address) as other:
        await send(other, range(40))
        for round_number in range(2):
            for name in ("a", "b"):
                async with (
                    connect(cluster.address, client_id=name) as mq,
                    mq.pull_consumer("g", "t", settings) as consumer,
                ):
                    found: set[bytes] = set()
                    while len(found) < 40:
                        batch = await consumer.poll(10_000)
                        assert batch is not None
                        found |= set(batch.bodies())
                        batch.ack()
                    assert found == {b"%d" % n for n in range(40 * round_number, 40 * (round_number + 1))}
            await send(other, range(40, 80))
    assert sorted(it.name for it in (tmp_path / "offsets").iterdir()) == ["a", "b"]


async def test_a_consumer_wants_other_topics_from_now_on(mq: Client) -> None:
    """E-051: subscribing to a second topic adds its queues, unsubscribing removes them."""
    async with mq.pull_consumer("g", "one", PROMPT) as consumer:
        await until(lambda: {queue.topic for queue in consumer.queues} == {"one"})
        consumer.subscribe(["one", "t"])
        await until(lambda: len(consumer.queues) == 5)
        consumer.subscribe("t")
        await until(lambda: {queue.topic for queue in consumer.queues} == {"t"})
        await send(mq, range(3), "t")
        assert await consumer.poll(10_000) is not None


async def test_wrong_uses_are_named(mq: Client) -> None:
    """A group member assigns nothing, a reader subscribes to nothing, one client is in a group once."""
    async with mq.pull_consumer("g", "t", PROMPT) as consumer:
        with pytest.raises(Invalid, match="without topics"):
            consumer.assign([])
        with pytest.raises(Conflict, match="already"):
            async with mq.pull_consumer("g", "t"):
                pass
    async with mq.pull_consumer("g") as reader:
        with pytest.raises(Invalid, match="with topics"):
            reader.subscribe("t")


async def test_the_blocking_consumer_does_the_same(cluster: InProcessCluster) -> None:
    """Polls, handlers in threads, parallel and in order, seek, suspend and commit, without an event loop."""

    def use() -> tuple[list[bytes], set[str], list[int], int]:
        with blocking.connect(cluster.address, client_id="me") as mq:
            with mq.producer("one") as producer:
                producer.send_many([b"%d" % n for n in range(10)])
            polled: list[bytes] = []
            with mq.pull_consumer("g", "one", PROMPT) as consumer:
                while len(polled) < 10:
                    batch = consumer.poll(10_000)
                    assert batch is not None
                    polled += batch.bodies()
                    consumer.ack(batch)
                (queue,) = consumer.queues
                consumer.commit()
                assert consumer.committed(queue) == consumer.position(queue) == 10
                consumer.suspend()
                consumer.seek_to_begin(queue)
                assert consumer.poll(100) is None
                consumer.resume()
                together, threads = Barrier(10), set()

                def beside(message: ReceivedMessage) -> None:
                    together.wait(10)
                    threads.add(current_thread().name)
                    if len(threads) == 10:
                        consumer.stop()

                consumer.run(beside)
                in_order: list[int] = []

                def one_by_one(message: ReceivedMessage) -> None:
                    in_order.append(message.offset)
                    if message.offset == 9:
                        consumer.stop()

                consumer.seek(queue, 0)
                consumer.run_in_order(one_by_one)
            return polled, threads, in_order, mq.admin.describe_lag("g", "one").lag_messages

    async with asyncio.timeout(40):
        polled, threads, in_order, lag = await asyncio.to_thread(use)
    assert polled == [b"%d" % n for n in range(10)]
    assert len(threads) == 10
    assert in_order == list(range(10))
    assert lag <= 1
