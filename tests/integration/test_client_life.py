"""The life of a client without a block: open, ping, close, and the errors of a use before or after that."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ortoo.client import Client, ClientClosed, Conflict, ConsumerClosed, Invalid, Message, Unavailable, connect
from ortoo.client import app as client_app
from ortoo.client.apps.running import RunningApp
from ortoo.client.blocking import connect as connect_blocking
from ortoo.client.core.closed import Openable
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.testing.pytest_broker import BlockingBroker
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from ortoo.verification.servers.ports import free_address
from tests.e2e.deaf_relay import deaf_relay
from tests.integration.certificates import Authority
from tests.own_time import own_time


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """One of each role, with the topic t."""
    async with open_cluster(tmp_path) as opened:
        await opened.create_topic("t")
        async with connect(opened.address) as mq:
            while not await mq.admin.list_topics():  # a snode reads the directory later
                await SystemClock().sleep(0.01)
        yield opened


async def test_a_program_without_blocks_opens_and_closes(cluster: InProcessCluster) -> None:
    """As in the lifespan of a web framework or in a notebook: open here, use there, close elsewhere."""
    mq = await connect(cluster.address)
    producer, consumer = await mq.producer("t"), await mq.pop_consumer("g", "t").open()
    assert (await producer.send(b"one")).offset == 0
    [message] = await consumer.pop()
    await message.ack()
    await consumer.close()
    with pytest.raises(ConsumerClosed):
        await consumer.pop()
    await mq.close()
    await mq.close()
    with pytest.raises(ClientClosed):
        await producer.send(b"two")


async def test_the_end_of_a_client_closes_what_it_has_opened(cluster: InProcessCluster) -> None:
    """The newest first: a producer sends what it has taken, and consumers leave their groups."""
    mq = await connect(cluster.address)
    producer = await mq.producer("t")
    kinds: list[Openable] = [mq.consumer("push", "t"), mq.pull_consumer("pull", "t"), mq.pop_consumer("pop", "t")]
    for one in kinds:
        await one
    taken = producer.enqueue_nowait(b"one")
    await mq.close()
    assert (await taken).offset == 0
    async with connect(cluster.address) as other:
        while any([await other.admin.count_consumers(group) for group in ("push", "pull", "pop")]):
            await SystemClock().sleep(0.01)


async def test_a_client_that_is_not_open_says_how_to_open_it(cluster: InProcessCluster) -> None:
    """At its first use, in every way."""
    mq = connect(cluster.address)
    with pytest.raises(ClientClosed, match="await connect"):
        mq.producer("t")
    with pytest.raises(ClientClosed, match="await connect"):
        await mq.ping()
    async with mq:
        with pytest.raises(Conflict, match="opened before"):
            await mq.open()
    with pytest.raises(ClientClosed, match="closed"):
        await mq.admin.list_topics()


async def test_an_object_is_opened_once(cluster: InProcessCluster) -> None:
    """Such as `async with await mq.producer("t")`, and a second use of a closed object."""
    async with connect(cluster.address) as mq:
        kinds: list[Openable] = [mq.consumer("push", "t"), mq.pull_consumer("pull", "t"), mq.pop_consumer("pop", "t")]
        for one in (mq.producer("t"), *kinds):
            await one
            with pytest.raises(Conflict, match=f"this {type(one).__name__} was opened before; make another one"):
                async with one:
                    pass
            await one.close()
            with pytest.raises(Conflict, match="opened before"):
                await one.open()


async def test_a_cancelled_opening_leaves_nothing_open(cluster: InProcessCluster) -> None:
    """At any moment, so that a notebook may be interrupted."""
    async with connect(cluster.address) as mq:
        for turns in (0, 1, 2, 3, 5, 8, 13, 21, 34):
            producer = mq.producer("t")
            async with asyncio.TaskGroup() as tasks:
                opening = tasks.create_task(producer.open())
                for _ in range(turns):
                    await SystemClock().sleep(0)
                opening.cancel()
            if not opening.cancelled():
                await producer.close()
            with pytest.raises(ClientClosed):
                await producer.send(b"late")


async def test_a_close_has_a_limit(cluster: InProcessCluster) -> None:
    """Without a server, the messages without an answer are named nowhere, but the program ends."""
    mq = await connect(cluster.address)
    producer = await mq.producer("t")
    await cluster.close("snode-0")
    taken = producer.enqueue_nowait(b"lost")
    with pytest.raises(TimeoutError, match=r"Producer did not close gracefully within 0\.05 s"):
        await producer.close(timeout_s=0.05)
    with pytest.raises(Unavailable):
        await taken
    await mq.close()


async def test_the_close_of_a_client_has_one_limit_for_all_its_parts(cluster: InProcessCluster) -> None:
    """Without answers, no part waits for its own limit after the client's, and no task is left."""
    before = asyncio.all_tasks()
    async with deaf_relay(cluster.address) as relay:
        mq = await connect(relay.address)
        producer = await mq.producer("t")
        await producer.send(b"one")
        for one in (mq.consumer("push", "t"), mq.pull_consumer("pull", "t"), pop := mq.pop_consumer("pop", "t")):
            await one.open()
        assert await pop.pop()
        relay.deaf = True
        async with own_time() as taken:
            with pytest.raises(TimeoutError, match=r"Client did not close gracefully within 0\.5 s"):
                await mq.close(timeout_s=0.5)
        assert taken.seconds < 8  # 20 s if each part waited for its own limit
        async with asyncio.timeout(60):
            while any(
                "session" in task.get_name() or "pop" in task.get_name() for task in asyncio.all_tasks() - before
            ):
                await SystemClock().sleep(0.01)


async def test_ping_waits_for_a_snode_that_serves(cluster: InProcessCluster) -> None:
    """Its seconds are those of one answer. Without a snode its error says what to check."""
    async with connect(cluster.address) as mq:
        begun_s = SystemClock().monotonic_s()
        assert 0 < await mq.ping() <= SystemClock().monotonic_s() - begun_s
    async with connect(free_address()) as nowhere:
        with pytest.raises(Unavailable, match="check that a snode is running there"):
            await nowhere.ping(timeout_s=0.2)


async def test_a_program_that_starts_before_the_servers_waits_for_them(tmp_path: Path) -> None:
    """`start_timeout_s` is the longest time; after it the start fails, and nothing stays open."""
    address = free_address()
    with pytest.raises(Unavailable, match="no answer from"):
        await connect(address, start_timeout_s=0.2)

    async def start() -> Client:
        return await connect(address, start_timeout_s=60)

    async with Background("test") as background:
        starting = background.spawn("client", start())
        async with open_cluster(tmp_path, settings={"snode": {"listen_address": address}}):
            mq = await starting
            assert await mq.admin.list_topics() == []
            await mq.close()


async def test_a_proxy_is_given_or_switched_off(cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """All calls then go through it, or none, whatever the environment says."""
    tunnels: list[str] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        tunnels.append(head.split()[1])
        host, _, port = tunnels[-1].rpartition(":")
        to_reader, to_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(1 << 16):
                target.write(data)
            target.close()

        await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer), return_exceptions=True)

    async with await asyncio.start_server(tunnel, "127.0.0.1", 0) as proxy:
        url = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        async with connect(cluster.address, proxy=url) as mq:
            assert [one.name for one in await mq.admin.list_topics()] == ["t"]
        assert tunnels == [cluster.address]
    monkeypatch.setenv("http_proxy", f"http://{free_address()}")
    async with connect(cluster.address, proxy="") as mq:
        assert [one.name for one in await mq.admin.list_topics()] == ["t"]
    async with connect(cluster.address, proxy=f"http://{free_address()}") as mq:
        with pytest.raises(Unavailable, match="the proxy given to `connect`"):
            await mq.ping(timeout_s=0.3)
    with pytest.raises(Invalid, match="expected http://host:port"):
        connect(cluster.address, proxy="socks5://here:1")


async def test_a_running_client_uses_renewed_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New roots and a new client certificate count without a restart: the server asks for both."""
    monkeypatch.setattr(client_app, "CERTIFICATE_INTERVAL_S", 0.05)
    first, second = await Authority.make(tmp_path / "first"), await Authority.make(tmp_path / "second")
    server, shown = await first.sign("server", "localhost"), await first.sign("client")
    chosen = {
        "tls_listen_address": "127.0.0.1:0",
        "tls_certificate_file": str(server.certificate_file),
        "tls_key_file": str(server.key_file),
        "tls_client_ca_file": str(first.ca_file),
    }
    async with open_cluster(tmp_path / "cluster", settings={"snode": chosen}) as cluster, asyncio.timeout(120):
        address = cluster.running["snode-0"].tls_address.replace("127.0.0.1", "localhost")
        files: dict[str, Any] = {
            "tls_certificate_file": str(shown.certificate_file),
            "tls_key_file": str(shown.key_file),
        }
        async with connect(address, tls_ca_file=str(first.ca_file), **files) as mq:
            await mq.ping()
            for certificate, name in ((server, "server"), (shown, "client")):
                renewed = await second.sign(name, *(["localhost"] if name == "server" else []))
                certificate.certificate_file.write_bytes(renewed.certificate_file.read_bytes())
                certificate.key_file.write_bytes(renewed.key_file.read_bytes())
            first.ca_file.write_bytes(second.ca_file.read_bytes())
            await cluster.close("snode-0")  # its connections end, and new ones need the new files
            cluster.settings["snode"] |= {"tls_listen_address": address.replace("localhost", "127.0.0.1")}
            await cluster.open_snode("snode-0")
            await mq.ping(timeout_s=60)


@pytest.mark.parametrize("port", [-1, 70_000])
async def test_a_health_check_needs_a_free_port(port: int) -> None:
    """The error names the port, and says what to do."""
    program = RunningApp()
    with pytest.raises(Invalid, match=f"{port} is no port"):
        async with program.serve_health(port):
            pass
    async with program.serve_health(0, "127.0.0.1") as used:
        with pytest.raises(Conflict, match=rf"cannot listen on port {used} .*in use; choose another port"):
            async with program.serve_health(used, "127.0.0.1"):
                pass


def test_a_blocking_close_has_a_limit_while_a_handler_runs(blocking_broker: BlockingBroker) -> None:
    """A thread cannot be stopped, so the thread of the loop ends after the handler."""
    address, begun, finish = f"127.0.0.1:{blocking_broker.port()}", threading.Event(), threading.Event()
    mq = connect_blocking(address, start_timeout_s=30, proxy="")
    mq.admin.create_topic("t")
    mq.producer("t").send(b"one")
    consumer = mq.pop_consumer("g", "t")

    def handle(message: object) -> None:
        begun.set()
        finish.wait()

    def run() -> None:
        with suppress(BaseException):
            consumer.run(handle)

    running = threading.Thread(target=run)
    running.start()
    assert begun.wait(60)
    freed = threading.Timer(30, finish.set)
    freed.start()
    try:
        with pytest.raises(TimeoutError, match="a handler did not return"):
            mq.close(timeout_s=1)
        assert not finish.is_set()
    finally:
        freed.cancel()
        finish.set()
    running.join(60)
    assert not running.is_alive()


def test_the_blocking_client_has_the_same(blocking_broker: BlockingBroker) -> None:
    """`ping`, and a limit for each `close`."""
    mq = connect_blocking(f"127.0.0.1:{blocking_broker.port()}", start_timeout_s=30, proxy="")
    assert mq.ping() > 0
    mq.admin.create_topic("t")
    producer = mq.producer("t")
    producer.send(Message(b"one"))
    producer.close(timeout_s=60)
    mq.close(timeout_s=60)
    mq.close(timeout_s=60)
    with pytest.raises(ClientClosed):
        mq.ping()
