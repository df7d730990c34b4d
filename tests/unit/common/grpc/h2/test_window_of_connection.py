"""The window of a connection opens by all data of its streams, also by data that no handler or caller reads."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
import pytest

from ortoo.common.grpc.h2 import engine
from ortoo.common.grpc.h2.client.channel import H2Channel
from ortoo.common.grpc.h2.framing import Headers, frame
from ortoo.common.grpc.h2.limits import WireLimits
from ortoo.common.grpc.h2.server import H2Server
from ortoo.common.grpc.h2.shared import endpoint
from tests.unit.common.grpc.served import until

WINDOW_BYTES = 256 << 10
PART_BYTES = 60_000
"""Size of the data of a stream; the data of twenty streams are much more than the window."""
WAIT_S = 60.0
TOO_LARGE = b"\0\x7f\0\0\0"
"""The prefix of a message above every limit."""


def headers(method: bytes) -> Headers:
    return (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/t.Service/" + method),
        (b":authority", b"here"),
        (b"content-type", b"application/grpc"),
    )


class Service:
    """Streams that do not read, a stream that reads late, and a call that returns the size of its request."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.read: list[bytes] = []

    async def Ignore(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:  # gRPC's names
        yield bytes(PART_BYTES)
        await asyncio.Event().wait()

    async def Late(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield b"ready"
        await self.reads.wait()
        async for request in requests:
            self.read.append(request)

    async def Size(self, request: bytes, context: Any) -> bytes:
        return b"%d" % len(request)

    async def Large(self, request: bytes, context: Any) -> bytes:
        return bytes(2 * WINDOW_BYTES)


class Client:
    """A connection of libnghttp2 to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.h2 = WireLimits().client_connection()
        self.h2.initiate_connection({})
        self._seen: dict[int, list[Any]] = {}
        self.reads = True
        """Whether it opens the windows of answers again."""

    async def until(self, stream_id: int, kind: Any = None) -> None:
        """Send, until all data of a stream are sent, and an event of this kind has come for it."""
        while self.h2.queued_body_size(stream_id) or not (kind is None or kind in self._seen.get(stream_id, ())):
            self.send()
            async with asyncio.timeout(WAIT_S):
                received = await self._reader.read(1 << 16)
            assert received, "the server has closed the connection"
            self.h2.receive_data(received)
            for event in self.h2.events():
                if (found := getattr(event, "stream_id", 0)) != 0:
                    self._seen.setdefault(found, []).append(type(event))
                if isinstance(event, engine.DataReceived) and event.data and self.reads:
                    self.h2.acknowledge_received_data(len(event.data), event.stream_id)
        self.send()

    def send(self) -> None:
        """Send what is queued, as far as the windows allow."""
        while data := self.h2.data_to_send():
            self.write(data)

    def write(self, data: bytes) -> None:
        """Send bytes in one write."""
        self._writer.write(data)

    def begin(self, method: bytes, data: bytes, *, is_last: bool = False) -> int:
        """Queue the headers and data of a call; returns its stream."""
        stream_id: int = self.h2.send_request(headers(method))
        self.h2.send_data(stream_id, data, end_stream=is_last)
        return stream_id


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Service, str]]:
    """A server whose connections have a small window, and its address."""
    monkeypatch.setattr(endpoint, "CONNECTION_WINDOW_BYTES", WINDOW_BYTES)
    service, server = Service(), H2Server()
    many = grpc.stream_stream_rpc_method_handler
    handlers: dict[str, Any] = {"Ignore": many(service.Ignore), "Late": many(service.Late)}
    for one in (service.Size, service.Large):
        handlers[one.__name__] = grpc.unary_unary_rpc_method_handler(one)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.Service", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with asyncio.timeout(60):
        yield service, f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.fixture
async def client(served: tuple[Service, str]) -> AsyncIterator[Client]:
    """A connection to the server."""
    host, _, port = served[1].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    yield Client(reader, writer)
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("kind", ["unread", "reset in the same read", "too large", "too large and unread", "unknown"])
async def test_streams_that_end_early_do_not_close_the_window(client: Client, kind: str) -> None:
    """A connection lives for days, and the smallest loss for each stream would stop it at last."""
    for _ in range(20):
        if kind == "unread":
            stream_id = client.begin(b"Ignore", frame(bytes(PART_BYTES)))
            await client.until(stream_id, engine.DataReceived)
            client.h2.reset_stream(stream_id, 8)
        elif kind == "reset in the same read":
            stream_id = client.begin(b"Size", frame(bytes(PART_BYTES))[:-1])
            data = b"".join(iter(client.h2.data_to_send, b""))
            client.h2.reset_stream(stream_id, 8)
            client.write(data + client.h2.data_to_send())
        elif kind == "too large":
            await client.until(client.begin(b"Size", TOO_LARGE + bytes(PART_BYTES)), engine.StreamClosed)
        elif kind == "too large and unread":
            stream_id = client.begin(b"Late", TOO_LARGE + bytes(PART_BYTES))
            await client.until(stream_id, engine.DataReceived)
            client.h2.reset_stream(stream_id, 8)
        else:
            await client.until(client.begin(b"Unknown", bytes(PART_BYTES)), engine.StreamClosed)
    await client.until(client.begin(b"Size", frame(bytes(2 * WINDOW_BYTES)), is_last=True), engine.StreamClosed)


@pytest.mark.parametrize("kind", ["unknown", "late"])
async def test_streams_that_the_server_ends_within_a_frame_do_not_close_the_window(client: Client, kind: str) -> None:
    """libnghttp2 passes only whole frames on, and nothing of a frame whose stream was reset meanwhile."""
    await client.until(client.begin(b"Size", frame(b""), is_last=True), engine.StreamClosed)  # settings are known
    for _ in range(20):
        timeout = () if kind == "unknown" else ((b"grpc-timeout", b"50m"),)
        stream_id = client.h2.send_request((*headers(b"Unknown" if kind == "unknown" else b"Size"), *timeout))
        client.h2.send_data(stream_id, frame(bytes(PART_BYTES)))
        data = b"".join(iter(client.h2.data_to_send, b""))
        assert not client.h2.queued_body_size(stream_id), "the window has become smaller"
        client.write(data[:-1])
        await client.until(stream_id, engine.ResponseReceived)
        client.write(data[-1:])
        await client.until(stream_id, engine.StreamClosed)
    await client.until(client.begin(b"Size", frame(bytes(2 * WINDOW_BYTES)), is_last=True), engine.StreamClosed)


async def test_a_reset_in_the_same_read_as_the_end_of_another_stream_does_not_close_the_window(client: Client) -> None:
    """A too large request is answered at once, when libnghttp2 has already read the reset of the other stream."""
    message = frame(bytes(PART_BYTES // 4))
    for _ in range(40):
        streams = [client.begin(b"Size", data[:1]) for data in (message, TOO_LARGE)]
        await client.until(client.begin(b"Size", frame(b""), is_last=True), engine.StreamClosed)
        client.h2.send_data(streams[0], message[1:-1])
        data = b"".join(iter(client.h2.data_to_send, b""))
        assert not client.h2.queued_body_size(streams[0]), "the window has become smaller"
        client.h2.send_data(streams[1], TOO_LARGE[1:])
        data += client.h2.data_to_send()
        client.h2.reset_stream(streams[0], 8)
        client.write(data + client.h2.data_to_send())
        await client.until(streams[1], engine.StreamClosed)
    await client.until(client.begin(b"Size", frame(bytes(2 * WINDOW_BYTES)), is_last=True), engine.StreamClosed)


async def test_a_stream_with_a_whole_request_is_reset_at_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller does not take the answer until its deadline."""
    monkeypatch.setattr(endpoint, "FRAME_WAIT_MAX_S", 2 * WAIT_S)
    await client.until(client.begin(b"Size", frame(b""), is_last=True), engine.StreamClosed)
    client.reads = False
    stream_id = client.h2.send_request((*headers(b"Large"), (b"grpc-timeout", b"50m")))
    client.h2.send_data(stream_id, frame(b"request"), end_stream=True)
    await client.until(stream_id, engine.ResponseReceived)
    async with asyncio.timeout(5):
        await client.until(stream_id, engine.StreamReset)


async def test_no_request_is_read_after_a_too_large_one(served: tuple[Service, str], client: Client) -> None:
    """Its content is dropped, although it looks like requests. The requests before it are still read."""
    service, _ = served
    stream_id = client.begin(b"Late", frame(b"first"))
    await client.until(stream_id, engine.DataReceived)
    for data in (TOO_LARGE, frame(b"content"), frame(b"more")):
        client.h2.send_data(stream_id, data)
        client.send()
    await client.until(client.begin(b"Size", frame(b""), is_last=True), engine.StreamClosed)
    service.reads.set()
    await client.until(stream_id, engine.StreamClosed)
    assert service.read == [b"first"]


async def test_answers_that_a_caller_does_not_read_do_not_close_the_window(served: tuple[Service, str]) -> None:
    """The calls are cancelled when an answer has arrived."""
    async with grpc.aio.insecure_channel(served[1]) as other:
        channel = H2Channel(served[1], (), other)
        for _ in range(20):
            call: Any = channel.stream_stream("/t.Service/Ignore", bytes, bytes)()
            await until(partial(bool, call._inbox))
            call.cancel()
        call = channel.stream_stream("/t.Service/Ignore", bytes, bytes)()
        async with asyncio.timeout(WAIT_S):
            assert len(await call.read()) == PART_BYTES
        call.cancel()
        await channel.close()


async def test_a_writer_does_not_wait_for_the_rest_of_a_frame_when_its_call_is_cancelled() -> None:
    """The server stops within a frame of an answer, and reads no further requests."""
    is_over = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        h2 = WireLimits().connection()
        h2.initiate_connection({})
        writer.write(h2.data_to_send())
        stream_id = 0
        while not stream_id:
            h2.receive_data(await reader.read(1 << 16))
            stream_id = next((one.stream_id for one in h2.events() if isinstance(one, engine.RequestReceived)), 0)
        h2.send_response(stream_id, ((b":status", b"200"),))
        h2.send_data(stream_id, frame(bytes(PART_BYTES)))
        writer.write(b"".join(iter(h2.data_to_send, b""))[:-1])
        await is_over.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, grpc.aio.insecure_channel(address) as other:
        channel = H2Channel(address, (), other)
        call: Any = channel.stream_stream("/t.Service/Ignore", bytes, bytes)()
        await call.wait_for_connection()
        connection, stream_id = call._connection, call._stream_id
        await until(lambda: not connection._is_frame_whole(stream_id))

        async def cancel() -> None:
            await until(lambda: connection._waiting)
            call.cancel()

        async with asyncio.timeout(endpoint.FRAME_WAIT_MAX_S / 2):
            await asyncio.gather(call.write(bytes(4 << 20)), cancel())
        await channel.close()
        is_over.set()
