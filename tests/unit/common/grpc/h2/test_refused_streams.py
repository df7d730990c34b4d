"""The status of a stream that is refused at once waits for the first request, which its caller is about to write."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from ortoo.common.errors import Forbidden
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.transport import H2
from tests.hostile.http2 import HEADERS, Stranger, headers, message, opening, request

PATH, EXPLAINED = "/test.Refusing/Stream", "/test.Refusing/Explained"
CALLS = 100


async def refuse(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    raise Forbidden("no")
    yield b""


async def refuse_with_answer(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    await context.send_initial_metadata(())
    yield b"no"
    raise Forbidden("no")


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """A server that refuses every stream."""

    def add(to: Any) -> None:
        handlers: dict[str, Any] = {
            "Stream": grpc.stream_stream_rpc_method_handler(refuse),
            "Explained": grpc.stream_stream_rpc_method_handler(refuse_with_answer),
        }
        to.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Refusing", handlers),))

    async with asyncio.timeout(60), GrpcServer("127.0.0.1:0", [("test.Refusing", add)], wire=H2) as server:
        yield server.address


@pytest.mark.parametrize("path", [PATH, EXPLAINED])
async def test_the_caller_gets_the_reason_although_it_writes(address: str, path: str) -> None:
    """A status that came before the first write would make that write fail, and grpc.aio would report INTERNAL."""

    async def one() -> AsyncIterator[bytes]:
        yield bytes(100_000)

    async with grpc.aio.insecure_channel(address) as channel:
        codes = []
        for _ in range(CALLS):
            requests: Any = one()
            call: Any = channel.stream_stream(path)(requests)
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call.read()
                await call.read()
            codes.append(await call.code())
    assert set(codes) == {grpc.StatusCode.PERMISSION_DENIED}


async def test_a_caller_that_writes_nothing_gets_it_soon(address: str) -> None:
    """It may wait for an answer before its first request."""
    async with grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.stream_stream(PATH)()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    stranger = await Stranger.connect(address)
    for stream in stranger.streams(2):
        before = stranger.frames[HEADERS]
        await stranger.send(opening(stream, headers(PATH)), request(stream, message(b"")) if stream > 1 else b"")
        while stranger.frames[HEADERS] == before:
            await asyncio.get_running_loop().create_task(stranger.send())
    await stranger.close()
