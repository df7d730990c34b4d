"""Damaged bytes in an enode's log, seen by readers through a snode: reported, skipped, never served."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ortoo.client import (
    Client,
    Consumer,
    ConsumerSettings,
    DataLoss,
    LostMessages,
    Message,
    NotFound,
    PullConsumer,
    PullSettings,
    Queue,
    connect,
)
from ortoo.common.process.background import Background
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from ortoo.verification.servers.grpcurl import call

COUNT = 12
LOST = 5
QUEUE = Queue("t", "enode-0", 0)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """A cluster whose topic has one queue of twelve messages; the bytes of the sixth are damaged on the disk."""
    async with open_cluster(tmp_path) as opened:
        await opened.create_topic("t", queues=1)
        async with connect(opened.address) as mq, mq.producer("t") as producer:
            for number in range(COUNT):
                await producer.send(Message(b"body number %d" % number, "red", (f"key-{number}",)))
        await opened.close("enode-0")
        damage(tmp_path, b"body number %d" % LOST)
        await opened.open_enode("enode-0")
        yield opened


def damage(folder: Path, body: bytes) -> None:
    """Flip a bit of a stored body."""
    (segment,) = (folder / "enode-0").rglob("*.seg")
    data = bytearray(segment.read_bytes())
    data[data.index(body)] ^= 1
    segment.write_bytes(data)


async def told_what_is_lost(mq: Client, consumer: Consumer | PullConsumer, losses: list[LostMessages]) -> None:
    """Every other message comes, the gap is reported to the application, and the group's offset moves on."""
    found = []
    async with asyncio.timeout(60), consumer:
        async for message in consumer:
            found.append(message.offset)
            message.ack()
            if message.offset == COUNT - 1:
                break
        assert consumer.lost_messages == 1
    (lost,) = losses
    assert (lost.queue, lost.begin_offset, lost.end_offset) == (QUEUE, LOST, LOST + 1)
    assert ".seg" in lost.reason
    assert found == [offset for offset in range(COUNT) if offset != LOST]
    assert (await mq.admin.describe_lag("g", "t")).lag_messages == 0


@pytest.mark.parametrize("wanted", ["*", "red || blue"])
async def test_a_consumer_is_told_what_is_lost_and_goes_on_behind_it(cluster: InProcessCluster, wanted: str) -> None:
    """G12: the messages behind the damage are pushed."""
    losses: list[LostMessages] = []
    settings = ConsumerSettings(from_beginning=True, on_loss=losses.append)
    async with connect(cluster.address) as mq:
        await told_what_is_lost(mq, mq.consumer("g", {"t": wanted}, settings), losses)


@pytest.mark.parametrize("wanted", ["*", "red || blue"])
async def test_a_consumer_that_pulls_is_told_what_is_lost_and_goes_on_behind_it(
    cluster: InProcessCluster, wanted: str
) -> None:
    """G2, G12: the queue does not stop at damaged bytes. The gap is counted once and skipped."""
    losses: list[LostMessages] = []
    settings = PullSettings(from_beginning=True, on_loss=losses.append, pull_retry_ms=50)
    async with connect(cluster.address) as mq:
        await told_what_is_lost(mq, mq.pull_consumer("g", {"t": wanted}, settings), losses)


async def test_a_reader_outside_groups_is_told_where_to_go_on(cluster: InProcessCluster) -> None:
    """G12: a fetch returns the messages before the damage and names it. Another continues behind it, as a tail does."""
    async with connect(cluster.address) as mq:
        found = []
        with pytest.raises(DataLoss) as raised:
            async for batch in mq.fetch(QUEUE):
                found += list(batch.offsets)
        assert found == list(range(LOST))
        assert (raised.value.begin_offset, raised.value.end_offset) == (LOST, LOST + 1)
        async for batch in mq.fetch(QUEUE, raised.value.end_offset):
            found += list(batch.offsets)
        with pytest.raises(DataLoss) as raised:
            async for _ in mq.fetch(QUEUE, LOST):
                pass
        assert raised.value.end_offset == LOST + 1
        tailed = [it.offset async for it in mq.admin.tail("t", from_beginning=True, follow=False)]
        last = [it.offset async for it in mq.admin.tail_last("t", COUNT, follow=False)]
        assert found == tailed == last == [offset for offset in range(COUNT) if offset != LOST]


async def test_damage_is_named_to_an_operator(cluster: InProcessCluster) -> None:
    """G12: after the first read of it, DescribeStore reports file, position, reason and offsets."""
    async with connect(cluster.address) as mq:
        with pytest.raises(DataLoss):
            async for _ in mq.fetch(QUEUE, LOST):
                pass
    answer = await call(cluster.address_of("enode-0"), "ortoo.v1.EnodeService/DescribeStore")
    (found,) = answer.values()[0]["damages"]
    assert found["file"].endswith(".seg")
    assert int(found["position"]) > 0
    assert found["reason"]
    assert [(row["begin_offset"], row["end_offset"]) for row in found["queues"]] == [(str(LOST), str(LOST + 1))]


async def test_a_damaged_message_is_not_found_by_its_key(cluster: InProcessCluster) -> None:
    """G12: a search returns the readable messages, and nothing for the damaged one."""
    async with connect(cluster.address) as mq:
        assert (await mq.admin.find_messages("t", key=f"key-{LOST}")).messages == ()
        (found,) = (await mq.admin.find_messages("t", key="key-7")).messages
        assert (found.offset, found.message.body) == (7, b"body number 7")


def cut_short(store: Path, body: bytes) -> None:
    """End the segment before a stored body. The store knows that an end is lost."""
    (segment,) = store.rglob("*.seg")
    with segment.open("r+b") as file:
        file.truncate(segment.read_bytes().index(body))


def lose_end(store: Path, body: bytes) -> None:
    """Leave what a disk without its last writes has: zeros from a stored body on. The store sees a torn end."""
    (segment,) = store.rglob("*.seg")
    data = segment.read_bytes()
    kept = data.index(body)
    segment.write_bytes(data[:kept] + bytes(len(data) - kept))
    for name in ("clean", "durable"):
        (segment.parent / name).unlink(missing_ok=True)


async def is_writable(mq: Client) -> bool:
    """Whether the snode already knows that the enode is back. The name server knows it earlier."""
    try:
        async with mq.producer("t"):
            return True
    except NotFound:
        return False


@pytest.mark.parametrize("lose", [cut_short, lose_end])
async def test_a_producer_goes_on_when_the_enode_lost_its_last_batches(
    tmp_path: Path, lose: Callable[[Path, bytes], None]
) -> None:
    """E-216: acknowledged batches are lost under a live producer, which restarts its numbering."""
    async with open_cluster(tmp_path) as cluster:
        await cluster.create_topic("t", queues=1)
        async with connect(cluster.address) as mq, mq.producer("t") as producer, asyncio.timeout(60):
            for number in range(COUNT):
                await producer.send(Message(b"body number %d" % number))
            await cluster.close("enode-0")
            lose(tmp_path / "enode-0", b"body number 9")
            await cluster.open_enode("enode-0")
            receipts = [await producer.send(Message(b"after %d" % number)) for number in range(3)]
            assert [receipt.offset for receipt in receipts] == [9, 10, 11]
            bodies = [it.message.body async for it in mq.admin.tail("t", from_beginning=True, follow=False)]
        assert bodies == [b"body number %d" % n for n in range(9)] + [b"after %d" % n for n in range(3)]


@pytest.mark.parametrize("lose", [cut_short, lose_end])
@pytest.mark.parametrize("is_pulled", [False, True], ids=["pushed", "pulled"])
async def test_a_running_consumer_gets_what_is_stored_at_lost_offsets(
    tmp_path: Path, is_pulled: bool, lose: Callable[[Path, bytes], None]
) -> None:
    """G2: it was ahead of the new end, and continues at the committed offset."""
    received: list[bytes] = []
    async with (
        open_cluster(tmp_path) as cluster,
        connect(cluster.address) as mq,
        Background("reader") as background,
        asyncio.timeout(60),
    ):
        await cluster.create_topic("t", queues=1)
        consumer: Consumer | PullConsumer = (
            mq.pull_consumer("g", "t", PullSettings(from_beginning=True, pull_retry_ms=50))
            if is_pulled
            else mq.consumer("g", "t", ConsumerSettings(from_beginning=True))
        )
        async with mq.producer("t") as producer, consumer:

            async def read() -> None:
                async for message in consumer:
                    received.append(message.body)
                    message.ack()

            async def until(bodies: set[bytes]) -> None:
                while not bodies <= set(received):
                    await cluster.clock.sleep(0.02)

            background.spawn("read", read())
            old, new = ([b"%s %d" % (kind, number) for number in range(COUNT)] for kind in (b"old", b"new"))
            for body in old:
                await producer.send(body)
            await until(set(old))
            await cluster.close("enode-0")
            lose(tmp_path / "enode-0", old[3])
            await cluster.open_enode("enode-0")
            while not await is_writable(mq):
                await cluster.clock.sleep(0.01)
            async with mq.producer("t") as other:  # it did not fail before, so it is quicker than the reader
                for bodies in (new[:2], new[2:]):  # the queue still ends before the consumer's position
                    for body in bodies:
                        await other.send(body)
                    await until(set(bodies))
