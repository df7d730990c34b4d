"""Streams in both directions as a snode uses them with enodes: by grpc.aio, and by the client side of h2.

Both are called on servers of both transports.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import pytest

from ortoo.common.grpc.h2.client.channel import H2Channel
from ortoo.common.process.background import Background
from tests.conformance.transports import H2Wire, SocketWire
from tests.conformance.wire import Methods, Served, conversing, failure, path, serving, turns, until, waits

S = grpc.StatusCode
Options = Sequence[tuple[str, int]]
Making = Callable[..., Any]
MIB = 1 << 20
LARGE: Options = (("grpc.max_receive_message_length", 8 * MIB), ("grpc.max_send_message_length", 8 * MIB))
SOON: Options = (("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 50))
UNREACHABLE = "127.0.0.1:1"


@pytest.fixture(params=["sockets", "h2"])
async def server_wire(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """The server's transport."""
    async with Background("wire") as background:
        chosen = (H2Wire if request.param == "h2" else SocketWire)(background)
        try:
            yield chosen
        finally:
            await chosen.close()


@pytest.fixture(params=["grpc.aio", "h2"])
async def channel_to(request: pytest.FixtureRequest) -> AsyncIterator[Making]:
    """Makes channels of one of the client sides; they are closed at the end."""
    made: list[Any] = []

    def make(address: str, options: Options = ()) -> Any:
        one: Any = grpc.aio.insecure_channel(address, [*options, ("grpc.use_local_subchannel_pool", 1)])
        if request.param == "h2":
            one = H2Channel(address, options, one)
        made.append(one)
        return one

    yield make
    for channel in made:
        await channel.close()


def call_of(channel: Any, **options: Any) -> Any:
    """A call of the method Stream."""
    return channel.stream_stream(path("Stream"))(**options)


async def echo(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


async def test_answers_come_in_the_order_of_requests(server_wire: Any, channel_to: Making) -> None:
    """Small, empty and large messages, many of them in flight."""
    sizes = [*range(200), 64 << 10, (64 << 10) + 1, 4 * MIB, 0, 2 * MIB, 1]
    async with (
        serving(server_wire, options=LARGE, Stream=conversing(echo)) as served,
        Background("test") as background,
        asyncio.timeout(60),
    ):
        call = call_of(channel_to(served.address, LARGE))
        await call.wait_for_connection()

        async def write() -> None:
            for at, size in enumerate(sizes):
                await call.write(bytes([at % 256]) * size)

        background.spawn("write", write())
        for at, size in enumerate(sizes):
            assert await call.read() == bytes([at % 256]) * size
        assert not call.done()
        call.cancel()


async def test_a_status_ends_the_call_after_its_answers(server_wire: Any, channel_to: Making) -> None:
    """The error has the code, the details and the metadata; later writes fail."""

    async def refuse(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield b"an answer"
        await context.abort(S.RESOURCE_EXHAUSTED, "100 % full: örtöö", (("left-bin", b"\0\1"), ("text", "t")))

    async with serving(server_wire, Stream=conversing(refuse)) as served, asyncio.timeout(60):
        call = call_of(channel_to(served.address))
        assert await call.read() == b"an answer"
        error = await failure(call.read())
        assert (error.code(), error.details()) == (S.RESOURCE_EXHAUSTED, "100 % full: örtöö")
        trailing = dict(error.trailing_metadata() or ())
        assert (trailing["left-bin"], trailing["text"]) == (b"\0\1", "t")
        assert (await call.code(), await call.details(), call.done()) == (
            S.RESOURCE_EXHAUSTED,
            "100 % full: örtöö",
            True,
        )
        with pytest.raises((asyncio.InvalidStateError, grpc.aio.AioRpcError)):
            await call.write(b"late")


async def test_a_server_that_ends_the_call_gracefully(server_wire: Any, channel_to: Making) -> None:
    """Its answers can be read, then comes EOF with the code OK."""

    async def two(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield b"1"
        yield b"2"

    async with serving(server_wire, Stream=conversing(two)) as served, asyncio.timeout(60):
        call = call_of(channel_to(served.address))
        assert [await call.read(), await call.read()] == [b"1", b"2"]
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is S.OK
        assert [answer async for answer in call_of(channel_to(served.address))] == [b"1", b"2"]


async def test_metadata_arrives(server_wire: Any, channel_to: Making) -> None:
    """Text and bytes."""

    async def tell(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        found = dict(context.invocation_metadata())
        yield repr((found["a"], found["b-bin"])).encode()

    async with serving(server_wire, Stream=conversing(tell)) as served, asyncio.timeout(60):
        call = call_of(channel_to(served.address), metadata=(("a", "text"), ("b-bin", b"\xff")))
        assert await call.read() == repr(("text", b"\xff")).encode()


async def test_a_cancelled_call_ends_on_both_sides(server_wire: Any, channel_to: Making) -> None:
    """A reader gets a cancellation, and the handler is cancelled."""
    is_cancelled = asyncio.Event()

    async def wait(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        try:
            yield b"begun"
            await asyncio.get_running_loop().create_future()
        finally:
            is_cancelled.set()

    async with serving(server_wire, Stream=conversing(wait)) as served, asyncio.timeout(60):
        call = call_of(channel_to(served.address))
        assert await call.read() == b"begun"
        assert call.cancel()
        assert not call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.read()
        await is_cancelled.wait()
        assert await call.code() is S.CANCELLED


async def test_no_server(channel_to: Making) -> None:
    """The call fails before a request is sent, also one that is made during the back-off."""
    channel = channel_to(UNREACHABLE)
    for _ in range(2):
        async with asyncio.timeout(60):
            error = await failure(call_of(channel).wait_for_connection())
        assert error.code() is S.UNAVAILABLE
        assert UNREACHABLE in (error.details() or "")


async def test_an_address_that_does_not_answer(server_wire: Any, channel_to: Making) -> None:
    """The attempt to connect has a timeout, also if the connection is accepted by the system."""
    channel = channel_to(server_wire.silent_address(), (("grpc.min_reconnect_backoff_ms", 200),))
    async with asyncio.timeout(60):
        assert (await failure(call_of(channel).wait_for_connection())).code() is S.UNAVAILABLE


async def test_a_broken_connection_fails_the_call_and_the_next_one_connects_again(
    server_wire: Any, channel_to: Making
) -> None:
    """The open call gets UNAVAILABLE."""
    async with serving(server_wire, Stream=conversing(echo)) as served, asyncio.timeout(60):
        way = await server_wire.way_to(served.address)
        channel = channel_to(way.address, SOON)
        call = call_of(channel)
        await call.write(b"1")
        assert await call.read() == b"1"
        way.reset()
        assert (await failure(call.read())).code() is S.UNAVAILABLE
        await _answered_again(channel)


async def _answered_again(channel: Any) -> None:
    """Wait until a call is answered."""
    async for _ in turns():
        call = call_of(channel)
        try:
            await call.write(b"again")
            assert await call.read() == b"again"
            return
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            continue


async def test_a_reader_that_does_not_read_slows_the_writer(server_wire: Any, channel_to: Making) -> None:
    """The unsent bytes in this process are bounded, in both directions."""
    may_read = asyncio.Event()

    async def slow(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        await may_read.wait()
        async for request in requests:
            yield request

    async with (
        serving(server_wire, options=LARGE, Stream=conversing(slow)) as served,
        Background("test") as background,
        asyncio.timeout(60),
    ):
        call = call_of(channel_to(served.address, LARGE))
        await call.wait_for_connection()
        count = 0

        async def write() -> None:
            nonlocal count
            for _ in range(64):
                await call.write(bytes(MIB))
                count += 1

        writing = background.spawn("write", write())
        assert await waits(writing)
        assert count < 64
        may_read.set()
        for _ in range(64):
            assert len(await call.read()) == MIB
        await writing
        call.cancel()


async def test_an_answer_above_the_limit_fails_the_call(server_wire: Any, channel_to: Making) -> None:
    """The code is RESOURCE_EXHAUSTED."""
    async with serving(server_wire, options=LARGE, Stream=conversing(echo)) as served, asyncio.timeout(60):
        call = call_of(channel_to(served.address, (("grpc.max_receive_message_length", 1000),)))
        await call.write(bytes(1001))
        assert (await failure(call.read())).code() is S.RESOURCE_EXHAUSTED


async def test_a_server_that_stops_ends_its_calls_and_another_takes_the_next(
    server_wire: Any, channel_to: Making
) -> None:
    """The next call makes another connection to the same address."""
    async with serving(server_wire, Stream=conversing(echo)) as served, asyncio.timeout(60):
        channel = channel_to(served.address, SOON)
        call = call_of(channel)
        await call.write(b"1")
        assert await call.read() == b"1"
        await served.server.stop(None)
        assert (await failure(call.read())).code() is S.UNAVAILABLE
        assert (await failure(call_of(channel).wait_for_connection())).code() is S.UNAVAILABLE
        another = await _served_at(server_wire, served)
        await _answered_again(channel)
        await another.stop(None)


async def _served_at(wire: Any, served: Served) -> grpc.aio.Server:
    """Another server at the same address."""
    server: grpc.aio.Server = wire.server((), (("grpc.so_reuseport", 1),), None)
    server.add_generic_rpc_handlers((Methods({"Stream": conversing(echo)}),))
    async for _ in turns():
        try:
            if server.add_insecure_port(served.address):
                break
        except RuntimeError:  # the port is still in use
            continue
    await server.start()
    return server


async def test_open_calls_go_on_while_a_server_drains(server_wire: Any, channel_to: Making) -> None:
    """A graceful stop lets the call finish; the connection takes no further ones."""
    may_end = asyncio.Event()

    async def last(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        await may_end.wait()
        yield b"last"

    async with (
        serving(server_wire, Stream=conversing(last)) as served,
        Background("test") as background,
        asyncio.timeout(60),
    ):
        call = call_of(channel_to(served.address))
        assert await call.read() == b"first"
        stopping = background.spawn("stop", served.server.stop(20))
        assert await waits(stopping)
        may_end.set()
        assert await call.read() == b"last"
        assert await call.read() is grpc.aio.EOF
        await stopping


async def test_answers_that_are_delivered_leave_nothing_to_read(server_wire: Any) -> None:
    """Only h2 has this; requests that are written at once keep their order."""
    async with serving(server_wire, Stream=conversing(echo)) as served, asyncio.timeout(60):
        other = grpc.aio.insecure_channel(served.address)
        channel = H2Channel(served.address, (), other)
        call, found = call_of(channel), list[bytes]()
        assert not call.write_now(b"too early")
        await call.wait_for_connection()
        call.deliver_to(found.append)
        assert all(call.write_now(bytes([at])) for at in range(100))
        await until(lambda: len(found) == 100)
        assert found == [bytes([at]) for at in range(100)]

        def fail(answer: bytes) -> None:
            raise ValueError("a defect")

        call.deliver_to(fail)
        assert call.write_now(b"x")
        assert (await failure(call.read())).code() is S.INTERNAL
        assert not call.write_now(b"late")
        await channel.close()
