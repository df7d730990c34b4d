"""The frames of answers of the transport h2, as a client sees them that asks for more than others."""

import asyncio
import contextlib
import gzip
import struct
from collections.abc import AsyncIterator
from typing import Any

import grpc

from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.transport import H2
from tests.hostile.http2 import (
    ACK,
    DATA,
    END_STREAM,
    HEADERS,
    LARGEST_WINDOWS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    frame,
    headers,
    message,
    opening,
    request,
)

Frame = tuple[int, int, bytes]
SMALL_WINDOWS = struct.pack(">HI", 4, 10)
"""A setting: every stream may receive 10 bytes."""
BODY = bytes(10_000)


async def echo(data: bytes, context: Any) -> bytes:
    return data


@contextlib.asynccontextmanager
async def answered(settings: bytes, data: bytes, *more: tuple[str, str]) -> AsyncIterator[AsyncIterator[Frame]]:
    """The frames of the stream of one call: kind, flags and content."""

    def add(to: Any) -> None:
        handlers: dict[str, Any] = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
        to.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Answers", handlers),))

    async with asyncio.timeout(60), GrpcServer("127.0.0.1:0", [("test.Answers", add)], wire=H2) as server:
        host, _, port = server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))

        async def frames() -> AsyncIterator[Frame]:
            while True:
                head = await reader.readexactly(9)
                content = await reader.readexactly(int.from_bytes(head[:3], "big"))
                if head[3] == SETTINGS and not head[4] & ACK:
                    writer.write(frame(SETTINGS, ACK, 0))
                if int.from_bytes(head[5:], "big") == 1:
                    yield head[3], head[4], content

        with contextlib.closing(writer):
            call = opening(1, headers("/test.Answers/Echo", *more)) + request(1, data)
            writer.write(PREFACE + frame(SETTINGS, 0, 0, settings) + call)
            yield frames()


async def test_a_caller_that_reads_no_answer_gets_no_status_at_its_deadline() -> None:
    """The status would have to follow the answer, for which the caller has opened no window."""
    seen: list[tuple[int, int]] = []
    async with answered(SMALL_WINDOWS, message(BODY), ("grpc-timeout", "2S")) as frames:
        async for kind, flags, _ in frames:
            seen.append((kind, flags & END_STREAM))
            if kind == RST_STREAM:
                break
    assert seen == [(HEADERS, 0), (DATA, 0), (RST_STREAM, 0)]


async def test_answers_are_not_compressed() -> None:
    """Also if the client compresses its requests and accepts compressed answers."""
    offered = (("grpc-encoding", "gzip"), ("grpc-accept-encoding", "gzip"))
    received = b""
    async with answered(LARGEST_WINDOWS, message(gzip.compress(BODY), is_compressed=True), *offered) as frames:
        async for kind, flags, content in frames:
            received += content if kind == DATA else b""
            if flags & END_STREAM:
                break
    assert received == message(BODY)
