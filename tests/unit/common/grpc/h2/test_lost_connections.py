"""Connections that have ended leave nothing behind."""

import gc
import weakref
from typing import Any

import pytest

from ortoo.common.grpc.h2.connection import H2Connection
from ortoo.common.grpc.h2.ports import Port
from ortoo.common.grpc.h2.server import H2Server
from tests.hostile.frames import Socket


@pytest.mark.parametrize("ends", [lambda one: one.connection_lost(None), lambda one: one.abort()])
async def test_a_lost_connection_is_freed_at_once(ends: Any) -> None:
    """Its timers would otherwise keep its state for ten seconds, which adds up if many peers connect again and again.

    A cycle of references would keep it until the next full garbage collection.
    """
    gc.collect()
    gc.disable()
    try:
        server = H2Server()
        connection = H2Connection(server, Port([], None))
        kept = weakref.ref(connection)
        connection.connection_made(Socket())
        assert list(server.connections) == [connection]
        ends(connection)
        del connection
        assert kept() is None
    finally:
        gc.enable()


async def test_a_closed_connection_writes_nothing() -> None:
    """When its peer reads the last bytes, the socket has space again. A write after the end would be an error."""
    connection, socket = H2Connection(H2Server(), Port([], None)), Socket()
    connection.connection_made(socket)
    connection.pause_writing()
    connection.h2.ping()
    connection.close()
    written_bytes = socket.written_bytes
    connection.resume_writing()
    assert socket.is_ended
    assert socket.written_bytes == written_bytes
    connection.abort()
