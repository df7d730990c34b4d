"""Limits that only the transport h2 enforces exactly, because it sees each frame."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc

from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.transport import H2
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from tests.hostile.floods import CHECK
from tests.hostile.http2 import (
    ACK,
    CANCELLED,
    DATA,
    FRAME_BYTES_MAX,
    LARGEST_WINDOWS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Stranger,
    frame,
    headers,
    message,
    opening,
    request,
)
from tests.unit.common.grpc.test_server_limits import healthy, served, until


async def test_a_request_that_is_not_complete_counts_as_memory() -> None:
    """G17: an attacker could otherwise hold eight megabytes with each call."""
    budget, size_bytes = MemoryBudget(24 << 20), 4 << 20

    async def answer(data: bytes, context: Any) -> bytes:
        return b"%d" % len(data)

    handlers: dict[str, Any] = {"One": grpc.unary_unary_rpc_method_handler(answer)}

    def add(to: Any) -> None:
        to.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("ortoo.v1.Test", handlers),))

    server = GrpcServer("127.0.0.1:0", [("ortoo.v1.Test", add)], memory=budget, wire=H2)
    async with asyncio.timeout(60), server:
        stranger = await Stranger.connect(server.address)
        await stranger.send(frame(PING, 0, 0, b"12345678"))
        await until(lambda: stranger.frames[PING] > 0)  # the server's windows are known
        part = message(bytes(size_bytes))[: size_bytes // 8]  # less than the window of a stream
        for stream in stranger.streams(24):
            frames = [part[at : at + FRAME_BYTES_MAX] for at in range(0, len(part), FRAME_BYTES_MAX)]
            await stranger.send(opening(stream, headers("/ortoo.v1.Test/One")))
            await stranger.send(*(frame(DATA, 0, stream, one) for one in frames))
        await until(lambda: budget.evicted["One"] + budget.refused["One"] > 0)
        assert budget.used_bytes <= budget.bytes_max
        async with grpc.aio.insecure_channel(server.address) as channel:
            calling: Any = channel.unary_unary("/ortoo.v1.Test/One")
            answered = b""
            while not answered:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    answered = await calling(bytes(100_000))
            assert answered == b"100000"
        await stranger.close()
        await until(lambda: not budget.used_bytes)


async def test_a_flood_of_resets_is_ended() -> None:
    """Streams that are reset before their requests have arrived; other connections continue."""
    async with served(wire=H2) as server:
        while not server.ended_connections()["resets"]:
            stranger = await Stranger.connect(server.address)
            block, reset = headers(CHECK), partial(frame, RST_STREAM, 0)
            while stranger.is_open:  # on a slow machine it may give up itself
                await stranger.send(*(opening(one, block) + reset(one, CANCELLED) for one in stranger.streams(200)))
            await stranger.close()
        assert await healthy(server.address)


async def test_refused_calls_of_a_peer_that_does_not_read_write_no_answers() -> None:
    """Each refused call would otherwise move all queued answers of other calls into the memory of the socket."""
    answers = 0

    async def answer(data: bytes, context: Any) -> AsyncIterator[bytes]:
        nonlocal answers
        while True:
            answers += 1
            yield bytes(60_000)

    handlers: dict[str, Any] = {"Many": grpc.unary_stream_rpc_method_handler(answer)}

    def add(to: Any) -> None:
        to.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("ortoo.v1.Test", handlers),))

    server = GrpcServer("127.0.0.1:0", [("ortoo.v1.Test", add)], wire=H2)
    async with asyncio.timeout(60), server:
        host, _, port = server.address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1 << 10)
        window = frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 31) - 1 - 65_535))
        writer.write(PREFACE + frame(SETTINGS, 0, 0, LARGEST_WINDOWS) + frame(SETTINGS, ACK, 0) + window)
        writer.write(opening(1, headers("/ortoo.v1.Test/Many")) + request(1, message(b"")))
        seen, same = -1, 0
        while same < 20:  # until the socket is full: looks after a pause of the machine say nothing
            same = same + 1 if answers == seen != 0 else 0
            seen = answers
            await SystemClock().sleep(0.02)
        for stream in range(3, 203, 2):
            writer.write(opening(stream, headers("/ortoo.v1.Test/Missing")))
            assert await healthy(server.address)  # the server has read it
        assert answers <= seen + 10
        writer.transport.abort()
