"""The client against a real cluster: async, blocking, outside groups, and as the command uses it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.client import AlreadyExists, Consumer, ConsumerSettings, Invalid, Message, NotFound, Sql, blocking, connect
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster

EVERYTHING = ConsumerSettings(from_beginning=True)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """One of each role, with the topic t of four queues."""
    async with open_cluster(tmp_path) as opened:
        await opened.create_topic("t")
        yield opened


async def test_what_was_sent_is_consumed_and_acknowledged(cluster: InProcessCluster) -> None:
    """Bodies, tags, keys and properties arrive unchanged, and the group's lag is zero after the consumer left."""
    sent = [Message(b"body %d" % n, "tag", (f"key-{n}",), properties={"n": str(n)}) for n in range(300)]
    async with connect(cluster.address) as mq:
        async with mq.producer("t") as producer:
            receipts = await (await producer.send_many(sent))
        assert len({(receipt.queue, receipt.offset) for receipt in receipts}) == len(sent)
        found = {}
        async with asyncio.timeout(60), mq.consumer("g", "t", EVERYTHING) as consumer:
            async for message in consumer:
                found[message.message_id] = message.message().replace(born_at_ms=None)
                message.ack()
                if len(found) == len(sent):
                    break
        assert found == {receipt.message_id: message for receipt, message in zip(receipts, sent, strict=True)}
        assert (await mq.admin.describe_lag("g", "t")).lag_messages == 0


async def test_messages_of_a_message_group_keep_their_order(cluster: InProcessCluster) -> None:
    """They are stored in one queue, one after another, though every enqueue may start a batch of its own."""
    async with connect(cluster.address) as mq, mq.producer("t") as producer:
        sendings = []
        for number in range(200):
            sendings.append(await producer.enqueue(Message(b"%d" % number, message_group="order-7")))
            if number % 10 == 0:
                await sendings[-1]
        receipts = [await sending for sending in sendings]
    assert {receipt.queue for receipt in receipts} == {receipts[0].queue}
    assert [receipt.offset for receipt in receipts] == list(range(200))


async def test_a_flush_sends_what_waits(cluster: InProcessCluster) -> None:
    """It does so at once after the very first messages, before their queue has another batch."""
    async with connect(cluster.address) as mq, mq.producer("t") as producer:
        sendings = [await producer.enqueue(b"%d" % number) for number in range(3)]
        await producer.flush()
        assert all(sending.done for sending in sendings)


async def test_a_refused_message_harms_no_neighbour(cluster: InProcessCluster) -> None:
    """An empty body is named; the messages before and after it are stored."""
    async with connect(cluster.address) as mq:
        async with mq.producer("t") as producer:
            sendings = [await producer.enqueue(body) for body in (b"a", b"", b"c")]
            with pytest.raises(Invalid):
                await sendings[1]
            assert (await sendings[0]).offset + 1 == (await sendings[2]).offset
            await producer.flush()  # the failure was reported
        stored = [message async for message in mq.admin.tail_last("t", 10, follow=False)]
    assert [message.message.body for message in stored] == [b"a", b"c"]


async def test_a_tail_misses_nothing_between_the_last_messages_and_the_next(cluster: InProcessCluster) -> None:
    """The newest stored messages come first, then those sent while it runs."""
    async with asyncio.timeout(60), connect(cluster.address) as mq, mq.producer("t") as producer:
        for number in range(15):
            receipt = await producer.send(b"%d" % number)
            while cluster.clock.now_ms() <= receipt.stored_at_ms:  # queues have no order within a millisecond
                await cluster.clock.sleep(0.001)
        bodies: list[bytes] = []
        async for stored in mq.admin.tail_last("t", 10):
            bodies.append(stored.message.body)
            if len(bodies) == 10:
                await producer.send(b"later")
            if len(bodies) == 11:
                break
    assert bodies[-1] == b"later"
    assert sorted(bodies[:-1]) == sorted(b"%d" % number for number in range(5, 15))


async def test_a_queue_is_read_outside_groups(cluster: InProcessCluster) -> None:
    """A range is returned exactly; an unknown queue is named."""
    async with connect(cluster.address) as mq, mq.producer("t") as producer:
        sent = [b"%d" % number for number in range(50)]
        receipts = await (await producer.send_many(Message(body, message_group="one") for body in sent))
        queue = receipts[0].queue
        read = [(it.offset, it.body) async for batch in mq.fetch(queue, 10, 40) for it in batch]
        assert [pair for pair in read if 10 <= pair[0] < 40] == list(enumerate(sent))[10:40]
        assert not [batch async for batch in mq.fetch(queue, 50)]
        with pytest.raises(NotFound):
            [batch async for batch in mq.fetch(type(queue)("t", queue.enode, 77))]


async def test_a_topic_is_made_once(cluster: InProcessCluster) -> None:
    """Creating it again is AlreadyExists; deleting it twice is NotFound."""
    async with connect(cluster.address) as mq:
        with pytest.raises(AlreadyExists):
            await mq.admin.create_topic("t", queue_count=9)
        assert (await mq.admin.ensure_topic("t")).name == "t"
        await mq.admin.delete_topic("t")
        with pytest.raises(NotFound):
            await mq.admin.delete_topic("t")


async def test_the_next_snode_is_asked_when_one_is_away(cluster: InProcessCluster) -> None:
    """With several addresses a dead one costs a retry, not an error."""
    async with connect(["127.0.0.1:1", cluster.address]) as mq, mq.producer("t") as producer:
        assert (await producer.send(b"hello")).offset == 0


async def test_the_blocking_client_does_the_same(cluster: InProcessCluster) -> None:
    """Send, consume, acknowledge, fetch and tail, from a thread without an event loop."""

    def use() -> tuple[list[bytes], int, list[bytes], list[bytes]]:
        with blocking.connect(cluster.address) as mq:
            with mq.producer("t") as producer:
                receipt = producer.send(Message(b"one", message_group="g"))
                producer.send_many([Message(b"two", message_group="g"), Message(b"three", message_group="g")])
            consumed: list[bytes] = []
            with mq.consumer("g", "t", EVERYTHING) as consumer:
                for message in consumer:
                    consumed.append(message.body)
                    consumer.ack(message)
                    if len(consumed) == 3:
                        break
            fetched = [body for batch in mq.fetch(receipt.queue) for body in batch.bodies()]
            tailed = [it.message.body for it in mq.admin.tail("t", from_beginning=True, follow=False)]
            return consumed, mq.admin.describe_lag("g", "t").lag_messages, fetched, tailed

    async with asyncio.timeout(60):
        consumed, lag, fetched, tailed = await asyncio.to_thread(use)
    assert consumed == fetched == tailed == [b"one", b"two", b"three"]
    assert lag == 0


async def test_sql_conditions_choose_messages_for_consumers_and_readers(cluster: InProcessCluster) -> None:
    """Push sessions, fetches and tails get exactly what the condition is true for; offsets count the stored ones."""
    async with connect(cluster.address) as mq, asyncio.timeout(60):
        await mq.admin.create_topic("orders", queue_count=1)
        async with mq.producer("orders") as producer:
            bodies = [Message(b"%d" % n, "even" if n % 2 == 0 else "odd", properties={"n": str(n)}) for n in range(40)]
            await (await producer.send_many(bodies))
        wanted = Sql("TAGS = 'even' AND n BETWEEN 10 AND 14")
        queue = (await mq.admin.describe_topic("orders")).queues[0].queue
        fetched = [(it.offset, it.body) async for batch in mq.fetch(queue, filter=wanted) for it in batch]
        assert fetched == [(10, b"10"), (12, b"12"), (14, b"14")]
        tailed = [
            it.message.body async for it in mq.admin.tail("orders", from_beginning=True, follow=False, filter=wanted)
        ]
        assert tailed == [b"10", b"12", b"14"]
        last = [it.message.body async for it in mq.admin.tail_last("orders", 2, follow=False, filter=wanted)]
        assert last == [b"12", b"14"]
        async with mq.consumer("g", {"orders": wanted}, ConsumerSettings(from_beginning=True)) as consumer:
            got = []
            async for message in consumer:
                got.append((message.offset, message.body, message.tag))
                message.ack()
                if len(got) == 3:
                    break
        assert got == [(10, b"10", "even"), (12, b"12", "even"), (14, b"14", "even")]
        with pytest.raises(Invalid, match="is not a value"):
            async with mq.consumer("g", {"orders": Sql("length(n) = 1")}) as consumer:
                async for _ in consumer:
                    pass


async def test_the_lag_of_a_group_that_is_not_there_is_refused(cluster: InProcessCluster) -> None:
    """A mistyped group name is not reported as a lag of all messages."""
    async with connect(cluster.address) as mq:
        with pytest.raises(NotFound, match="no group 'typo'"):
            await mq.admin.describe_lag("typo", "t")
        await mq.admin.put_group("young")
        assert (await mq.admin.describe_lag("young", "t")).queues[0].committed_offset == -1


async def test_a_pushed_broadcast_goes_on_from_its_own_file(cluster: InProcessCluster, tmp_path: Path) -> None:
    """E-112: two consumers each get all messages. Messages sent while they were stopped come after their restart."""

    async def take(consumer: Consumer, count: int) -> set[bytes]:
        found: set[bytes] = set()
        async for batch in consumer.batches():
            found |= set(batch.bodies())
            batch.ack()
            if len(found) >= count:
                break
        return found

    def settings(name: str) -> ConsumerSettings:
        return ConsumerSettings(broadcast=True, offsets_folder=tmp_path / "offsets", client_id=name)

    first, later = [b"%d" % n for n in range(20)], [b"later %d" % n for n in range(20)]
    async with asyncio.timeout(40), connect(cluster.address) as mq, mq.producer("t") as producer:
        async with mq.consumer("g", "t", settings("a")) as a, mq.consumer("g", "t", settings("b")) as b:
            while min(len(a.queues), len(b.queues)) < 4:
                await cluster.clock.sleep(0.01)
            await (await producer.send_many(first))
            assert await take(a, 20) == await take(b, 20) == set(first)
        await (await producer.send_many(later))
        for name in ("a", "b"):
            async with mq.consumer("g", "t", settings(name)) as consumer:
                assert await take(consumer, 20) == set(later)
