"""Connections: refused, unanswered, made anew, reset, and closed by either end while calls are open."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from ortoo.common.background import Background
from tests.conformance.wire import (
    Served,
    Wire,
    answering,
    conversing,
    failure,
    path,
    requesting,
    serving,
    turns,
    unary,
    until,
    waits,
)

EOF = grpc.aio.EOF
S = grpc.StatusCode
State = grpc.ChannelConnectivity
NOBODY = "127.0.0.1:1"
SHORT_S = 0.1
IMPATIENT = (("grpc.min_reconnect_backoff_ms", 150), ("grpc.initial_reconnect_backoff_ms", 50))


class Waiting:
    """Handlers that wait for ever, and note how they end."""

    def __init__(self) -> None:
        self.called = 0
        self.ended: list[str] = []

    async def one(self, request: Any, context: Any) -> bytes:
        self.called += 1
        try:
            await asyncio.get_running_loop().create_future()
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        return b"never"

    async def three_first(self, request: Any, context: Any) -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d" % number
        yield await self.one(request, context)

    async def reads(self, requests: Any, context: Any) -> bytes:
        await context.send_initial_metadata(())
        self.ended.append("read " + repr([request async for request in requests]))
        return await self.one(requests, context)


async def echo(request: bytes, context: Any) -> bytes:
    return request


async def test_refused(wire: Wire) -> None:
    """All kinds of calls get UNAVAILABLE, which names the address; so do writes, reads and waits for the connection."""
    channel = wire.channel(NOBODY)
    assert channel.get_state() is State.IDLE
    error = await failure(channel.unary_unary(path("M"))(b""))
    assert error.code() is S.UNAVAILABLE
    assert NOBODY in (error.details() or "")
    assert "Connection refused" in (error.details() or "")
    assert channel.get_state() is State.TRANSIENT_FAILURE
    for call in (channel.stream_stream(path("M"))(), channel.unary_stream(path("M"))(b"")):
        assert (await failure(call.wait_for_connection())).code() is S.UNAVAILABLE
        assert (await failure(call.read())).code() is S.UNAVAILABLE
        assert await call.code() is S.UNAVAILABLE
    written = channel.stream_stream(path("M"))()
    assert (await failure(written.write(b""))).code() is S.UNAVAILABLE
    requests = channel.stream_unary(path("M"))()
    assert (await failure(requests.wait_for_connection())).code() is S.UNAVAILABLE
    assert (await failure(requests)).code() is S.UNAVAILABLE
    one = channel.unary_unary(path("M"))(b"")
    assert (await failure(one.wait_for_connection())).code() is S.UNAVAILABLE
    await channel.close()


async def test_waiting_for_a_server_that_never_comes(wire: Wire) -> None:
    """A call that waits until the channel is ready ends at its deadline, and so does waiting for its connection."""
    channel = wire.channel(NOBODY)
    call = channel.unary_unary(path("M"))(b"", wait_for_ready=True, timeout=SHORT_S)
    assert (await failure(call)).code() is S.DEADLINE_EXCEEDED
    stream = channel.stream_stream(path("M"))(wait_for_ready=True, timeout=SHORT_S)
    assert (await failure(stream.wait_for_connection())).code() is S.DEADLINE_EXCEEDED
    with pytest.raises(asyncio.InvalidStateError):
        await stream.write(b"")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(channel.channel_ready(), SHORT_S)
    await channel.close()


async def test_no_answer_to_a_connection(wire: Wire) -> None:
    """Calls wait as long as an attempt may take, or to their deadline if that is sooner."""
    channel = wire.channel(wire.silent_address(), IMPATIENT)
    soon = channel.stream_stream(path("M"))(timeout=SHORT_S / 2)
    assert (await failure(soon.wait_for_connection())).code() is S.DEADLINE_EXCEEDED
    error = await failure(channel.unary_unary(path("M"))(b""))
    assert error.code() is S.UNAVAILABLE
    assert "timed out" in (error.details() or "")
    await channel.close()


async def test_a_call_cancelled_before_it_has_a_connection(wire: Wire) -> None:
    """It ends at once. Who waits for the connection of such a stream waits for ever: grpc.aio forgets them.

    So a task that waits for a connection must be cancelled together with its call.
    """
    channel = wire.channel(wire.silent_address())
    async with Background("test") as background:
        call = channel.stream_stream(path("M"))()
        task = background.spawn("wait", call.wait_for_connection())
        assert await waits(task)
        assert call.cancel()
        assert await call.code() is S.CANCELLED
        assert await waits(task)
        task.cancel()
        one = channel.unary_unary(path("M"))(b"")
        waiting = background.spawn("one", _awaited(one))
        assert await waits(waiting)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await channel.close()


async def _awaited(call: Any) -> Any:
    return await call


async def test_waiting_for_a_connection_does_not_own_the_call(wire: Wire) -> None:
    """Cancelling a task that waits for the connection of a stream leaves the call as it is."""
    channel = wire.channel(wire.silent_address())
    async with Background("test") as background:
        call = channel.stream_stream(path("M"))()
        task = background.spawn("wait", call.wait_for_connection())
        assert await waits(task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not call.done()
        call.cancel()
        await channel.close()


async def test_a_server_that_comes_later(wire: Wire) -> None:
    """A channel that failed tries again by itself, and calls that wait for it are answered."""
    async with serving(wire, Echo=unary(echo)) as served:
        address = served.address
    channel = wire.channel(address, IMPATIENT)
    assert (await failure(channel.unary_unary(path("Echo"))(b""))).code() is S.UNAVAILABLE
    call = channel.unary_unary(path("Echo"))(b"here", wait_for_ready=True)
    server = wire.server((), (("grpc.so_reuseport", 0),), None)
    server.add_registered_method_handlers("conformance.Service", {"Echo": unary(echo)})
    assert server.add_insecure_port(address) == int(address.rpartition(":")[2])
    await server.start()
    assert await call == b"here"
    assert channel.get_state() is State.READY
    await channel.close()
    await server.stop(None)


async def test_the_states_of_a_channel(wire: Wire) -> None:
    """IDLE until it is used or asked, READY with a connection, SHUTDOWN after its close; changes can be waited for."""
    async with serving(wire, Echo=unary(echo)) as served, Background("test") as background:
        channel = wire.channel(served.address)
        assert channel.get_state() is State.IDLE
        changed = background.spawn("changed", channel.wait_for_state_change(State.IDLE))
        await asyncio.wait_for(channel.channel_ready(), 10)
        await changed
        assert channel.get_state() is State.READY
        await channel.close()
        assert channel.get_state() is State.SHUTDOWN
        with pytest.raises(grpc.aio.UsageError, match="closed"):
            channel.unary_unary(path("Echo"))(b"")
        with pytest.raises(grpc.aio.UsageError, match="closed"):
            channel.stream_stream(path("Echo"))()
        await channel.close()


async def opened(served: Served, waiting: Waiting) -> tuple[Any, Any, Any]:
    """A unary call, a stream of which one of three answers is read, and one whose requests are read; all open."""
    one, stream, requests = served.call("One"), served.answers("Three"), served.requests("Reads")
    assert await stream.read() == b"0"
    await requests.write(b"request")
    await until(lambda: waiting.called == 2)
    return one, stream, requests


def waiting_handlers(waiting: Waiting) -> dict[str, Any]:
    return {
        "One": unary(waiting.one),
        "Three": answering(waiting.three_first),
        "Reads": requesting(waiting.reads),
        "Echo": unary(echo),
    }


async def test_a_reset_connection(wire: Wire) -> None:
    """Every open call is UNAVAILABLE at once and its unread answers are lost; the handlers are cancelled.

    A reader of requests sees them end before that, as if its caller had nothing more to say. The next call connects
    anew.
    """
    waiting = Waiting()
    async with serving(wire, **waiting_handlers(waiting)) as served:
        way = await wire.path_to(served.address)
        channel = wire.channel(way.address)
        through = Served(wire, served.server, way.address, channel)
        calls = await opened(through, waiting)
        way.reset()
        for call in calls:
            assert await call.code() is S.UNAVAILABLE
        assert (await failure(calls[1].read())).code() is S.UNAVAILABLE
        await until(lambda: len(waiting.ended) == 4)
        assert sorted(waiting.ended) == ["CancelledError"] * 3 + ["read [b'request']"]
        async for _ in turns():
            if channel.get_state() is State.IDLE:
                break
        assert await through.call("Echo", b"again") == b"again"
        await channel.close()


async def test_a_reset_under_a_blocked_writer(wire: Wire) -> None:
    """The writer is told INTERNAL or that the call is over, not UNAVAILABLE; INTERNAL may stay the status."""

    async def deaf(requests: Any, context: Any) -> None:
        await context.send_initial_metadata(())
        await asyncio.get_running_loop().create_future()

    async with serving(wire, Deaf=conversing(deaf)) as served, Background("test") as background:
        way = await wire.path_to(served.address)
        channel = wire.channel(way.address)
        call = channel.stream_stream(path("Deaf"))()
        await call.wait_for_connection()

        async def write_on() -> str:
            try:
                while True:
                    await call.write(bytes(128 << 10))
            except grpc.aio.AioRpcError as error:
                return error.code().name
            except asyncio.InvalidStateError:
                return "finished"

        task = background.spawn("write", write_on())
        assert await waits(task)
        way.reset()
        assert await task in ("INTERNAL", "finished")
        assert await call.code() in (S.INTERNAL, S.UNAVAILABLE)
        await channel.close()


async def test_a_channel_closed_under_open_calls(wire: Wire) -> None:
    """They are cancelled, as by their callers, and so are the handlers."""
    waiting = Waiting()
    async with serving(wire, **waiting_handlers(waiting)) as served:
        calls = await opened(served, waiting)
        await served.channel.close()
        assert [await call.code() for call in calls] == [S.CANCELLED] * 3
        with pytest.raises(asyncio.CancelledError):
            await calls[0]
        await until(lambda: len(waiting.ended) == 4)


async def test_a_channel_closed_with_grace(wire: Wire) -> None:
    """New calls are refused at once; one that ends in time has its answer, the others are cancelled then."""
    waiting = Waiting()
    go_on = asyncio.Event()

    async def late(request: bytes, context: Any) -> bytes:
        await go_on.wait()
        return b"in time"

    async with serving(wire, One=unary(waiting.one), Late=unary(late)) as served, Background("test") as background:
        slow, ended = served.call("Late"), served.call("One")
        await until(lambda: waiting.called == 1)
        closing = background.spawn("close", served.channel.close(0.3))
        async for _ in turns():
            try:
                served.call("Late").cancel()
            except grpc.aio.UsageError:
                break
        go_on.set()
        assert await slow == b"in time"
        assert not closing.done()
        await closing
        assert await ended.code() is S.CANCELLED


async def test_a_server_stopped_at_once(wire: Wire) -> None:
    """Open calls are UNAVAILABLE, handlers are cancelled, and new calls are refused."""
    waiting = Waiting()
    async with serving(wire, **waiting_handlers(waiting)) as served:
        one, stream, requests = await opened(served, waiting)
        await served.server.stop(None)
        await until(lambda: waiting.ended.count("CancelledError") == 3)
        for awaited in (one, requests):
            error = await failure(awaited)
            assert (error.code(), error.details()) == (S.UNAVAILABLE, "Cancelling all calls")
        assert [await stream.read(), await stream.read()] == [b"1", b"2"], "unlike those of a connection that breaks"
        assert (await failure(stream.read())).details() == "Cancelling all calls"
        assert "refused" in ((await failure(served.call("Echo"))).details() or "")
        await served.server.stop(None)
        with pytest.raises(grpc.aio.UsageError):
            await served.server.start()


async def test_a_server_stopped_with_grace(wire: Wire) -> None:
    """New calls are refused at once; open ones go on, with writes and reads, until the grace is over."""
    waiting = Waiting()

    async def echo_all(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    handlers = {"One": unary(waiting.one), "Stream": conversing(echo_all), "Echo": unary(echo)}
    async with serving(wire, **handlers) as served, Background("test") as background:
        one, stream = served.call("One"), served.both("Stream")
        await stream.write(b"before")
        assert await stream.read() == b"before"
        await until(lambda: waiting.called == 1)
        stopping = background.spawn("stop", served.server.stop(0.5))
        async for _ in turns():
            if await served.call("Echo").code() is not S.OK:
                break
        assert "refused" in ((await failure(served.call("Echo"))).details() or "")
        await stream.write(b"still")
        assert await stream.read() == b"still"
        await stream.done_writing()
        assert await stream.read() is EOF
        assert not stopping.done()
        await stopping
        assert (await failure(one)).details() == "Cancelling all calls"
        assert waiting.ended == ["CancelledError"]


async def test_a_stop_ends_with_the_last_call(wire: Wire) -> None:
    """The grace is no sleep; and `wait_for_termination` tells whether the time was over before."""
    go_on = asyncio.Event()

    async def late(request: bytes, context: Any) -> bytes:
        await go_on.wait()
        return b"done"

    async with serving(wire, Late=unary(late)) as served, Background("test") as background:
        call = served.call("Late")
        assert await served.server.wait_for_termination(0.05) is True
        stopping = background.spawn("stop", served.server.stop(60))
        assert await waits(stopping)
        go_on.set()
        assert await call == b"done"
        await asyncio.wait_for(stopping, 10)
        assert await served.server.wait_for_termination(10) is False


async def test_a_stop_does_not_wait_for_stubborn_handlers(wire: Wire) -> None:
    """A handler that goes on after its cancellation outlives the stop, whatever grpc.aio's documentation says.

    So what handlers use must not be closed right after a stop, unless somebody else waits for them.
    """
    called, cancelled, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn(request: bytes, context: Any) -> bytes:
        try:
            called.set()
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.set()
        await go_on.wait()
        ended.set()
        return b""

    async with serving(wire, Stubborn=unary(stubborn)) as served:
        call = served.call("Stubborn")
        await called.wait()
        await served.server.stop(None)
        assert (await failure(call)).code() is S.UNAVAILABLE
        await cancelled.wait()
        assert not ended.is_set()
        go_on.set()
        await ended.wait()


async def test_a_port_that_is_taken(wire: Wire) -> None:
    """Binding it again is a RuntimeError, until the server that has it has stopped."""
    alone = (("grpc.so_reuseport", 0),)
    first, second = wire.server((), alone, None), wire.server((), alone, None)
    port = first.add_insecure_port("127.0.0.1:0")
    await first.start()
    with pytest.raises(RuntimeError):
        second.add_insecure_port(f"127.0.0.1:{port}")
    await first.stop(None)
    third = wire.server((), alone, None)
    assert third.add_insecure_port(f"127.0.0.1:{port}") == port
    await third.start()
    await third.stop(None)
    for server in (second, third):
        await server.stop(None)
