"""Outgoing connections: one channel an address, made when it is first needed."""

from types import TracebackType
from typing import Self

import grpc

from ortoo.common.grpc.header_channel import HeadersOf, with_headers
from ortoo.common.grpc.transport import current_transport

MESSAGE_BYTES_MAX = 8 << 20
"""Largest gRPC message anywhere: a 4 MiB body, its batch and its envelope, with room."""

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A restarted peer is back within a second; the default back-off of up to two minutes would leave us deaf.
    ("grpc.initial_reconnect_backoff_ms", 50),
    # This one is how long an attempt to connect may take, whatever its name says: busy machines need their time.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Every pool has its own connection, so one process may hold several clients that do not share fate.
    ("grpc.use_local_subchannel_pool", 1),
)


class Channels:
    """A pool of channels; leave the block to close them."""

    def __init__(self, headers_of: HeadersOf | None = None, tls: grpc.ChannelCredentials | None = None) -> None:
        """Start empty; `headers_of` makes headers that every call carries, with `tls` TLS is spoken."""
        self._tls = tls
        self._headers_of = headers_of
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    def to(self, address: str) -> grpc.aio.Channel:
        """The channel to host:port; it connects by itself when it is used."""
        channel = self._channels.get(address)
        if channel is None:
            if self._tls is None:
                channel = current_transport().channel(address, OPTIONS)
            else:  # which only sockets speak
                channel = grpc.aio.secure_channel(address, self._tls, options=list(OPTIONS))
            if self._headers_of is not None:
                channel = with_headers(channel, self._headers_of)
            self._channels[address] = channel
        return channel

    async def drop(self, address: str) -> None:
        """Close the channel to an address that is not used any more."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            await channel.close()
