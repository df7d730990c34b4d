"""A server with methods of all kinds of behaviour, and clients of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from ortoo.common.errors import NotFound
from ortoo.common.grpc.limits.connections import peer_of
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget

NAME = "ortoo.v1.Test"
LARGE = bytes(8 << 20)
"""More than the window that gRPC gives a peer which does not read."""
ENDED_S = 60


class Panic(BaseException):
    """An exception of extension modules that is not an Exception, so that it is not handled as an error."""


class Served:
    """A server, and the records of its handlers."""

    def __init__(self, **options: Any) -> None:
        self.budget = MemoryBudget(1 << 30)
        self.waiting: asyncio.Queue[Any] = asyncio.Queue()
        self.cancelled = 0
        self.end_s = 0.0
        """The time that `Wait` takes to end when it is cancelled."""
        self.go_on = asyncio.Event()
        methods = {"Echo": self.echo, "Ask": self.ask, "Wait": self.wait, "Fail": self.fail, "Large": self.large}
        self.handlers = {
            name: grpc.unary_unary_rpc_method_handler(call, bytes, bytes) for name, call in methods.items()
        }
        self.handlers["Many"] = grpc.unary_stream_rpc_method_handler(self.many, bytes, bytes)
        self.handlers["Early"] = grpc.unary_stream_rpc_method_handler(self.early, bytes, bytes)
        self.handlers["Talk"] = grpc.stream_stream_rpc_method_handler(self.talk, bytes, bytes)
        self.server = GrpcServer("127.0.0.1:0", [(NAME, self.add)], memory=self.budget, **options)

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
            await SystemClock().sleep(self.end_s)
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
        """Sends two answers and the status, then works on; on request it sends one answer too many. Not by grpc.aio."""
        yield b"first"
        yield b"last"
        await context.end()
        self.waiting.put_nowait(await self.wait(request, context))
        if request:
            yield request

    async def talk(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """Sends each request back."""
        async for request in requests:
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
