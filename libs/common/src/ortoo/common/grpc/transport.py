"""The factory of channels and servers. They use sockets, unless the task's context has another transport.

A simulation, for example, sets a transport without sockets.
"""

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Protocol

import grpc

Options = Sequence[tuple[str, int]]
"""gRPC's channel arguments; servers take them too."""


class Transport(Protocol):
    """Makes the channels and servers of connections, which behave like those of grpc.aio."""

    has_sockets: bool
    """Whether the connections are sockets of this process."""

    def channel(self, address: str, options: Options) -> grpc.aio.Channel:
        """A channel to host:port; it connects at its first use."""

    def server(self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: Options) -> grpc.aio.Server:
        """A server that does not listen yet; the first interceptor is the outermost."""


class SocketTransport:
    """The transport over sockets."""

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
    """The transport of the current task. Tasks inherit it from the task that spawned them."""
    return _transport.get()


@contextlib.contextmanager
def using_transport(transport: Transport) -> Iterator[None]:
    """Make channels and servers of the block, and of tasks that it spawns, with `transport`."""
    token = _transport.set(transport)
    try:
        yield
    finally:
        _transport.reset(token)
