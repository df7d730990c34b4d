"""The limits of a server's connections, from gRPC's channel arguments."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

from ortoo.common.grpc.h2 import engine
from ortoo.common.grpc.limits.connection_limits import RESETS_PER_S_MAX, RESETS_TOGETHER_MAX

STREAM_WINDOW_BYTES: Final = 1 << 20
"""Number of bytes that a peer may send on a stream before its handler has read them."""
WINDOW_BYTES_DEFAULT: Final = (1 << 16) - 1
"""The same until the peer has acknowledged the settings, as HTTP/2 defines it."""
CONNECTION_WINDOW_BYTES: Final = 32 << 20
"""The number for all streams of a connection together."""
FRAME_BYTES_MAX: Final = 256 << 10
"""Maximum size of a frame; larger frames need fewer events a message."""
UNSENT_BYTES_MAX: Final = 32 << 10
"""Maximum size of a call's small answers that wait to be sent before the handler has to wait."""
FLUSH_BYTES: Final = 8 << 10
"""After a larger answer the handler waits until at most this size is unsent."""
UNLIMITED: Final = 0x7FFF_FFFF
MESSAGE_BYTES_DEFAULT: Final = 4 << 20
"""gRPC's default limit of received messages."""
HEADER_MARGIN: Final = 2
"""Headers up to this multiple of the limit are read, so that a layer refuses the call. Longer ones end the connection.
"""


@dataclass(frozen=True, slots=True)
class WireLimits:
    """The limits of each connection. A limit of 0 means that there is none."""

    message_bytes_max: int = MESSAGE_BYTES_DEFAULT
    sent_bytes_max: int = UNLIMITED
    header_bytes_max: int = 16 << 10
    streams_max: int = 1_000
    connections_max: int = 0
    reuses_port: bool = True
    set_up_max_s: float = 20.0
    settings_max_s: float = 20.0
    idle_max_s: float = 0.0
    age_max_s: float = 0.0
    keepalive_s: float = 0.0
    keepalive_timeout_s: float = 20.0
    ping_interval_s: float = 300.0
    pings_max: int = 2

    @classmethod
    def of_options(cls, options: Iterable[tuple[str, Any]]) -> Self:
        """The limits in gRPC's channel arguments. Arguments that only grpcio's core has are ignored."""
        given: dict[str, Any] = {}
        for name, value in options:
            if (field := _COUNTS.get(name)) is not None:
                given[field] = UNLIMITED if value < 0 else int(value)
            elif (field := _TIMES_MS.get(name)) is not None:
                given[field] = value / 1000
        given["reuses_port"] = bool(given.get("reuses_port", 1))
        return cls(**given)

    def settings(self) -> dict[int, int]:
        """The settings that the peer is told."""
        setting = engine.Setting
        return {
            setting.MAX_CONCURRENT_STREAMS: self.streams_max,
            setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
            setting.MAX_FRAME_SIZE: FRAME_BYTES_MAX,
            setting.MAX_HEADER_LIST_SIZE: self.header_bytes_max,
        }

    def connection(self) -> Any:
        """The state of a new connection."""
        return engine.Connection(
            engine.Role.SERVER,
            engine.Configuration(
                auto_window_update=False,
                stream_reset_rate_limit=(RESETS_TOGETHER_MAX, RESETS_PER_S_MAX),
                max_inbound_header_list_size=HEADER_MARGIN * self.header_bytes_max,
            ),
        )

    def client_connection(self) -> Any:
        """The state of a new connection to a server."""
        return engine.Connection(
            engine.Role.CLIENT,
            engine.Configuration(
                auto_window_update=False, max_inbound_header_list_size=HEADER_MARGIN * self.header_bytes_max
            ),
        )


_COUNTS: Final = {
    "grpc.max_receive_message_length": "message_bytes_max",
    "grpc.max_send_message_length": "sent_bytes_max",
    "grpc.max_metadata_size": "header_bytes_max",
    "grpc.max_concurrent_streams": "streams_max",
    "grpc.max_allowed_incoming_connections": "connections_max",
    "grpc.so_reuseport": "reuses_port",
    "grpc.http2.max_ping_strikes": "pings_max",
}
_TIMES_MS: Final = {
    "grpc.server_handshake_timeout_ms": "set_up_max_s",
    "grpc.http2.settings_timeout": "settings_max_s",
    "grpc.max_connection_idle_ms": "idle_max_s",
    "grpc.max_connection_age_ms": "age_max_s",
    "grpc.keepalive_time_ms": "keepalive_s",
    "grpc.keepalive_timeout_ms": "keepalive_timeout_s",
    "grpc.http2.min_ping_interval_without_data_ms": "ping_interval_s",
}
