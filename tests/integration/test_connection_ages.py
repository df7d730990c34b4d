"""Connections and streams end at an age, and clients connect again without a failed call: added snodes get load."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.client import Client, ConsumerSettings, PopSettings, PullSettings, connect
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.snode.cluster import stream_ages
from ortoo.snode.cluster.stream_ages import StreamAges
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.valkey import valkey
from ortoo.verification.time.virtual_clock import VirtualClock

AGE_S = 1.0


class Balancer:
    """A load balancer of connections: each new one goes to the snode with the fewest."""

    def __init__(self) -> None:
        self.open: dict[str, int] = {}
        """Address of a snode to the number of its connections."""
        self.address = ""
        self._tasks = Background("balancer")

    async def __aenter__(self) -> "Balancer":
        await self._tasks.__aenter__()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *ended: object) -> None:
        self._server.close()
        await self._tasks.__aexit__(None, None, None)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.spawn("connection", self._connect(reader, writer))

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = min(self.open, key=lambda address: self.open[address])
        host, _, port = target.rpartition(":")
        self.open[target] += 1
        try:
            inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
            async with Background("copy") as copies:
                done = {
                    copies.spawn("in", copy(reader, inner_writer)),
                    copies.spawn("out", copy(inner_reader, writer)),
                }
                await asyncio.wait(done, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.open[target] -= 1
            for one in (writer, inner_writer):
                one.close()


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy bytes until either side closes."""
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()


@contextlib.asynccontextmanager
async def balanced(folder: Path) -> AsyncIterator[tuple[Client, Balancer, asyncio.Event]]:
    """A client of a balancer before one snode; a second snode is there once the event is set and awaited."""
    async with valkey(folder / "valkey") as server, Balancer() as balancer, Background("add") as background:
        settings = {"redis_url": server.url, "connection_age_max_s": AGE_S}
        async with open_cluster(folder / "cluster", settings={"snode": settings}) as cluster:
            balancer.open[cluster.address_of("snode-0")] = 0
            add = asyncio.Event()

            async def grow() -> None:
                await add.wait()
                await cluster.open_snode("snode-1")
                balancer.open[cluster.address_of("snode-1")] = 0

            background.spawn("grow", grow())
            async with connect(balancer.address) as mq:
                await mq.admin.create_topic("t")
                yield mq, balancer, add


async def until_both_have_connections(balancer: Balancer) -> None:
    """Wait until the added snode has a connection too."""
    async with asyncio.timeout(60):
        while len(balancer.open) < 2 or not all(balancer.open.values()):
            await SystemClock().sleep(0.05)


@pytest.mark.usefixtures("each_transport")
async def test_native_clients_move_to_an_added_snode_without_a_failed_call(tmp_path: Path) -> None:
    """Every send is acknowledged, every message arrives, and producers and consumers use both snodes."""
    sent, pushed, popped = set[bytes](), list[bytes](), list[bytes]()
    stop = asyncio.Event()
    async with (
        balanced(tmp_path) as (mq, balancer, add),
        asyncio.timeout(120),
        connect(balancer.address) as sender,
        sender.producer("t") as producer,
        mq.consumer("pushing", "t", ConsumerSettings(from_beginning=True)) as consumer,
        connect(balancer.address) as popper,
        popper.pop_consumer("popping", "t", "*", PopSettings()) as pop,
        Background("traffic") as traffic,
    ):

        async def send() -> None:
            while not stop.is_set():
                body = b"%d" % len(sent)
                await producer.send(body)
                sent.add(body)
                await SystemClock().sleep(0.005)

        async def receive() -> None:
            async for message in consumer:
                pushed.append(message.body)
                message.ack()

        async def take() -> None:
            while True:
                for message in await pop.pop(wait_ms=1000):
                    popped.append(message.body)
                    await message.ack()

        sending = traffic.spawn("send", send())
        for name, work in (("receive", receive()), ("take", take())):
            traffic.spawn(name, work)
        add.set()
        await until_both_have_connections(balancer)
        await SystemClock().sleep(3 * AGE_S)  # several connections of each client
        stop.set()
        await sending
        while set(pushed) != sent or set(popped) != sent:
            assert not sending.cancelled()
            await SystemClock().sleep(0.05)
        # At-least-once delivery: only messages in flight at the end of a session arrive again.
        assert len(popped) == len(sent)


@pytest.mark.usefixtures("each_transport")
async def test_a_pull_consumer_receives_after_its_calls_have_moved_to_another_snode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session stays on the old connection, but locks are renewed at the session's snode: it opens another one."""
    monkeypatch.setattr(stream_ages, "AFTER_CONNECTION", 1_000.0)
    received = set[bytes]()
    settings = PullSettings(from_beginning=True, lock_renewal_ms=200, lock_trust_ms=2_000)
    async with (
        balanced(tmp_path) as (mq, balancer, add),
        asyncio.timeout(80),
        mq.pull_consumer("g", "t", settings) as consumer,
        connect(balancer.address) as sender,
        sender.producer("t") as producer,
        Background("receive") as traffic,
    ):

        async def receive() -> None:
            async for message in consumer:
                received.add(message.body)
                message.ack()

        traffic.spawn("receive", receive())
        add.set()
        await until_both_have_connections(balancer)
        end_s = SystemClock().monotonic_s() + 4 * AGE_S + settings.lock_trust_ms / 1000
        sent = set[bytes]()
        while SystemClock().monotonic_s() < end_s or received != sent:
            if SystemClock().monotonic_s() < end_s:
                sent.add(body := b"%d" % len(sent))
                await producer.send(body)
            await SystemClock().sleep(0.05)


@pytest.mark.usefixtures("each_transport")
async def test_a_pull_consumer_commits_when_its_session_has_reached_its_age(tmp_path: Path) -> None:
    """The next session's locks fence the former ones, and the queues are pulled again from the committed offsets."""
    settings = PullSettings(from_beginning=True, commit_first_ms=3_600_000, commit_interval_ms=3_600_000)
    async with (
        open_cluster(tmp_path, settings={"snode": {"connection_age_max_s": AGE_S}}) as cluster,
        asyncio.timeout(60),
        connect(cluster.address) as mq,
    ):
        await cluster.create_topic("t", queues=1)
        async with mq.producer("t") as producer, mq.pull_consumer("g", "t", settings) as consumer:
            await producer.send(b"a message")
            messages = aiter(consumer)
            message = await anext(messages)
            message.ack()
            while not await consumer.committed(message.queue):
                await SystemClock().sleep(0.05)


@pytest.mark.usefixtures("each_transport")
async def test_each_stream_ends_once_at_its_own_time() -> None:
    """The ends of streams are spread, a stream that ended itself is not ended again, and 0 is no limit."""
    clock, ended = VirtualClock(), list[int]()
    ages, endless = (StreamAges(age_s, clock, Randomness(1)) for age_s in (100.0, 0.0))
    with contextlib.ExitStack() as stack:
        for number in range(50):
            stack.enter_context(ages.track(lambda number=number: ended.append(number)))  # type: ignore[misc]
        stack.enter_context(endless.track(lambda: ended.append(-1)))
        with ages.track(lambda: ended.append(-2)):
            pass
        counts = []
        for _ in range(30):
            clock.advance(5.0)
            await ages.end_due()
            await endless.end_due()
            counts.append(len(ended))
    assert sorted(ended) == list(range(50))
    assert counts[21] == 0
    assert len({*counts}) > 4
