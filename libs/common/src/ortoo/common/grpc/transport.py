"""Where channels and servers come from: real ones on sockets, unless the task's context says otherwise."""

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Protocol

import grpc

Options = Sequence[tuple[str, int]]
"""What gRPC calls channel arguments; servers take them too."""


class Transport(Protocol):
    """Makes both ends of connections, which then behave as grpc.aio says."""

    has_sockets: bool
    """Whether the connections are sockets of this process."""

    def channel(self, address: str, options: Options) -> grpc.aio.Channel:
        """A channel to host:port; it connects by itself when it is used."""

    def server(self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: Options) -> grpc.aio.Server:
        """A server that listens nowhere yet; of the interceptors the first one is the outermost."""


class SocketTransport:
    """The real one."""

    has_sockets = True

    def channel(self, address: str, options: Options) -> grpc.aio.Channel:
        """A channel without TLS."""
        return grpc.aio.insecure_channel(address, options=list(options))

    def server(self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: Options) -> grpc.aio.Server:
        """A server of the running event loop."""
        return grpc.aio.server(interceptors=list(interceptors), options=list(options))


_SOCKETS = SocketTransport()
_transport: ContextVar[Transport] = ContextVar("transport", default=_SOCKETS)


def current_transport() -> Transport:
    """The transport of whoever calls. Tasks inherit it from the task that spawned them."""
    return _transport.get()


@contextlib.contextmanager
def using_transport(transport: Transport) -> Iterator[None]:
    """Let channels and servers that are made in the block, and by tasks that it spawns, come from `transport`."""
    token = _transport.set(transport)
    try:
        yield
    finally:
        _transport.reset(token)
