"""Pings of peers that receive answers: gRPC's core pings to measure the bandwidth, and must not be disconnected."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from ortoo.common.grpc.h2 import engine
from ortoo.common.grpc.h2.framing import frame
from ortoo.common.grpc.h2.limits import WireLimits
from ortoo.common.grpc.h2.server import H2Server

HEADERS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/t.Service/Many"),
    (b":authority", b"here"),
    (b"content-type", b"application/grpc"),
)


async def test_a_peer_may_ping_after_each_answer_of_a_stream() -> None:
    """Ten pings within a moment, with two strikes allowed. Without answers the same pings end the connection."""
    asked: asyncio.Queue[None] = asyncio.Queue()

    async def many(request: bytes, context: Any) -> AsyncIterator[bytes]:
        while True:
            await asked.get()
            yield request

    server = H2Server()
    handlers: dict[str, Any] = {"Many": grpc.unary_stream_rpc_method_handler(many)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.Service", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    h2 = WireLimits().client_connection()
    h2.initiate_connection({})
    h2.send_data(h2.send_request(HEADERS), frame(b"x"), end_stream=True)

    async def events_until(kind: Any) -> list[Any]:
        found: list[Any] = []
        while not any(isinstance(one, kind) for one in found):
            writer.write(h2.data_to_send())
            h2.receive_data(await reader.read(1 << 16))
            found += h2.events()
        return found

    async with asyncio.timeout(60):
        for _ in range(10):
            asked.put_nowait(None)
            await events_until(engine.DataReceived)
            h2.ping()
            told = await events_until((engine.PingAcknowledged, engine.GoAwayReceived))
            assert not any(isinstance(one, engine.GoAwayReceived) for one in told)
        for _ in range(10):
            h2.ping()
        await events_until(engine.GoAwayReceived)
    writer.close()
    await server.stop(None)
