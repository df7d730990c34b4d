"""The factory of channels and servers. They use sockets, unless the task's context has another transport.

A simulation, for example, sets a transport without sockets.
"""

import contextlib
import ssl
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, cast

import grpc

H2 = "h2"
"""The value of the setting `transport` for servers of libnghttp2."""
Options = Sequence[tuple[str, Any]]
"""gRPC's channel arguments; servers take them too."""


class Transport(Protocol):
    """Makes the channels and servers of connections, which behave like those of grpc.aio."""

    has_sockets: bool
    """Whether the connections are sockets of this process."""
    has_core: bool
    """Whether the servers are those of grpcio's core."""

    def on_wire(self, wire: str) -> "Transport":
        """The same transport with servers and streams of `wire`, "grpc" or "h2", if it has a choice."""

    def channel(self, address: str, options: Options) -> grpc.aio.Channel:
        """A channel to host:port; it connects at its first use."""

    def with_streams(
        self, channel: grpc.aio.Channel, address: str, options: Options, tls: ssl.SSLContext | None = None
    ) -> grpc.aio.Channel:
        """The same channel to host:port for callers that use streams in both directions as `H2StreamCall` allows.

        `tls` is the context of the channel's connections for transports of Python; None = they use no TLS.
        """

    def server(self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: Options) -> grpc.aio.Server:
        """A server that does not listen yet; the first interceptor is the outermost."""


class SocketTransport:
    """The transport over sockets by grpc.aio."""

    has_sockets = True
    has_core = True

    def on_wire(self, wire: str) -> Transport:
        """The same transport, or that of libnghttp2 if it is wanted and its package is installed."""
        from ortoo.common.grpc.h2 import engine  # only this transport needs the package

        return H2Transport() if wire == H2 and engine.IS_AVAILABLE else self

    def channel(self, address: str, options: Options) -> grpc.aio.Channel:
        """A channel without TLS."""
        return grpc.aio.insecure_channel(address, options=list(options))

    def with_streams(
        self, channel: grpc.aio.Channel, address: str, options: Options, tls: ssl.SSLContext | None = None
    ) -> grpc.aio.Channel:
        """Returns `channel`."""
        return channel

    def server(self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: Options) -> grpc.aio.Server:
        """A server of the running event loop."""
        return grpc.aio.server(interceptors=list(interceptors), options=list(options))


class H2Transport(SocketTransport):
    """The transport over sockets whose servers, and streams between processes, read and write by libnghttp2.

    All other calls are those of grpc.aio.
    """

    has_core = False

    def on_wire(self, wire: str) -> Transport:
        """Returns itself."""
        return self

    def with_streams(
        self, channel: grpc.aio.Channel, address: str, options: Options, tls: ssl.SSLContext | None = None
    ) -> grpc.aio.Channel:
        """A channel whose streams in both directions have their own connection."""
        from ortoo.common.grpc.h2.client.channel import H2Channel

        return cast("grpc.aio.Channel", H2Channel(address, options, channel, tls))

    def server(self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: Options) -> grpc.aio.Server:
        """A server of the running event loop."""
        from ortoo.common.grpc.h2.server import H2Server  # its layers import this module

        return H2Server(interceptors, options)


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
