"""Connections: refused, unanswered, re-established, reset, and closed by either end while calls are open."""

import asyncio
from typing import Any

import grpc
import pytest

from ortoo.common.process.background import Background
from tests.conformance.open_calls import Waiting, opened, waiting_handlers
from tests.conformance.wire import (
    Served,
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
State = grpc.ChannelConnectivity
UNREACHABLE = "127.0.0.1:1"
SHORT_S = 0.1
IMPATIENT = (("grpc.min_reconnect_backoff_ms", 150), ("grpc.initial_reconnect_backoff_ms", 50))


async def echo(request: bytes, context: Any) -> bytes:
    return request


async def test_refused(wire: Wire) -> None:
    """Calls of all kinds get UNAVAILABLE with the address; so do writes, reads and waiting for the connection."""
    channel = wire.channel(UNREACHABLE)
    assert channel.get_state() is State.IDLE
    error = await failure(channel.unary_unary(path("M"))(b""))
    assert error.code() is S.UNAVAILABLE
    assert UNREACHABLE in (error.details() or "")
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
    """A call that waits until the channel is ready ends at its deadline; so does waiting for its connection."""
    channel = wire.channel(UNREACHABLE)
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
    """Calls wait for the timeout of a connection attempt, or until their deadline if that is sooner."""
    patient, impatient = wire.channel(wire.silent_address()), wire.channel(wire.silent_address(), IMPATIENT)
    soon = patient.stream_stream(path("M"))(timeout=SHORT_S)
    assert (await failure(soon.wait_for_connection())).code() is S.DEADLINE_EXCEEDED
    error = await failure(impatient.unary_unary(path("M"))(b""))
    assert error.code() is S.UNAVAILABLE
    assert "timed out" in (error.details() or "")
    await patient.close()
    await impatient.close()


async def test_a_call_cancelled_before_it_has_a_connection(wire: Wire) -> None:
    """The call ends at once. A task that waits for the stream's connection waits forever: grpc.aio never wakes it.

    A task that waits for a connection must therefore be cancelled together with its call.
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
    """A channel whose connection failed retries automatically, and the calls that wait for it are answered."""
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
    """IDLE until first used, READY with a connection, SHUTDOWN after its close; changes can be awaited."""
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


async def test_a_reset_connection(wire: Wire) -> None:
    """Every open call is UNAVAILABLE at once and its unread answers are lost; the handlers are cancelled.

    A handler may first read the end of its requests, as if the caller had half-closed. A server of grpc.aio sees the
    end and the cancellation at once, and on a busy machine the end may be delivered first. The next call opens a new
    connection.
    """
    waiting = Waiting()
    async with serving(wire, **waiting_handlers(waiting)) as served:
        way = await wire.way_to(served.address)
        channel = wire.channel(way.address)
        through = Served(wire, served.server, way.address, channel)
        calls = await opened(through, waiting)
        way.reset()
        for call in calls:
            assert await call.code() is S.UNAVAILABLE
        assert (await failure(calls[1].read())).code() is S.UNAVAILABLE
        await until(lambda: waiting.ended.count("CancelledError") == 3)
        assert set(waiting.ended) <= {"CancelledError", "read [b'request']"}
        async for _ in turns():
            if channel.get_state() is State.IDLE:
                break
        assert await through.call("Echo", b"again") == b"again"
        await channel.close()


async def test_a_killed_server(wire: Wire) -> None:
    """Answers that it sent are read, then its calls are UNAVAILABLE, and new ones are refused."""
    server = await wire.doomed()
    channel = wire.channel(server.address)
    call = channel.stream_stream(path("Stream"))()
    assert await call.read() == b"first"
    server.kill()
    assert (await failure(call.read())).code() is S.UNAVAILABLE
    async for _ in turns():  # a dying process may still take a connection and break it
        error = await failure(channel.unary_unary(path("Stream"))(b""))
        assert error.code() is S.UNAVAILABLE
        if "refused" in (error.details() or ""):
            break
    await channel.close()


async def test_a_reset_under_a_blocked_writer(wire: Wire) -> None:
    """The writer gets INTERNAL or an error for an ended call, not UNAVAILABLE; INTERNAL may stay the status."""

    async def deaf(requests: Any, context: Any) -> None:
        await context.send_initial_metadata(())
        await asyncio.get_running_loop().create_future()

    async with serving(wire, Deaf=conversing(deaf)) as served, Background("test") as background:
        way = await wire.way_to(served.address)
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
