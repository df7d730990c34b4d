"""Channels that are closed and servers that are stopped while calls are open."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from ortoo.common.process.background import Background
from tests.conformance.open_calls import Waiting, opened, waiting_handlers
from tests.conformance.wire import (
    Wire,
    conversing,
    failure,
    path,
    serving,
    turns,
    unary,
    until,
    waits,
)

EOF = grpc.aio.EOF
S = grpc.StatusCode
SHORT_S = 0.1


async def echo(request: bytes, context: Any) -> bytes:
    return request


async def test_a_channel_closed_under_open_calls(wire: Wire) -> None:
    """They are cancelled as if by their callers, and so are the handlers."""
    waiting = Waiting()
    async with serving(wire, **waiting_handlers(waiting)) as served:
        calls = await opened(served, waiting)
        await served.channel.close()
        assert [await call.code() for call in calls] == [S.CANCELLED] * 3
        with pytest.raises(asyncio.CancelledError):
            await calls[0]
        await until(lambda: waiting.ended.count("CancelledError") == 3)


async def test_a_channel_closed_with_grace(wire: Wire) -> None:
    """New calls are refused at once; calls that end within the grace get their answers, the others are cancelled."""
    waiting = Waiting()
    called, go_on = asyncio.Event(), asyncio.Event()

    async def late(request: bytes, context: Any) -> bytes:
        called.set()
        await go_on.wait()
        return b"in time"

    async with serving(wire, One=unary(waiting.one), Late=unary(late)) as served, Background("test") as background:
        slow = served.call("Late")
        await called.wait()
        closing = background.spawn("close", served.channel.close(60))
        async for _ in turns():
            try:
                served.call("Late").cancel()
            except grpc.aio.UsageError:
                break
        assert await waits(closing)
        go_on.set()
        assert await slow == b"in time"
        await closing
        channel = wire.channel(served.address)
        ended = channel.unary_unary(path("One"))(b"")
        await until(lambda: waiting.called == 1)
        await channel.close(SHORT_S)
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
    """New calls are refused at once; open calls continue to write and read until the grace expires or is cut short."""
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
        stopping = background.spawn("stop", served.server.stop(60))
        async for _ in turns():
            if await served.call("Echo").code() is not S.OK:
                break
        assert "refused" in ((await failure(served.call("Echo"))).details() or "")
        await stream.write(b"still")
        assert await stream.read() == b"still"
        await stream.done_writing()
        assert await stream.read() is EOF
        assert await waits(stopping)
        await served.server.stop(SHORT_S)
        await stopping
        assert (await failure(one)).details() == "Cancelling all calls"
        await until(lambda: waiting.ended == ["CancelledError"])


async def test_a_stop_ends_with_the_last_call(wire: Wire) -> None:
    """A stop does not wait for the whole grace; `wait_for_termination` returns whether it timed out."""
    called, go_on = asyncio.Event(), asyncio.Event()

    async def late(request: bytes, context: Any) -> bytes:
        called.set()
        await go_on.wait()
        return b"done"

    async with serving(wire, Late=unary(late)) as served, Background("test") as background:
        call = served.call("Late")
        await called.wait()
        assert await served.server.wait_for_termination(0.05) is True
        stopping = background.spawn("stop", served.server.stop(60))
        assert await waits(stopping)
        go_on.set()
        assert await call == b"done"
        await asyncio.wait_for(stopping, 60)
        assert await served.server.wait_for_termination(60) is False


async def test_a_stop_does_not_wait_for_stubborn_handlers(wire: Wire) -> None:
    """A handler that continues after its cancellation outlives the stop, contrary to grpc.aio's documentation.

    Resources of handlers must therefore not be closed right after a stop, unless the stopping code waits for the
    handlers.
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
    """Binding it again is a RuntimeError until the server that holds it has stopped."""
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
