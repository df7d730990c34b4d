"""A bare gRPC server around one servicer, for services outside the cluster."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from ortoo.common.grpc.transport import current_transport


@contextlib.asynccontextmanager
async def serve_servicer(add: Callable[[Any, grpc.aio.Server], object], servicer: object) -> AsyncIterator[str]:
    """Serve while the block is entered; yields host:port. `add` is the generated `add_..._to_server`."""
    server = current_transport().server((), ())
    add(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
