"""Requests that repeat are answered without a call, and only if nothing speaks against it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from types import FrameType
from typing import Any

import grpc
import pytest

from ortoo.common.grpc.h2 import engine
from ortoo.common.grpc.h2.framing import frame
from ortoo.common.grpc.h2.limits import WireLimits
from ortoo.common.grpc.h2.server import H2Server
from ortoo.common.grpc.layers.arrival import Arrival, RepeatCaller
from ortoo.common.grpc.layers.coding import Decoding
from ortoo.common.grpc.layers.layer import Layer, Layers
from ortoo.common.grpc.layers.repeats import Repeatable
from tests.unit.common.grpc.served import until

CALLS_MAX = 28
"""The number of functions of gRPC's layers and of h2 that a repeated request may pass."""
HEADERS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/t.Service/Call"),
    (b":authority", b"here"),
    (b"content-type", b"application/grpc"),
)


class Arrivals(Layer):
    """Counts the calls that are made."""

    always_repeats = True

    def __init__(self) -> None:
        self.calls = 0

    def arrive(self, arrival: Arrival) -> None:
        self.calls += 1


class Service:
    """Its one method returns the request and the number of the call that was served."""

    def __init__(self) -> None:
        self.served = 0
        self.callers: list[tuple[str, str]] = []
        self.is_same = True

    async def Call(self, request: bytes, context: Any) -> bytes:  # gRPC's name
        raise AssertionError("every call is answered at once")

    def start(self, request: bytes, context: Any, done: Callable[[Any], None]) -> bool:
        self.served += 1
        done(Repeatable(b"%s %d" % (request, self.served), self._holds))
        return True

    def _holds(self, caller: RepeatCaller) -> bool:
        self.callers.append((caller.headers.get("id", "none"), caller.peer()))
        return self.is_same

    Call.start = start  # type: ignore[attr-defined]
    Call.repeats = True  # type: ignore[attr-defined]


class Client:
    """A connection of libnghttp2 to a server, whose frames a test chooses."""

    def __init__(self, server: H2Server, service: Service, arrivals: Arrivals) -> None:
        self.service, self.arrivals = service, arrivals
        self.h2 = WireLimits().client_connection()
        self._server = server

    async def connect(self, address: str, settings: dict[Any, int]) -> None:
        """Open the connection."""
        host, port = address.split(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        self.h2.initiate_connection(settings)
        self.send()

    @property
    def calls(self) -> dict[int, Any]:
        """The calls that the server has made for this connection."""
        [connection] = self._server.connections
        return connection.calls

    def has_calls(self, count: int) -> bool:
        """Whether the server has made this number of calls."""
        return len(self.calls) == count

    def send(self) -> None:
        """Send what is queued, in one write."""
        self._writer.write(self.h2.data_to_send())

    def begin(self, request: bytes, *more: tuple[bytes, bytes]) -> int:
        """Queue a request; returns its stream."""
        stream_id: int = self.h2.send_request((*HEADERS, *more))
        self.h2.send_data(stream_id, frame(request), end_stream=True)
        return stream_id

    async def events(self, kind: Any, count: int = 1) -> list[Any]:
        """The next events of the server, until this number of one kind has come."""
        found: list[Any] = []
        while sum(isinstance(one, kind) for one in found) < count:
            received = await self._reader.read(1 << 16)
            assert received, "the server has closed the connection"
            self.h2.receive_data(received)
            found += self.h2.events()
            self.send()
        return found

    async def answers(self, count: int = 1) -> list[bytes]:
        """The answers to the next calls that end."""
        found = await self.events(engine.StreamClosed, count)
        return [one.data[5:] for one in found if isinstance(one, engine.DataReceived)]

    async def call(self, request: bytes, *more: tuple[bytes, bytes]) -> bytes:
        """The answer to a call."""
        self.begin(request, *more)
        self.send()
        [answer] = await self.answers()
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


Opening = Callable[..., Any]


@pytest.fixture
async def opening() -> AsyncIterator[Opening]:
    """A function that opens a connection with given settings."""
    service, arrivals = Service(), Arrivals()
    server = H2Server([Layers([arrivals, Decoding()])])
    handlers: dict[str, Any] = {"Call": grpc.unary_unary_rpc_method_handler(service.Call)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.Service", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    opened: list[Client] = []

    async def connect(settings: dict[Any, int] | None = None) -> Client:
        opened.append(Client(server, service, arrivals))
        await opened[-1].connect(f"127.0.0.1:{port}", settings or {})
        return opened[-1]

    async with asyncio.timeout(60):
        yield connect
    for client in opened:
        client.close()
    await server.stop(None)


@pytest.fixture
async def client(opening: Opening) -> Client:
    """A connection on which one call was made."""
    found: Client = await opening()
    assert await found.call(b"x") == b"x 1"
    return found


async def test_a_repeated_request_makes_no_call(client: Client) -> None:
    """The handler is asked whether its answer holds. Headers such as ids and times may differ."""
    for number in range(3):
        assert await client.call(b"x", (b"id", b"%d" % number), (b"grpc-timeout", b"%dS" % (100 + number))) == b"x 1"
    ids, peers = zip(*client.service.callers, strict=True)
    assert ids == ("0", "1", "2")
    assert all(one.startswith("ipv4:127.0.0.1:") for one in peers)
    assert (client.service.served, client.arrivals.calls) == (1, 1)


async def test_a_repeated_request_passes_few_functions(client: Client) -> None:
    """Thousands of idle clients send such requests all the time."""
    await client.call(b"x")
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and "/ortoo/common/grpc/" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        await client.call(b"x")
    finally:
        sys.setprofile(None)
    assert calls <= CALLS_MAX, calls


async def test_another_request_is_served(client: Client) -> None:
    """Its answer is kept as well."""
    assert await client.call(b"y") == b"y 2"
    assert [await client.call(one) for one in (b"x", b"y", b"x")] == [b"x 1", b"y 2", b"x 1"]
    assert client.arrivals.calls == 2


async def test_a_changed_answer_is_computed_again(client: Client) -> None:
    """The newer one is kept."""
    client.service.is_same = False
    assert await client.call(b"x") == b"x 2"
    client.service.is_same = True
    assert await client.call(b"x") == b"x 2"


@pytest.mark.parametrize("more", [[(b"some-bin", b"AAAA")], [(b"id", b"1"), (b"id", b"2")], [(b"long", b"x" * 5_000)]])
async def test_unusual_headers_are_checked_as_usual(client: Client, more: list[tuple[bytes, bytes]]) -> None:
    """Layers see the call, and its answer is that of a repeated call."""
    assert await client.call(b"x", *more) == b"x 1"
    assert client.arrivals.calls == 2


async def test_an_invalid_timeout_is_refused(client: Client) -> None:
    """Also if the request repeats."""
    client.begin(b"x", (b"grpc-timeout", b"soon"))
    client.send()
    found = await client.events(engine.StreamClosed)
    [headers] = [dict(one.headers) for one in found if isinstance(one, engine.ResponseReceived)]
    assert headers[b"grpc-status"] == b"13"


async def test_a_request_that_arrives_in_parts(client: Client) -> None:
    """A call waits for it, so that its memory and its time are limited."""
    for served in range(2):
        stream_id = client.h2.send_request(HEADERS)
        client.send()
        await until(partial(client.has_calls, 1))
        assert client.arrivals.calls == served + 2
        client.h2.send_data(stream_id, frame(b"y"), end_stream=True)
        client.send()
        assert await client.answers() == [b"y 2"]


async def test_a_peer_without_a_window(opening: Opening) -> None:
    """An answer that cannot be sent at once belongs to a call, which counts its memory."""
    client = await opening({engine.Setting.INITIAL_WINDOW_SIZE: 0})
    for number in range(2):
        client.begin(b"x")
        client.send()
        await until(partial(client.has_calls, number + 1))
    assert client.arrivals.calls == 2
    assert all(call.is_answered for call in client.calls.values())


async def test_requests_together_in_one_read(client: Client) -> None:
    """Each has an answer. The answers after the first wait for it, so they belong to calls."""
    for _ in range(5):
        client.begin(b"x")
    client.send()
    assert await client.answers(5) == [b"x 1"] * 5
    assert client.service.served == 1
    assert not client.calls


async def test_a_reset_in_the_same_read(client: Client) -> None:
    """The connection stays usable."""
    stream_id = client.begin(b"x")
    sent = client.h2.data_to_send()
    client.h2.reset_stream(stream_id)
    client._writer.write(sent + client.h2.data_to_send())
    assert await client.call(b"x") == b"x 1"


async def test_requests_of_several_threads_are_interleaved(client: Client) -> None:
    """The data of a request may follow the headers of others. Only a request without its data becomes a call."""
    first, second = (client.h2.send_request(HEADERS) for _ in range(2))
    client.h2.send_data(first, frame(b"x"), end_stream=True)
    client.send()
    assert await client.answers() == [b"x 1"]
    assert client.arrivals.calls == 2
    client.h2.send_data(second, frame(b"x"), end_stream=True)
    client.send()
    assert await client.answers() == [b"x 1"]


async def test_a_window_update_before_the_data(client: Client) -> None:
    """Clients with gRPC's C core send it for each request."""
    stream_id = client.h2.send_request(HEADERS)
    sent = client.h2.data_to_send()
    client.h2.send_data(stream_id, frame(b"x"), end_stream=True)
    update = b"\0\0\4\x08\0" + stream_id.to_bytes(4, "big") + (1_000).to_bytes(4, "big")
    client._writer.write(sent + update + client.h2.data_to_send())
    assert await client.answers() == [b"x 1"]
    assert client.arrivals.calls == 1
