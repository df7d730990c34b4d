"""Calls of a connection that breaks while its events are handled leave nothing behind."""

from typing import Any

import grpc

from ortoo.common.grpc.h2 import engine
from ortoo.common.grpc.h2.connection import H2Connection
from ortoo.common.grpc.h2.ports import Port
from ortoo.common.grpc.h2.server import H2Server
from ortoo.common.grpc.layers.arrival import Arrival
from ortoo.common.grpc.layers.layer import Layer, Layers

REQUEST = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/t.Service/Call"),
    (b":authority", b"here"),
    (b"content-type", b"application/grpc"),
)


class Socket:
    """Takes what is written."""

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 4711) if name == "peername" else None

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        pass


class Breaking(Layer):
    """Breaks the connection of each call when its headers come, as a limit of memory may do."""

    def __init__(self) -> None:
        self.connection: H2Connection | None = None
        self.open = 0

    def arrive(self, arrival: Arrival) -> None:
        self.open += 1
        arrival.release_callbacks.append(self._released)
        if self.connection is not None:
            self.connection.abort()

    def _released(self) -> None:
        self.open -= 1


async def handle(request: bytes, context: Any) -> bytes:
    return request


def connected(layer: Breaking) -> H2Connection:
    """A connection to a server with this layer."""
    server = H2Server([Layers([layer])])
    handlers: dict[str, Any] = {"Call": grpc.unary_unary_rpc_method_handler(handle)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.Service", handlers),))
    connection = H2Connection(server, Port([], None))
    connection.connection_made(Socket())
    return connection


async def test_no_call_begins_on_a_connection_that_has_just_ended() -> None:
    """Its other events of the same bytes are dropped. Such a call would never end."""
    layer = Breaking()
    connection = connected(layer)
    connection.abort()
    connection._handle([engine.RequestReceived(1, REQUEST, False)])
    assert not connection.calls
    assert layer.open == 0


async def test_a_call_whose_layers_break_its_connection_is_released() -> None:
    """The layers learn that the call has ended, although it had not begun."""
    layer = Breaking()
    layer.connection = connection = connected(layer)
    connection._handle([engine.RequestReceived(1, REQUEST, False), engine.RequestReceived(3, REQUEST, False)])
    assert layer.open == 0
    assert not connection.calls
