"""Pings of peers that receive answers: gRPC's core pings to measure the bandwidth, and must not be disconnected."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from ortoo.common.grpc.h2 import engine
from ortoo.common.grpc.h2.server import H2Server
from tests.unit.common.grpc.h2.test_repeated_requests import Arrivals, Client, Service


async def test_a_peer_may_ping_after_each_answer_of_a_stream() -> None:
    """Ten pings within a moment, with two strikes allowed. Without answers the same pings end the connection."""
    asked: asyncio.Queue[None] = asyncio.Queue()

    async def many(request: bytes, context: Any) -> AsyncIterator[bytes]:
        while True:
            await asked.get()
            yield request

    server = H2Server()
    handlers: dict[str, Any] = {"Call": grpc.unary_stream_rpc_method_handler(many)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.Service", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = Client(server, Service(), Arrivals())
    async with asyncio.timeout(60):
        await client.connect(f"127.0.0.1:{port}", {})
        client.begin(b"x")
        client.send()
        for _ in range(10):
            asked.put_nowait(None)
            await client.events(engine.DataReceived)
            client.h2.ping()
            client.send()
            told = await client.events((engine.PingAcknowledged, engine.GoAwayReceived))
            assert not any(isinstance(one, engine.GoAwayReceived) for one in told)
        for _ in range(10):
            client.h2.ping()
        client.send()
        await client.events(engine.GoAwayReceived)
    client.close()
    await server.stop(None)
