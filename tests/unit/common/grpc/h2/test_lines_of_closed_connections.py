"""An operator finds the address of a peer in the log if the transport h2 has broken its connection."""

from collections.abc import Callable
from functools import partial

import pytest
import structlog

from ortoo.common.grpc.h2.limits import HEADER_MARGIN
from ortoo.common.grpc.layers.call_memory import HEADER_BYTES_MAX
from ortoo.common.grpc.limits.broken_connections import BrokenConnections
from ortoo.common.grpc.limits.connection_limits import ADDRESSES_LOGGED
from ortoo.common.grpc.server import PING_STRIKES_MAX
from ortoo.common.grpc.transport import H2
from ortoo.common.logs.rate_limit import LOG_INTERVAL_S
from ortoo.verification.time.virtual_clock import VirtualClock
from tests.hostile.floods import CHECK
from tests.hostile.http2 import CANCELLED, PING, RST_STREAM, Stranger, frame, headers, opening
from tests.unit.common.grpc.test_server_limits import served

LONG_HEADERS = headers(CHECK, ("x-a", "a" * (HEADER_MARGIN * HEADER_BYTES_MAX + 1)))


def pings(stranger: Stranger) -> list[bytes]:
    """Many pings without data."""
    return [frame(PING, 0, 0, b"12345678")] * 2 * PING_STRIKES_MAX


def long_headers(stranger: Stranger) -> list[bytes]:
    """Headers that no layer reads."""
    return [opening(stream, LONG_HEADERS) for stream in stranger.streams(1)]


def resets(stranger: Stranger) -> list[bytes]:
    """Streams that are reset before their requests."""
    reset = partial(frame, RST_STREAM, 0)
    return [opening(stream, headers(CHECK)) + reset(stream, CANCELLED) for stream in stranger.streams(200)]


@pytest.mark.parametrize(
    ("flood", "reason", "event"),
    [
        (pings, "pings", "connections_closed_rapid_pings"),
        (long_headers, "headers", "connections_closed_long_headers"),
        (resets, "resets", "connections_closed_rapid_reset"),
    ],
)
async def test_a_line_has_the_address_of_the_peer(
    flood: Callable[[Stranger], list[bytes]], reason: str, event: str
) -> None:
    """It is written when the connection is broken, which is counted once."""
    with structlog.testing.capture_logs() as lines:
        async with served(wire=H2) as server:
            while not server.ended_connections()[reason]:
                stranger = await Stranger.connect(server.address)
                while stranger.is_open and not server.ended_connections()[reason]:
                    await stranger.send(*flood(stranger))
                await stranger.close()
            assert server.ended_connections()[reason] == 1
    [line] = [one for one in lines if one["event"] == event]
    assert (line["connections"], line["since_start"], line["addresses"]) == (1, 1, ["127.0.0.1"])


def test_a_line_has_all_connections_since_the_previous_one() -> None:
    """Peers that reconnect cannot fill the log, and each reason has its own lines."""
    clock = VirtualClock()
    broken = BrokenConnections(clock)
    with structlog.testing.capture_logs() as lines:
        for at in range(10):
            broken.add("resets", f"ipv4:10.0.0.{at}:4711")
        broken.add("pings", "ipv6:%5B::1%5D:4711")
        clock.advance(LOG_INTERVAL_S)
        broken.add("resets", "ipv4:10.0.0.1:4712")
        clock.advance(LOG_INTERVAL_S)
        broken.add("resets", "ipv4:10.0.0.77:4711")
    found = [(one["event"], one["connections"], one["since_start"], one["addresses"]) for one in lines]
    assert found == [
        ("connections_closed_rapid_reset", 1, 1, ["10.0.0.0"]),
        ("connections_closed_rapid_pings", 1, 1, ["::1"]),
        ("connections_closed_rapid_reset", 10, 11, [f"10.0.0.{at}" for at in range(1, 1 + ADDRESSES_LOGGED)]),
        ("connections_closed_rapid_reset", 1, 12, ["10.0.0.77"]),
    ]
    assert broken.counts == {"resets": 12, "pings": 1, "headers": 0}
