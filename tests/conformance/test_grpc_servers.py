"""Servers around their handlers: interceptors, unknown methods, limits, and the standard services."""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from tests.conformance.wire import SERVICE, Wire, answering, conversing, failure, path, serving, unary, until

EOF = grpc.aio.EOF
S = grpc.StatusCode
HERE: contextvars.ContextVar[str] = contextvars.ContextVar("here", default="nowhere")


async def echo(request: bytes, context: Any) -> bytes:
    return request


class Noting(grpc.aio.ServerInterceptor):
    """Records the calls that it sees, and wraps unary handlers."""

    def __init__(self, name: str, noted: list[str]) -> None:
        self.name = name
        self.noted = noted

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        keys = [key for key, _ in handler_call_details.invocation_metadata or () if key != "user-agent"]
        self.noted.append(f"{self.name} asks for {handler_call_details.method} with {keys}")
        handler = await continuation(handler_call_details)
        if handler is None:
            self.noted.append(f"{self.name} finds nothing")
            return None

        async def wrapped(request: bytes, context: Any) -> Any:
            self.noted.append(f"{self.name} before")
            answer = await handler.unary_unary(request, context)
            self.noted.append(f"{self.name} after")
            return answer

        return grpc.unary_unary_rpc_method_handler(wrapped)


async def test_interceptors_stand_in_their_order(wire: Wire) -> None:
    """The first is the outermost; all of them see method and metadata, also of methods without a handler."""
    noted: list[str] = []
    interceptors = (Noting("outer", noted), Noting("inner", noted))
    async with serving(wire, interceptors=interceptors, Echo=unary(echo)) as served:
        assert await served.call("Echo", b"x", metadata=(("k", "v"),)) == b"x"
        name = path("Echo")
        assert noted == [
            f"outer asks for {name} with ['k']",
            f"inner asks for {name} with ['k']",
            "outer before",
            "inner before",
            "inner after",
            "outer after",
        ]
        noted.clear()
        assert (await failure(served.call("Nothing"))).code() is S.UNIMPLEMENTED
        assert noted[-2:] == ["inner finds nothing", "outer finds nothing"]


async def test_an_interceptor_that_raises(wire: Wire) -> None:
    """The call ends as if the handler had raised."""

    class Raising(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
            raise ValueError("before any handler")

    async with serving(wire, interceptors=(Raising(),), Echo=unary(echo)) as served:
        error = await failure(served.call("Echo"))
        assert error.code() is S.UNKNOWN
        assert "before any handler" in (error.details() or "")


@pytest.mark.parametrize("kind", ["call", "answers", "requests", "both"])
async def test_an_unknown_method(wire: Wire, kind: str) -> None:
    """It is UNIMPLEMENTED for all kinds of calls."""
    async with serving(wire, Echo=unary(echo)) as served:
        call = getattr(served, kind)("Nothing")
        error = await failure(call if kind in ("call", "requests") else call.read())
        assert (error.code(), error.details()) == (S.UNIMPLEMENTED, "Method not found!")


async def test_methods_that_a_servicer_does_not_have(wire: Wire) -> None:
    """Methods of a generated base class are plain functions that set UNIMPLEMENTED and raise."""
    server = wire.server((), (), None)
    health_pb2_grpc.add_HealthServicer_to_server(health_pb2_grpc.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = wire.channel(f"127.0.0.1:{port}")
    stub = health_pb2_grpc.HealthStub(channel)
    assert (await failure(stub.Check(health_pb2.HealthCheckRequest()))).code() is S.UNIMPLEMENTED
    assert (await failure(stub.Watch(health_pb2.HealthCheckRequest()).read())).code() is S.UNIMPLEMENTED
    await channel.close()
    await server.stop(None)


async def test_registered_handlers_win(wire: Wire) -> None:
    """A method registered by name takes precedence over generic handlers; the last registration wins."""
    async with serving(wire, Echo=unary(echo)) as served:
        server = wire.server((), (), None)

        async def other(request: bytes, context: Any) -> bytes:
            return b"other"

        async def last(request: bytes, context: Any) -> bytes:
            return b"last"

        generic = grpc.method_handlers_generic_handler(SERVICE, {"Echo": unary(echo), "More": unary(echo)})
        server.add_generic_rpc_handlers((generic,))
        server.add_registered_method_handlers(SERVICE, {"Echo": unary(other)})
        server.add_registered_method_handlers(SERVICE, {"Echo": unary(last)})
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        channel = served.wire.channel(f"127.0.0.1:{port}")
        assert await channel.unary_unary(path("Echo"))(b"x") == b"last"
        assert await channel.unary_unary(path("Echo"), _registered_method=True)(b"x") == b"last"
        assert await channel.unary_unary(path("More"))(b"x") == b"x"
        await channel.close()
        await server.stop(None)


async def test_callers_and_handlers_of_different_kinds(wire: Wire) -> None:
    """A stream may be read as a single answer and vice versa, as far as the messages allow it."""

    async def three(request: bytes, context: Any) -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d" % number

    async with serving(wire, Echo=unary(echo), Three=answering(three)) as served:
        assert [answer async for answer in served.answers("Echo", b"x")] == [b"x"]
        call = served.both("Echo")
        await call.write(b"one")
        assert await call.read() == b"one"
        assert await call.read() is EOF
        error = await failure(served.call("Three", timeout=0.15))
        assert error.code() is S.DEADLINE_EXCEEDED, "the caller reads one answer and waits for the end"


async def test_more_calls_than_a_server_takes(wire: Wire) -> None:
    """The excess call is RESOURCE_EXHAUSTED, an unknown method still UNIMPLEMENTED; later calls are accepted again."""
    if wire.name == "h2":
        return  # it has no such limit, because Ortoo's servers limit the memory of calls instead
    go_on = asyncio.Event()
    called: list[int] = []

    async def late(request: bytes, context: Any) -> bytes:
        called.append(1)
        await go_on.wait()
        return b"late"

    async with serving(wire, calls_max=2, Late=unary(late), Echo=unary(echo)) as served:
        calls = [served.call("Late") for _ in range(2)]
        await until(lambda: len(called) == 2)
        error = await failure(served.call("Echo"))
        assert (error.code(), error.details()) == (S.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!")
        assert (await failure(served.call("Nothing"))).code() is S.UNIMPLEMENTED
        go_on.set()
        assert [await call for call in calls] == [b"late"] * 2
        async with asyncio.timeout(60):
            while True:
                call = served.call("Echo", b"x")
                if await call.code() is S.OK:
                    break
        assert await call == b"x"


async def test_many_calls_at_once(wire: Wire) -> None:
    """Each of hundreds of calls on one connection gets its own answer."""
    async with serving(wire, Echo=unary(echo)) as served:
        calls = [served.call("Echo", b"%d" % number) for number in range(400)]
        assert [int(await call) for call in calls] == list(range(400))


async def test_handlers_run_in_the_context_of_their_server(wire: Wire) -> None:
    """Context variables have the values of the task that started the server; changes stay within a handler."""

    async def here(request: bytes, context: Any) -> bytes:
        before = HERE.get()
        HERE.set("in a handler")
        return before.encode()

    token = HERE.set("at the server")
    async with serving(wire, Here=unary(here)) as served:
        HERE.reset(token)
        HERE.set("at the caller")
        assert [await served.call("Here") for _ in range(2)] == [b"at the server"] * 2


async def test_health(wire: Wire) -> None:
    """The standard health service answers and can be watched; a cancelled watch leaves nothing behind."""
    server = wire.server((), (), None)
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await servicer.set("x", health_pb2.HealthCheckResponse.SERVING)
    channel = wire.channel(f"127.0.0.1:{port}")
    stub = health_pb2_grpc.HealthStub(channel)
    assert (await stub.Check(health_pb2.HealthCheckRequest(service="x"))).status == 1
    assert (await failure(stub.Check(health_pb2.HealthCheckRequest(service="y")))).code() is S.NOT_FOUND
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="x"))
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    await servicer.set("x", health_pb2.HealthCheckResponse.NOT_SERVING)
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    await servicer.enter_graceful_shutdown()
    watch.cancel()
    await channel.close()
    await server.stop(None)


async def test_reflection(wire: Wire) -> None:
    """The standard reflection service accepts the server as one of grpc.aio's, and lists the services."""
    server = wire.server((), (), None)
    reflection.enable_server_reflection((SERVICE, reflection.SERVICE_NAME), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = wire.channel(f"127.0.0.1:{port}")
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([request]))
    [answer] = [answer async for answer in call]
    assert sorted(one.name for one in answer.list_services_response.service) == sorted(
        (SERVICE, reflection.SERVICE_NAME)
    )
    await channel.close()
    await server.stop(None)


async def test_a_callback_that_raises_harms_nobody(wire: Wire) -> None:
    """The error is logged, and the call gets its answer."""

    async def tells(request: bytes, context: Any) -> bytes:
        def broken(_: Any) -> None:
            raise ValueError("in a callback")

        context.add_done_callback(broken)
        return b"answer"

    async with serving(wire, Tells=unary(tells)) as served:
        assert await served.call("Tells") == b"answer"
        assert await served.call("Tells") == b"answer"


async def test_a_conversation_between_tasks(wire: Wire) -> None:
    """A handler may read in one task and write in another, and so may a caller."""

    async def both_ways(requests: Any, context: Any) -> AsyncIterator[bytes]:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def read() -> None:
            async for request in requests:
                await queue.put(request)
            await queue.put(None)

        async with asyncio.TaskGroup() as group:
            group.create_task(read())
            while (request := await queue.get()) is not None:
                yield request.upper()

    async with serving(wire, Both=conversing(both_ways)) as served, asyncio.TaskGroup() as group:
        call = served.both("Both")

        async def write() -> None:
            for letter in "abc":
                await call.write(letter.encode())
            await call.done_writing()

        group.create_task(write())
        assert [answer async for answer in call] == [b"A", b"B", b"C"]
