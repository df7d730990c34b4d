"""Streams that begin together, as when a process with many clients restarts, are all served."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from ortoo.common.grpc.h2 import engine
from ortoo.common.grpc.h2.limits import WireLimits
from ortoo.common.grpc.h2.server import H2Server
from ortoo.common.grpc.layers.call_memory import CALL_BYTES, CallMemory
from ortoo.common.grpc.layers.coding import Decoding
from ortoo.common.grpc.layers.layer import Layers
from ortoo.common.grpc.layers.waiting_calls import WAITING_BYTES_MIN
from ortoo.common.process.memory_budget import MemoryBudget

HEADERS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/t.Service/Follow"),
    (b":authority", b"here"),
    (b"content-type", b"application/grpc"),
)
STREAMS = 3 * (WAITING_BYTES_MIN // CALL_BYTES)
"""More than the memory of calls without a request has space for."""


async def follow(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    """Answer before the first request, as Telemetry does."""
    yield b"ready"
    async for request in requests:
        yield request


async def test_streams_whose_headers_come_in_one_read_are_served() -> None:
    """Their handlers are about to begin, and wait for no request. They count in the budget of served calls."""
    budget = MemoryBudget(64 << 20)
    server = H2Server([Layers([CallMemory(budget), Decoding()])])
    handlers: dict[str, Any] = {"Follow": grpc.stream_stream_rpc_method_handler(follow)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.Service", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    h2 = WireLimits().client_connection()
    h2.initiate_connection({})
    answered, refused = set[int](), list[bytes]()
    async with asyncio.timeout(60):
        for _ in range(STREAMS):
            h2.send_request(HEADERS)
        writer.write(h2.data_to_send())
        while len(answered) + len(refused) < STREAMS:
            received = await reader.read(1 << 16)
            if not received:
                break
            h2.receive_data(received)
            for event in h2.events():
                if isinstance(event, engine.DataReceived) and event.data:
                    answered.add(event.stream_id)
                elif isinstance(event, engine.ResponseReceived | engine.TrailersReceived):
                    refused += [value for name, value in event.headers if name == b"grpc-message"]
            if data := h2.data_to_send():
                writer.write(data)
    writer.close()
    await writer.wait_closed()
    await server.stop(None)
    assert (len(answered), refused) == (STREAMS, [])
    assert budget.used_bytes == 0
