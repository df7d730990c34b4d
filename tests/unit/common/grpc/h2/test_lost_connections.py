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
