"""Outgoing connections: one channel per address, made when it is first needed, and the headers of its calls."""

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

import grpc

from ortoo.common.cluster.addresses import is_loopback
from ortoo.common.grpc.tls import Contexts, ReloadingFiles
from ortoo.common.grpc.transport import current_transport
from ortoo.common.machine.forks import mark_channel_opened

Headers = tuple[tuple[str, str], ...]
HeadersOf = Callable[[str, bytes | None], Headers]
"""Makes the headers of a call by its path, "/ortoo.v1.AdminService/ListTopics", and its request; None for a stream."""

MESSAGE_BYTES_MAX = 8 << 20
"""Largest gRPC message anywhere: a 4 MiB body, its batch and its envelope, with a margin."""

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A restarted peer is back within a second; the default back-off of up to two minutes would be much too long.
    ("grpc.initial_reconnect_backoff_ms", 50),
    # Despite its name this is the timeout of an attempt to connect; busy machines need a long one.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Every pool has its own connection, so that several clients in one process fail independently.
    ("grpc.use_local_subchannel_pool", 1),
)


_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class Channels:
    """A pool of channels; leave the block to close them."""

    def __init__(
        self,
        headers_of: HeadersOf | None = None,
        tls: grpc.ChannelCredentials | ReloadingFiles[grpc.ChannelCredentials] | None = None,
        *,
        tls_name: str = "",
        uses_proxy: bool = True,
        wire: str = "",
        proxy: str | None = None,
        contexts: Contexts | None = None,
    ) -> None:
        """Make a pool without channels. `headers_of` makes the headers of every call; with `tls`, channels use TLS.

        `tls_name` is the expected name in peers' certificates; empty = the host in the address. With `uses_proxy`
        connections obey the environment's proxy variables, such as http_proxy, except those to the loopback. The URL
        `proxy` is used instead for all connections; empty = no proxy.

        `wire`, "grpc" or "h2", is the implementation of streams in both directions, for callers that use them as
        `H2StreamCall` allows. With `tls` it needs `contexts` with the same certificates.
        """
        self._wire = wire
        self._tls = tls
        self._tls_name = tls_name
        self._contexts = contexts
        self._headers_of = headers_of
        self._uses_proxy = uses_proxy and proxy != ""
        self._proxy = proxy
        self._channels: dict[str, grpc.aio.Channel | _RenewableChannel] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for address in list(self._channels):
            await self.drop(address)

    def channel_to(self, address: str) -> grpc.aio.Channel:
        """The channel to host:port; it connects at its first use."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._connected(address)
            if self._headers_of is not None or isinstance(self._tls, ReloadingFiles):
                channel = _RenewableChannel(channel, self._headers_of)
            self._channels[address] = channel
        return cast("grpc.aio.Channel", channel)

    def call_blocking(self, address: str, path: str, request: Any, answer: type[Any], *, timeout_s: float) -> Any:
        """One unary call over a connection of its own, for a thread without an event loop. Errors: grpc.RpcError.

        `path` is that of the method, and `answer` the class of the response.
        """
        mark_channel_opened()
        data = request.SerializeToString()
        headers = self._headers_of(path, data) if self._headers_of is not None else ()
        options = self._options(address, tls=self._tls is not None)
        tls = self._credentials
        with (
            grpc.insecure_channel(address, options=options)
            if tls is None
            else grpc.secure_channel(address, tls, options=options)
        ) as channel:
            method = channel.unary_unary(path, request_serializer=bytes, response_deserializer=answer.FromString)
            return method(data, metadata=headers, timeout=timeout_s)

    def _connected(self, address: str) -> grpc.aio.Channel:
        """A new channel, with the newest certificates if it uses TLS; only sockets do."""
        mark_channel_opened()
        credentials, transport = self._credentials, current_transport()
        options = self._options(address, tls=credentials is not None)
        if credentials is None:
            channel = transport.channel(address, options)
        else:
            channel = grpc.aio.secure_channel(address, credentials, options=options)
        if not self._wire:
            return channel
        context = self._contexts.newest() if self._contexts is not None else None
        return transport.on_wire(self._wire).with_streams(channel, address, options, context)

    @property
    def _credentials(self) -> grpc.ChannelCredentials | None:
        return self._tls.value if isinstance(self._tls, ReloadingFiles) else self._tls

    def _options(self, address: str, *, tls: bool = False) -> list[tuple[str, Any]]:
        options: list[tuple[str, Any]] = [*OPTIONS]
        if self._proxy:
            options.append(("grpc.http_proxy", self._proxy))
        elif not self._uses_proxy or is_loopback(address):
            options.append(("grpc.enable_http_proxy", 0))
        if tls and self._tls_name:
            options.append(("grpc.ssl_target_name_override", self._tls_name))
        return options

    async def renew(self) -> None:
        """Use the newest certificates for new calls. Calls that are open now are ended at the next change."""
        if isinstance(self._tls, ReloadingFiles) and self._tls.reload_if_changed():
            for address in list(self._channels):
                if isinstance(channel := self._channels.get(address), _RenewableChannel):
                    await channel.replace(self._connected(address))

    async def drop(self, address: str) -> None:
        """Close the channel to an address that is no longer used."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            await channel.close()


def with_headers(channel: grpc.aio.Channel, headers_of: HeadersOf) -> grpc.aio.Channel:
    """A channel for stubs that adds headers to each call; for a stream, once, when the stream is opened."""
    return cast("grpc.aio.Channel", _RenewableChannel(channel, headers_of))


class _RenewableChannel:
    """Makes calls, with their headers, on the newest channel to a peer."""

    def __init__(self, channel: grpc.aio.Channel, headers_of: HeadersOf | None) -> None:
        self._channel = channel
        self._previous: grpc.aio.Channel | None = None
        self._headers_of = headers_of or (lambda path, request: ())

    def __getattr__(self, name: str) -> Any:
        return partial(self._making, name) if name in _KINDS else getattr(self._channel, name)

    async def replace(self, channel: grpc.aio.Channel) -> None:
        """Make new calls on `channel`. The replaced channel keeps its open calls until the next replacement."""
        former, self._previous, self._channel = self._previous, self._channel, channel
        if former is not None:
            await former.close()

    async def close(self) -> None:
        """Close all channels."""
        for channel in (self._channel, self._previous):
            if channel is not None:
                await channel.close()

    def _making(
        self, kind: str, path: str, request_serializer: Callable[[Any], bytes], *how: Any, **options: Any
    ) -> Callable[..., Any]:
        takes_many = kind.startswith("stream_")
        # The one request is written here, because the headers may cover it.
        write = request_serializer if takes_many else bytes

        def made() -> tuple[grpc.aio.Channel, Any]:
            return self._channel, getattr(self._channel, kind)(path, write, *how, **options)

        on, method = made()

        def call(*requests: Any, metadata: Any = None, **rest: Any) -> Any:
            nonlocal on, method
            if on is not self._channel:
                on, method = made()
            data = None if takes_many else request_serializer(*requests)
            given = requests if data is None else (data,)
            return method(*given, metadata=(*(metadata or ()), *self._headers_of(path, data)), **rest)

        return call
