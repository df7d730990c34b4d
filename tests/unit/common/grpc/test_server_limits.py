"""Limits for unauthenticated connections, over real sockets: the installed grpcio obeys each of its options."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ortoo.common.grpc import server as grpc_server
from ortoo.common.grpc.layers.call_memory import HEADER_BYTES_MAX
from ortoo.common.grpc.layers.observers import OBSERVERS_MAX, OBSERVERS_OF_ADDRESS_MAX
from ortoo.common.grpc.server import STREAMS_OF_CONNECTION_MAX, GrpcServer
from ortoo.common.grpc.tls import TlsListener
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from tests.hostile.floods import CHECK, WATCH
from tests.hostile.http2 import (
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    Stranger,
    frame,
    headers,
    message,
    opening,
    request,
)

pytestmark = pytest.mark.usefixtures("each_transport")

SOON_MS = 300


@pytest.fixture
def shorter(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Changes the options of servers."""

    def change(**values: int) -> None:
        changed = {f"grpc.{name.replace('__', '.')}": value for name, value in values.items()}
        options = dict(grpc_server.OPTIONS)
        assert changed.keys() <= options.keys()
        monkeypatch.setattr(grpc_server, "OPTIONS", tuple((options | changed).items()))

    return change


@contextlib.asynccontextmanager
async def served(**options: Any) -> AsyncIterator[GrpcServer]:
    """A server with only the health service."""
    async with asyncio.timeout(60), GrpcServer("127.0.0.1:0", [], **options) as server:
        yield server


async def healthy(address: str) -> bool:
    """Whether a client that connects now gets an answer."""
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), wait_for_ready=True)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that a server fulfils."""
    while not condition():
        await SystemClock().sleep(0.01)


async def closed_after(address: str, said: bytes) -> None:
    """Open a connection that sends only these bytes, and wait until the server has closed it."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(said)
        with contextlib.suppress(ConnectionError):
            await reader.read()
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("said", [b"", b"PRI", PREFACE])
async def test_a_connection_that_is_not_set_up_is_closed(shorter: Callable[..., None], said: bytes) -> None:
    """Holds for any part of HTTP/2's preface that it has sent."""
    shorter(server_handshake_timeout_ms=SOON_MS, http2__settings_timeout=SOON_MS)
    async with served() as server:
        await closed_after(server.address, said)


async def test_a_handshake_of_tls_that_is_not_finished_is_closed(shorter: Callable[..., None]) -> None:
    """A connection that sends only the first bytes of the handshake is closed."""
    shorter(server_handshake_timeout_ms=SOON_MS)
    listener = TlsListener("127.0.0.1:0", "", "")
    async with served(tls=listener) as server:
        for said in (b"", b"\x16\x03\x01\x02\x00\x01"):
            await closed_after(server.tls_address, said)


async def test_a_peer_that_acknowledges_no_settings_is_closed(shorter: Callable[..., None]) -> None:
    """Until it does, the limits on streams and headers do not apply to it."""
    shorter(http2__settings_timeout=SOON_MS)
    async with served() as server:
        await closed_after(server.address, PREFACE + frame(SETTINGS, 0, 0))


async def test_a_connection_without_calls_is_closed(shorter: Callable[..., None]) -> None:
    """A client reconnects automatically with its next call."""
    shorter(max_connection_idle_ms=SOON_MS)
    async with served() as server:
        stranger = await Stranger.connect(server.address)
        await stranger.until_closed()
        await stranger.close()
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            await stub.Check(health_pb2.HealthCheckRequest())
            await until(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)
            await stub.Check(health_pb2.HealthCheckRequest())


async def test_a_flood_of_pings_is_ended() -> None:
    """A client that pings every ten seconds is not closed, because each of its calls resets the count."""
    async with served() as server:
        stranger = await Stranger.connect(server.address)
        while stranger.is_open and not stranger.frames[GOAWAY]:
            await stranger.send(*(frame(PING, 0, 0, b"12345678") for _ in range(20)))
        await stranger.close()
        assert await healthy(server.address)


async def test_a_port_takes_so_many_connections_and_no_more() -> None:
    """Connections above the limit are closed at once, and use no descriptor; a closed one makes space for another."""
    async with served(connections_max=20, connections_per_address_max=20) as server:
        strangers = [await Stranger.connect(server.address) for _ in range(30)]
        await until(lambda: sum(one.is_open for one in strangers) == 20)
        for one in strangers:
            await one.close()
        assert await healthy(server.address)


async def test_an_address_has_a_part_of_the_connections() -> None:
    """Above it those that have been silent longest are closed, set up or not, so that others can connect."""
    async with served(connections_max=40, connections_per_address_max=10) as server:
        strangers = [await Stranger.connect(server.address) for _ in range(20)]
        async with Background("silent") as background:
            silent = [background.spawn("one", closed_after(server.address, b"PRI")) for _ in range(15)]
            await until(lambda: server.ended_connections()["address"] >= 25)
            await until(lambda: sum(one.is_open for one in strangers) + sum(not one.done() for one in silent) == 10)
            assert await healthy(server.address)
        for one in strangers:
            await one.close()


async def test_headers_beyond_the_limit_end_the_connection() -> None:
    """An attacker may open calls before it acknowledges the limit; a client is refused and stays connected."""
    async with served() as server:
        long = HEADER_BYTES_MAX + 1
        stranger = await Stranger.connect(server.address)
        [stream] = stranger.streams(1)
        await stranger.send(opening(stream, headers(CHECK, ("x-a", "a" * long))), request(stream, message(b"")))
        await stranger.until_closed()
        await stranger.close()
        assert server.ended_connections()["headers"] == 1
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            await stub.Check(health_pb2.HealthCheckRequest())
            with pytest.raises(grpc.aio.AioRpcError, match="metadata size exceeds hard limit"):
                await stub.Check(health_pb2.HealthCheckRequest(), metadata=(("x-a", "a" * long),))
            await stub.Check(health_pb2.HealthCheckRequest(), metadata=(("x-a", "a" * (long // 2)),))


async def test_a_connection_has_so_many_calls_and_no_more(each_transport: str) -> None:
    """GRPC's core refuses those above the limit; the others continue.

    The transport h2 ends the connection, because a client that has acknowledged the limit never exceeds it.
    """
    async with served() as server:
        stranger = await Stranger.connect(server.address)
        await stranger.send(frame(PING, 0, 0, b"12345678"))
        await until(lambda: stranger.frames[PING] > 0)  # the server's settings are acknowledged
        await stranger.send(*(opening(stream, headers(CHECK)) for stream in stranger.streams(1_500)))
        if each_transport == "h2":
            await stranger.until_closed()
        else:
            await until(lambda: stranger.frames[RST_STREAM] == 1_500 - STREAMS_OF_CONNECTION_MAX)
        await stranger.close()


async def test_few_streams_watch_a_process_and_each_may_ask_for_its_health() -> None:
    """G17: the limit of one address is lower. Streams above it are refused, and single checks are answered."""
    async with served() as server:
        strangers = [await Stranger.connect(server.address) for _ in range(2)]
        half = (OBSERVERS_OF_ADDRESS_MAX + 10) // 2
        for one in strangers:
            said = [opening(stream, headers(WATCH)) + request(stream, message(b"")) for stream in one.streams(half)]
            await one.send(*said)
        # Each answer and each refusal has one frame of headers.
        await until(lambda: sum(one.frames[HEADERS] for one in strangers) >= 2 * half)
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            with pytest.raises(
                grpc.aio.AioRpcError, match=f"{OBSERVERS_OF_ADDRESS_MAX} streams.*from 127.0.0.1; close"
            ):
                await stub.Watch(health_pb2.HealthCheckRequest()).read()
            await stub.Check(health_pb2.HealthCheckRequest())
            for one in strangers:
                await one.close()
            watching: Any = stub.Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    if await watching.read() is not grpc.aio.EOF:
                        break
                watching = stub.Watch(health_pb2.HealthCheckRequest())
            watching.cancel()


async def test_streams_that_never_say_what_they_watch_give_way() -> None:
    """A new watcher finds a place when it retries."""
    async with served() as server:
        stranger = await Stranger.connect(server.address)
        await stranger.send(*(opening(stream, headers(WATCH)) for stream in stranger.streams(OBSERVERS_MAX)))
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub, watched = health_pb2_grpc.HealthStub(channel), False
            while not watched:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    watched = await stub.Watch(health_pb2.HealthCheckRequest()).read() is not grpc.aio.EOF
        await stranger.close()


async def test_calls_whose_requests_do_not_come_give_way() -> None:
    """G17: they take nothing from the budget, and no call whose request arrives is refused because of them."""
    budget = MemoryBudget(6 << 20)

    async def answer(data: bytes, context: Any) -> bytes:
        return data

    handlers: dict[str, Any] = {"One": grpc.unary_unary_rpc_method_handler(answer)}

    def add(to: Any) -> None:
        to.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("ortoo.v1.Test", handlers),))
        to.add_registered_method_handlers("ortoo.v1.Test", handlers)

    path, server = "/ortoo.v1.Test/One", GrpcServer("127.0.0.1:0", [("ortoo.v1.Test", add)], memory=budget)
    async with asyncio.timeout(60), server:
        stranger = await Stranger.connect(server.address)
        await stranger.send(*(opening(stream, headers(path)) for stream in stranger.streams(300)))
        await stranger.until_closed()
        assert stranger.frames[HEADERS] > 0, "a call without a status would be kept until its connection ends"
        assert budget.used_bytes == 0
        async with grpc.aio.insecure_channel(server.address) as channel:
            calling: Any = channel.unary_unary(path)
            assert await calling(b"here") == b"here"
        assert not budget.refused
        await stranger.close()
        await until(lambda: not budget.used_bytes)


async def test_a_stranger_with_tls_is_a_stranger() -> None:
    """The limits hold on every port of a server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    listener = TlsListener("127.0.0.1:0", "", "")
    async with served(tls=listener, connections_max=40, connections_per_address_max=10) as server:
        strangers = [await Stranger.connect(server.tls_address, context) for _ in range(20)]
        await until(lambda: sum(one.is_open for one in strangers) <= 10)
        for one in strangers:
            await one.close()
