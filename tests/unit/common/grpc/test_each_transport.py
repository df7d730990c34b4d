"""Calls over real connections behave the same on both transports, except where a test names one of them."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.common.errors import NotFound
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.h2.call import H2Call
from ortoo.common.grpc.layers.call_memory import CALL_BYTES, TRANSPORT_COPIES
from ortoo.common.grpc.limits.connections import end_connections, peer_of
from ortoo.common.grpc.tls import TlsListener, make_self_signed_certificate
from ortoo.common.grpc.transport import using_transport
from ortoo.common.process.background import Background
from tests.conftest import TRANSPORTS
from tests.hostile.http2 import CANCELLED, RST_STREAM, Stranger, frame, headers, message, opening, request
from tests.unit.common.grpc.new_garbage import new_garbage
from tests.unit.common.grpc.served import ENDED_S, LARGE, NAME, Panic, Served, connected, refusal, served, until

EACH_TRANSPORT = pytest.mark.usefixtures("each_transport")
ON_H2 = pytest.mark.parametrize("each_transport", ["h2"], indirect=True)
ECHO = f"/{NAME}/Echo"
PINGS_S = 30
"""Interval of pings. GRPC sends buffered data with the next ping at the latest, which is too late for an answer."""


async def answers() -> list[object]:
    """The results of all kinds of calls at a client."""
    async with served() as (_, method):
        metadata = (("x-mq-client-id", "c"), ("x-odd-bin", b"\x00\xff"), ("x-twice", "1"), ("x-twice", "2"))
        heard: list[object] = []
        for timeout in (None, ENDED_S):
            call = method("Ask")(b"?", metadata=metadata, timeout=timeout)
            heard += [
                await call,
                sorted((key, value) for key, value in await call.trailing_metadata()),
                await call.code(),
            ]
        heard.append(await method("Echo")(b""))
        heard.append(await refusal(method("Fail")(b"defect")))
        heard.append(await refusal(method("Fail")(b"code")))
        with pytest.raises(NotFound) as caught, rpc_errors("server"):
            await method("Fail")(b"")
        return [*heard, str(caught.value), caught.value.field]


async def test_a_client_gets_the_same_answers_of_both() -> None:
    """Metadata in both directions, binary too, deadlines, peers, statuses and translated errors are equal."""
    with using_transport(TRANSPORTS["h2"]):
        of_h2 = await answers()
    with using_transport(TRANSPORTS["grpc"]):
        assert await answers() == of_h2
    assert b"'some', False, '127.0.0.1'" in bytes(str(of_h2[3]), "ascii")


async def many_answers(request: bytes) -> tuple[list[int | bytes], str]:
    """The answers and the status that a client gets of a call with many answers."""
    one = Served()
    async with one.server, connected(one.server.address) as channel:
        heard: list[int | bytes] = []
        try:
            call = channel.unary_stream(f"/{NAME}/Many")(request, timeout=ENDED_S)
            while (answer := await call.read()) is not grpc.aio.EOF:
                heard.append(answer if len(answer) < 100 else len(answer))
        except grpc.aio.AioRpcError as error:
            return heard, f"{error.code()} {error.details()}"
        await until(lambda: one.budget.used_bytes == 0)
        return heard, "OK"


@EACH_TRANSPORT
@pytest.mark.parametrize("request_bytes", [b"", b"fail"])
async def test_many_answers_come_in_order_and_then_the_status(request_bytes: bytes) -> None:
    """Small answers sent together, a large one that is waited for, and an empty one arrive."""
    heard, ended = await many_answers(request_bytes)
    assert heard == [*(b"%d" % at for at in range(200)), len(LARGE), b""]
    assert ended == ("OK" if not request_bytes else "StatusCode.NOT_FOUND name: none left")


@EACH_TRANSPORT
async def test_a_client_that_leaves_during_many_answers_ends_the_handler() -> None:
    """A handler that waits, and one whose large answer is not read, are each cancelled once."""
    # Without probes the client's window stays as it is. They would open it for the whole answer, now and then.
    window = ("grpc.http2.bdp_probe", 0)
    async with (
        served() as (one, _),
        connected(one.server.address, window) as channel,
        asyncio.timeout(PINGS_S / 2),
    ):
        call = channel.unary_stream(f"/{NAME}/Many")(b"wait")
        assert await call.read() == b"0"
        # The large answer is counted until it is taken, which this caller's window does not allow.
        await until(lambda: one.budget.used_bytes >= CALL_BYTES + TRANSPORT_COPIES * len(LARGE))
        call.cancel()
        await until(lambda: one.budget.used_bytes == 0)
        assert one.cancelled == 0
        again = channel.unary_stream(f"/{NAME}/Many")(b"wait")
        assert len([await again.read() for _ in range(202)]) == 202
        await one.waiting.get()
        again.cancel()
        await until(lambda: one.cancelled == 1)
        await until(lambda: one.budget.used_bytes == 0)


@EACH_TRANSPORT
async def test_a_caller_that_waits_no_longer_ends_the_handler(each_transport: str) -> None:
    """A deadline and a cancellation reach the handler, and nothing is left over."""
    async with served() as (one, method):
        code, _ = await refusal(method("Wait")(b"", timeout=3))
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: one.cancelled == 1)
        call = method("Wait")(b"")
        contexts = [await one.waiting.get() for _ in range(2)]
        call.cancel()
        await until(lambda: one.cancelled == 2)
        assert each_transport == "grpc" or all(context.cancelled() for context in contexts)
        await until(lambda: one.budget.used_bytes == 0)


@EACH_TRANSPORT
async def test_a_request_that_is_too_large_or_missing_is_refused() -> None:
    """The second is a call half closed without a request. Others work."""
    one = Served()
    async with one.server, connected(one.server.address) as channel, asyncio.timeout(ENDED_S):
        code, _ = await refusal(channel.unary_unary(ECHO)(bytes(65 << 20)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        call = channel.stream_unary(ECHO)()
        await call.done_writing()
        code, details = await refusal(call)
        assert code is grpc.StatusCode.UNIMPLEMENTED
        assert details.endswith("Echo takes one request, and none came")
        assert await channel.unary_unary(ECHO)(b"x") == b"x"


@EACH_TRANSPORT
async def test_calls_arrive_by_tls_too(tmp_path: Path) -> None:
    """A context shows the port of its call."""
    certificate, key = make_self_signed_certificate(("localhost",))
    (tmp_path / "c.pem").write_bytes(certificate)
    (tmp_path / "k.pem").write_bytes(key)
    one = Served(tls=TlsListener("127.0.0.1:0", str(tmp_path / "c.pem"), str(tmp_path / "k.pem")))
    credentials = grpc.ssl_channel_credentials(certificate)
    names = [("grpc.ssl_target_name_override", "localhost")]
    async with (
        one.server,
        asyncio.timeout(ENDED_S),
        grpc.aio.secure_channel(one.server.tls_address, credentials, options=names) as channel,
    ):
        call: Any = channel.unary_unary(f"/{NAME}/Ask")
        assert b"True, '127.0.0.1'" in await call(b"?")


@EACH_TRANSPORT
async def test_a_stop_lets_calls_end_and_cancels_those_that_do_not() -> None:
    """Within the grace period calls are answered, after it they are cancelled. The stop waits for their handlers."""
    one = Served(grace_s=0.5)
    async with asyncio.timeout(ENDED_S), Background("test") as background, connected_after(one) as (channel, stop):
        first = background.start_future("first", call_of(channel, "Wait"))
        await one.waiting.get()
        stopping = background.spawn("stop", stop())
        await one.server.draining.wait()
        one.go_on.set()
        assert await first == b"went on"
        await stopping
    two = Served(grace_s=0.1)
    two.end_s = 0.5
    async with asyncio.timeout(ENDED_S), Background("test") as background, connected_after(two) as (channel, stop):
        last = background.start_future("last", refusal(call_of(channel, "Wait")))
        await two.waiting.get()
        await stop()
        assert (await last)[0] in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert two.cancelled == 1


@EACH_TRANSPORT
@pytest.mark.parametrize("leave", ["cancel", "disconnect"])
async def test_a_stop_waits_for_handlers_whose_callers_have_left(leave: str) -> None:
    """They use the stores and channels that are closed after the stop, like those that the stop has cancelled."""
    one = Served(grace_s=10)
    one.end_s = 1.0
    async with asyncio.timeout(ENDED_S), Background("test") as background, connected_after(one) as (channel, stop):
        call = channel.unary_unary(f"/{NAME}/Wait")(b"")
        context = await one.waiting.get()
        stopping = background.spawn("stop", stop())
        await one.server.draining.wait()
        if leave == "cancel":
            call.cancel()
        else:
            assert end_connections({peer_of(context.peer())})
        await stopping
        assert one.cancelled == 1


async def call_of(channel: Any, method: str) -> bytes:
    answer: bytes = await channel.unary_unary(f"/{NAME}/{method}")(b"")
    return answer


@contextlib.asynccontextmanager
async def connected_after(one: Served) -> AsyncIterator[tuple[Any, Callable[[], Any]]]:
    """A connection to a server that the test stops."""
    await one.server.__aenter__()
    async with connected(one.server.address) as channel:
        yield channel, lambda: one.server.__aexit__(None, None, None)


@EACH_TRANSPORT
async def test_connections_that_are_cut_leave_nothing_behind() -> None:
    """Handlers of calls on a dead connection are cancelled, their memory is returned, and others are served."""
    async with served() as (one, method), Background("test") as background:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(8):
                channel = await stack.enter_async_context(connected(one.server.address))
                for _ in range(8):
                    background.start_future("waiting", call_of(channel, "Wait"))
            peers = {peer_of((await one.waiting.get()).peer()) for _ in range(64)}
            assert len(peers) == 8
            assert end_connections(peers)
            await until(lambda: one.cancelled == 64)
        assert await method("Echo")(b"on") == b"on"
        await until(lambda: one.budget.used_bytes == 0)


@ON_H2
async def test_a_handler_that_panics_has_answered(each_transport: str) -> None:
    """The event loop reports a BaseException, its caller gets a status, and nothing is left over."""
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about["exception"]))
    async with served() as (one, method):
        assert await refusal(method("Fail")(b"panic")) == (grpc.StatusCode.UNKNOWN, "Unexpected Panic")
        await until(lambda: one.budget.used_bytes == 0)
        gc.collect()
        assert [type(error) for error in told] == [Panic]


@EACH_TRANSPORT
async def test_an_answer_counts_until_its_peer_has_taken_it() -> None:
    """A peer that reads nothing is detected by its unread bytes, and its end frees them."""
    async with served() as (one, _), Background("test") as background:
        server_peer = peer_of(f"ipv4:{one.server.address}")
        assert server_peer is not None
        ours: list[Any] = []
        open_ends: list[asyncio.StreamWriter] = []

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Pass everything to the server, and only the first bytes of its answers."""
            answers, requests = await asyncio.open_connection(*server_peer)
            ours.append(requests.get_extra_info("sockname"))
            open_ends.extend((requests, writer))
            background.spawn("forth", carry(reader, requests))
            for _ in range(3):
                writer.write(await answers.read(1 << 10))

        async with await asyncio.start_server(relay, "127.0.0.1", 0) as listening:
            host, port = listening.sockets[0].getsockname()
            async with connected(f"{host}:{port}") as channel:
                call = background.start_future("large", call_of(channel, "Large"))
                await until(lambda: one.budget.used_bytes >= CALL_BYTES + TRANSPORT_COPIES * len(LARGE))
                assert end_connections(set(ours))
                await until(lambda: one.budget.used_bytes == 0)
            call.cancel()
        for end in open_ends:
            end.close()


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes until either side has closed its connection, which the server may do at any time."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 20):
            writer.write(data)
            await writer.drain()


@EACH_TRANSPORT
async def test_calls_leave_no_objects(each_transport: str) -> None:
    """Served, refused and ended calls need no garbage collector, and the server keeps none of them."""
    async with served() as (one, method), connected(one.server.address) as channel:
        one.go_on.set()

        async def round_of_calls() -> None:
            for at in range(100):
                await method("Echo")(bytes(at))
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await method("Fail")(b"")
                if each_transport == "h2":
                    early = channel.unary_stream(f"/{NAME}/Early")(b"")
                    assert [answer async for answer in early] == [b"first", b"last"]
                    for _ in range(2):
                        await one.waiting.get()

        with new_garbage() as collect:
            for _ in range(3):  # gRPC replaces its objects that are older than the block
                await round_of_calls()
            collect()
            before = len(gc.get_objects())
            await round_of_calls()
            assert collect() < 100 + (5 * 200 if each_transport == "grpc" else 0)  # grpc.aio leaves 5 a call
            assert len(gc.get_objects()) - before < 200


@ON_H2
async def test_an_ended_stream_of_requests_is_freed_at_once(each_transport: str) -> None:
    """A cycle of references would keep the call and its connection until a full garbage collection."""
    async with served() as (one, _), connected(one.server.address) as channel:
        with new_garbage():
            for is_cancelled in (False, True):
                call = channel.stream_stream(f"/{NAME}/Talk")()
                await call.write(b"x")
                assert await call.read() == b"x"
                assert any(isinstance(found, H2Call) for found in gc.get_objects())
                if is_cancelled:
                    call.cancel()
                else:
                    await call.done_writing()
                await until(lambda: one.budget.used_bytes == 0)
                await until(lambda: not any(isinstance(found, H2Call) for found in gc.get_objects()))


@ON_H2
async def test_no_answer_follows_the_end(each_transport: str) -> None:
    """An answer after the status is dropped, and the call is released."""

    def calls() -> int:
        gc.collect()
        return sum(isinstance(found, H2Call) for found in gc.get_objects())

    async with served() as (one, _), connected(one.server.address) as channel:
        before = calls()  # those that wait for a call
        one.go_on.set()
        for _ in range(10):
            assert [answer async for answer in channel.unary_stream(f"/{NAME}/Early")(b"late")] == [b"first", b"last"]
            for _ in range(2):
                await one.waiting.get()  # otherwise these are kept there
        await until(lambda: calls() <= before)


@EACH_TRANSPORT
async def test_calls_that_are_reset_together_with_their_requests_leave_nothing() -> None:
    """Request and reset in one packet: a call may end before its task begins."""
    async with served() as (one, method):
        stranger, waiting = await Stranger.connect(one.server.address), one.server._calls.waiting
        streams = stranger.streams(50)
        await stranger.send(*(opening(stream, headers(f"/{NAME}/Wait")) for stream in streams))
        await until(lambda: waiting.used_bytes == len(streams) * CALL_BYTES)
        await stranger.send(
            *(request(stream, message(b"")) + frame(RST_STREAM, 0, stream, CANCELLED) for stream in streams)
        )
        await until(lambda: not waiting.used_bytes)
        assert await method("Echo")(b"on") == b"on"
        await until(lambda: one.budget.used_bytes == 0)
        await stranger.close()
