"""The queue front over real connections: hot calls behave as through grpc.aio, which serves none of them."""

import asyncio
import contextlib
import gc
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog

from ortoo.common.errors import NotFound
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.completion_queue.core import CompletionQueue, QueueCall
from ortoo.common.grpc.h2.call import H2Call
from ortoo.common.grpc.layers.call_memory import CALL_BYTES, TRANSPORT_COPIES
from ortoo.common.grpc.layers.layer import Layers
from ortoo.common.grpc.limits.connections import end_connections, peer_of
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.tls import TlsListener, make_self_signed_certificate
from ortoo.common.grpc.transport import H2Transport, using_transport
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from tests.unit.common.grpc.new_garbage import new_garbage

EACH_TRANSPORT = pytest.mark.usefixtures("each_transport")
"""The transport h2 has no queue front; its calls behave the same."""
NAME = "ortoo.v1.Test"
HOT = [f"/{NAME}/{method}" for method in ("Echo", "Ask", "Wait", "Fail", "Large", "Many", "Early")]
LARGE = bytes(8 << 20)
"""More than the window that gRPC gives a peer which does not read."""
ENDED_S = 60
PINGS_S = 30
"""Interval of pings. GRPC sends buffered data with the next ping at the latest, which is too late for an answer."""


class Panic(BaseException):
    """An exception of extension modules that is not an Exception, so that it is not handled as an error."""


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of grpc.aio's requests for a method's handler."""
    found: Counter[str] = Counter()
    ask = Layers.intercept_service

    async def counted(self: Layers, continuation: Any, handler_call_details: grpc.HandlerCallDetails) -> Any:
        found[handler_call_details.method] += 1
        return await ask(self, continuation, handler_call_details)

    monkeypatch.setattr(Layers, "intercept_service", counted)
    return found


class Served:
    """A server of seven hot methods and a cold one, and the records of their handlers."""

    def __init__(self, **options: Any) -> None:
        self.budget = MemoryBudget(1 << 30)
        self.waiting: asyncio.Queue[Any] = asyncio.Queue()
        self.cancelled = 0
        self.go_on = asyncio.Event()
        methods = {"Echo": self.echo, "Ask": self.ask, "Wait": self.wait, "Fail": self.fail, "Large": self.large}
        methods["Cold"] = self.echo
        self.handlers = {
            name: grpc.unary_unary_rpc_method_handler(call, bytes, bytes) for name, call in methods.items()
        }
        self.handlers["Many"] = grpc.unary_stream_rpc_method_handler(self.many, bytes, bytes)
        self.handlers["Early"] = grpc.unary_stream_rpc_method_handler(self.early, bytes, bytes)
        self.server = GrpcServer("127.0.0.1:0", [(NAME, self.add)], hot=HOT, memory=self.budget, **options)

    def add(self, server: Any) -> None:
        """Add the methods as generated code does."""
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, self.handlers),))

    async def echo(self, request: bytes, context: Any) -> bytes:
        return request

    async def large(self, request: bytes, context: Any) -> bytes:
        return LARGE

    async def ask(self, request: bytes, context: Any) -> bytes:
        """All values that handlers and layers read from a context."""
        metadata = sorted((key, value) for key, value in context.invocation_metadata() if key.startswith("x-"))
        remaining_s = context.time_remaining()
        known = "none" if remaining_s is None else "some" if 0 < remaining_s < ENDED_S + 1 else str(remaining_s)
        tls = b"ssl" in context.auth_context().get("transport_security_type", ())
        peer = peer_of(context.peer())
        context.set_trailing_metadata((("x-trailing", "t"), ("x-trailing-bin", b"\xff")))
        return repr((metadata, known, tls, peer is not None and peer[0], context.code())).encode()

    async def wait(self, request: bytes, context: Any) -> bytes:
        self.waiting.put_nowait(context)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return b"went on"

    async def many(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """Sends the requested number of answers, of any size; then it waits, or fails, or ends."""
        for at in range(200):
            yield b"%d" % at
        yield LARGE
        yield b""
        if request == b"wait":
            await self.wait(request, context)
        elif request == b"fail":
            raise NotFound("none left", field="name")

    async def early(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """Sends two answers and the status, then works on; on request it sends one answer too many."""
        yield b"first"
        yield b"last"
        await context.end()
        self.waiting.put_nowait(await self.wait(request, context))
        if request:
            yield request

    async def fail(self, request: bytes, context: Any) -> bytes:
        if request == b"defect":
            raise ZeroDivisionError
        if request == b"panic":
            raise Panic
        if request == b"code":
            context.set_code(grpc.StatusCode.DATA_LOSS)
            context.set_details("gone")
            return b""
        raise NotFound("not here; look there", field="name")


@contextlib.asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[Served, Callable[[str], Any]]]:
    """A running server, and a function that calls a method over a connection of its own."""
    one = Served(**options)
    async with one.server, connected(one.server.address) as channel, asyncio.timeout(ENDED_S):
        yield one, lambda method: channel.unary_unary(f"/{NAME}/{method}")


@contextlib.asynccontextmanager
async def connected(address: str, *more: tuple[str, int]) -> AsyncIterator[Any]:
    options = [("grpc.use_local_subchannel_pool", 1), *more]
    options += [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        yield channel


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that another task fulfils."""
    async with asyncio.timeout(ENDED_S):
        while not condition():
            await SystemClock().sleep(0.005)


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    """The status and details of a refused call."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def test_no_hot_call_reaches_grpc_aio(asked: Counter[str]) -> None:
    """It is never asked for a hot method's handler, and still serves other methods."""
    async with served() as (one, method):
        calls = [method("Echo")(bytes([at])) for at in range(200)]
        assert [await call for call in calls] == [bytes([at]) for at in range(200)]
        assert await method("Cold")(b"c") == b"c"
        assert await method("Cold")(b"d") == b"d"
        assert asked == {f"/{NAME}/Cold": 2}
        await until(lambda: one.budget.used_bytes == 0)


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


async def test_a_client_hears_the_same_with_the_front_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata in both directions, binary too, deadlines, peers, statuses and translated errors are equal."""
    with_front = await answers()
    with using_transport(H2Transport()):
        assert await answers() == with_front
    monkeypatch.setattr(CompletionQueue, "of_server", lambda *_: None)
    assert await answers() == with_front
    assert b"'some', False, '127.0.0.1'" in bytes(str(with_front[3]), "ascii")


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


@pytest.mark.parametrize("request_bytes", [b"", b"fail"])
async def test_many_answers_come_in_order_and_then_the_status(
    request_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small answers sent together, a large one that is waited for, and an empty one arrive as through grpc.aio."""
    heard, ended = await many_answers(request_bytes)
    assert heard == [*(b"%d" % at for at in range(200)), len(LARGE), b""]
    assert ended == ("OK" if not request_bytes else "StatusCode.NOT_FOUND name: none left")
    with using_transport(H2Transport()):
        assert await many_answers(request_bytes) == (heard, ended)
    monkeypatch.setattr(CompletionQueue, "of_server", lambda *_: None)
    assert await many_answers(request_bytes) == (heard, ended)


@EACH_TRANSPORT
async def test_who_leaves_amid_many_answers_ends_the_handler() -> None:
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
async def test_a_caller_that_waits_no_longer_ends_the_handler() -> None:
    """A deadline and a cancellation reach the handler as through grpc.aio, and nothing is left over."""
    async with served() as (one, method):
        code, _ = await refusal(method("Wait")(b"", timeout=3))
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: one.cancelled == 1)
        call = method("Wait")(b"")
        contexts = [await one.waiting.get() for _ in range(2)]
        call.cancel()
        await until(lambda: one.cancelled == 2)
        assert all(context.cancelled() for context in contexts)
        await until(lambda: one.budget.used_bytes == 0)


@EACH_TRANSPORT
async def test_a_request_that_is_too_large_or_missing_is_refused() -> None:
    """GRPC refuses the first by its own limit, the front a call half closed without a request; others work."""
    one = Served()
    async with one.server, connected(one.server.address) as channel, asyncio.timeout(ENDED_S):
        code, _ = await refusal(channel.unary_unary(HOT[0])(bytes(65 << 20)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        call = channel.stream_unary(HOT[0])()
        await call.done_writing()
        assert await refusal(call) == (grpc.StatusCode.UNIMPLEMENTED, f"{HOT[0]} takes one request, and none came")
        assert await channel.unary_unary(HOT[0])(b"x") == b"x"


@EACH_TRANSPORT
async def test_calls_come_by_tls_too(tmp_path: Path) -> None:
    """The TLS port belongs to the same core, and a context shows the port of its call."""
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
        call: Any = channel.unary_unary(HOT[1])
        assert b"True, '127.0.0.1'" in await call(b"?")


@EACH_TRANSPORT
async def test_a_stop_lets_calls_end_and_cancels_those_that_do_not() -> None:
    """Within the grace period calls are answered, after it they are cancelled. Then the front's thread has ended."""
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
    async with asyncio.timeout(ENDED_S), Background("test") as background, connected_after(two) as (channel, stop):
        last = background.start_future("last", refusal(call_of(channel, "Wait")))
        await two.waiting.get()
        await stop()
        assert (await last)[0] in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert two.cancelled == 1
    await until(lambda: not [one for one in threading.enumerate() if one.name == "queue front"])


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


@EACH_TRANSPORT
async def test_a_handler_that_panics_has_answered() -> None:
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


async def test_a_call_ends_before_its_handler_and_a_stop_waits_for_that(
    asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client has all answers and the status; the handler's work after them is done before the server ends."""
    one, closing, close = Served(), asyncio.Event(), CompletionQueue.close

    async def closed(core: CompletionQueue) -> None:
        closing.set()
        await close(core)

    async def work_on() -> None:
        await closing.wait()
        one.go_on.set()

    monkeypatch.setattr(CompletionQueue, "close", closed)
    async with asyncio.timeout(ENDED_S), Background("test") as background:
        async with one.server, connected(one.server.address) as channel:
            call = channel.unary_stream(f"/{NAME}/Early")(b"")
            assert [answer async for answer in call] == [b"first", b"last"]
            assert await call.code() is grpc.StatusCode.OK
            context = await one.waiting.get()
            assert not context.cancelled()
            background.spawn("work on", work_on())
        assert one.waiting.get_nowait() == b"went on"
        assert one.budget.used_bytes == 0
        assert not asked


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes until either side has closed its connection, which the server may do at any time."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 20):
            writer.write(data)
            await writer.drain()


@EACH_TRANSPORT
async def test_calls_leave_no_objects() -> None:
    """Served, refused and ended calls need no garbage collector, and the front keeps none of them."""
    async with served() as (one, method), connected(one.server.address) as channel:
        one.go_on.set()

        async def round_of_calls() -> None:
            for at in range(100):
                await method("Echo")(bytes(at))
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await method("Fail")(b"")
                assert [answer async for answer in channel.unary_stream(f"/{NAME}/Early")(b"")] == [b"first", b"last"]
                for _ in range(2):
                    await one.waiting.get()

        with new_garbage() as collect:
            for _ in range(3):  # gRPC replaces its objects that are older than the block
                await round_of_calls()
            collect()
            before = len(gc.get_objects())
            await round_of_calls()
            assert collect() < 100
            assert len(gc.get_objects()) - before < 200


@EACH_TRANSPORT
async def test_nothing_is_said_behind_the_end() -> None:
    """Otherwise gRPC would silently refuse the second status and never release the call."""

    def calls() -> int:
        gc.collect()
        return sum(isinstance(found, QueueCall | H2Call) for found in gc.get_objects())

    async with served() as (one, _), connected(one.server.address) as channel:
        before = calls()  # those that wait for a call
        one.go_on.set()
        for _ in range(10):
            assert [answer async for answer in channel.unary_stream(f"/{NAME}/Early")(b"late")] == [b"first", b"last"]
            for _ in range(2):
                await one.waiting.get()  # otherwise these are kept there
        await until(lambda: calls() <= before)


async def test_a_grpcio_without_the_core_serves_all_by_grpc_aio(
    monkeypatch: pytest.MonkeyPatch, asked: Counter[str]
) -> None:
    """That is decided before the start and logged in one line, and grpc.aio serves the hot methods."""
    with monkeypatch.context() as without, structlog.testing.capture_logs() as lines:
        without.setattr(gc, "get_referents", lambda *_: [])
        one = Served()
    assert [line["log_level"] for line in lines] == ["warning"]
    async with one.server, connected(one.server.address) as channel, asyncio.timeout(ENDED_S):
        assert await channel.unary_unary(HOT[0])(b"x") == b"x"
        assert asked == {HOT[0]: 1}
