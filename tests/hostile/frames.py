"""Any bytes to both ends of a connection of the transport h2, without sockets; a defect of an end is an error here."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from ortoo.common.grpc.h2.client.call import H2StreamCall
from ortoo.common.grpc.h2.client.connection import H2ClientConnection
from ortoo.common.grpc.h2.connection import H2Connection
from ortoo.common.grpc.h2.limits import WireLimits
from ortoo.common.grpc.h2.ports import Port
from ortoo.common.grpc.h2.server import H2Server
from ortoo.common.grpc.layers.coding import Decoding, Encoding
from ortoo.common.grpc.layers.error_translation import ErrorTranslation
from ortoo.common.grpc.layers.layer import Layers
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.containment import CONTAINED_FAILURES

SERVICE = "test.Frames"
PATHS = tuple(f"/{SERVICE}/{name}" for name in ("One", "Many", "Take", "Both"))
"""A method of each kind of call."""
PIECES = 3
"""The number of parts in which the bytes arrive."""
ITERATIONS = 6
"""The iterations of the event loop after each part, in which handlers run."""


class Socket:
    """Takes all that is written before its end, and ends its connection when it is aborted."""

    def __init__(self) -> None:
        self.is_open = True
        self.is_ended = False
        self.written_bytes = 0

    def get_extra_info(self, name: str) -> Any:
        """The address of the peer; the connection has no TLS."""
        return ("127.0.0.1", 4711) if name == "peername" else None

    def write(self, data: bytes) -> None:
        """Count the bytes. Errors: RuntimeError after the end, as with sockets."""
        if self.is_ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        self.written_bytes += len(data)

    def write_eof(self) -> None:
        """Take the end."""
        self.is_ended = True

    def pause_reading(self) -> None:
        """Nothing is read."""

    def resume_reading(self) -> None:
        """Nothing is read."""

    def abort(self) -> None:
        """End the connection."""
        self.is_open = False


async def one(request: bytes, context: Any) -> bytes:
    return request


async def many(request: bytes, context: Any) -> AsyncIterator[bytes]:
    for _ in range(3):
        yield request


async def take(requests: AsyncIterator[bytes], context: Any) -> bytes:
    return b"".join([request async for request in requests])


async def both(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


async def to_server(data: bytes) -> None:
    """Let a server read these bytes, then end the connection. Errors: AssertionError if it has a defect."""
    server = H2Server([Layers([ErrorTranslation(), Encoding(), Decoding()])])
    handlers: dict[str, Any] = {
        "One": grpc.unary_unary_rpc_method_handler(one),
        "Many": grpc.unary_stream_rpc_method_handler(many),
        "Take": grpc.stream_unary_rpc_method_handler(take),
        "Both": grpc.stream_stream_rpc_method_handler(both),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    connection = H2Connection(server, Port([], None))
    await _receive(connection, data)
    assert not server.connections


async def to_client(data: bytes) -> None:
    """Let a client with an open call read these bytes. Errors: AssertionError if it has a defect."""
    connection = H2ClientConnection(WireLimits(), "localhost", lambda _: None)
    call = H2StreamCall(PATHS[3], (), bytes, bytes)
    await _receive(connection, data, call)
    assert call.done()


async def _receive(connection: Any, data: bytes, call: H2StreamCall | None = None) -> None:
    before, socket = CONTAINED_FAILURES.total(), Socket()
    connection.connection_made(socket)
    if call is not None:
        connection.open(call)
        call.write_now(b"request")
    size = len(data) // PIECES + 1
    while data and socket.is_open:
        buffer = connection.get_buffer(-1)
        count = min(size, len(buffer), len(data))
        buffer[:count], data = data[:count], data[count:]
        connection.buffer_updated(count)
        await _turn()
    connection.connection_lost(None)
    await _turn()
    assert not connection.calls
    assert CONTAINED_FAILURES.total() == before


async def _turn() -> None:
    clock = SystemClock()
    for _ in range(ITERATIONS):
        await clock.sleep(0)
