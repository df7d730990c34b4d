"""The behaviour of ngh2 on which the transport h2 depends, so that another version of it is noticed."""

from typing import Any

import pytest

from ortoo.common.grpc.h2 import engine
from ortoo.common.grpc.h2.limits import CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, STREAM_WINDOW_BYTES, WireLimits

REQUEST = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/s/M"),
    (b":authority", b"x"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
)


class Pair:
    """A server and a client that exchange bytes in memory."""

    def __init__(self, limits: WireLimits | None = None) -> None:
        limits = limits or WireLimits()
        self.server = limits.connection()
        self.client = engine.Connection(engine.Role.CLIENT)
        self.server.initiate_connection(limits.settings())
        self.server.set_local_window_size(CONNECTION_WINDOW_BYTES)
        self.client.initiate_connection({})
        self.exchange()

    def exchange(self) -> tuple[list[Any], list[Any]]:
        """The events of the server and of the client until both are silent."""
        found: tuple[list[Any], list[Any]] = ([], [])
        while True:
            down, up = self.server.data_to_send(), self.client.data_to_send()
            if down:
                self.client.receive_data(down)
            if up:
                self.server.receive_data(up)
            found[0].extend(self.server.events())
            found[1].extend(self.client.events())
            if not down and not up:
                return found


def kinds(events: list[Any]) -> list[str]:
    return [type(one).__name__ for one in events]


def test_a_stream_is_closed_when_both_directions_are_written() -> None:
    """The event comes with the bytes of the last frame, so that a call ends then."""
    pair = Pair()
    stream = pair.client.send_request(REQUEST)
    pair.client.send_data(stream, b"request", end_stream=True)
    assert kinds(pair.exchange()[0]) == ["RequestReceived", "DataReceived"]
    pair.server.send_response(stream, ((b":status", b"200"),))
    pair.server.send_data(stream, b"answer")
    pair.server.send_trailers(stream, ((b"grpc-status", b"0"),))
    assert pair.server.queued_body_size(stream) == len(b"answer")
    server, client = pair.exchange()
    assert kinds(server) == ["StreamClosed"]
    assert kinds(client) == ["ResponseReceived", "DataReceived", "TrailersReceived", "StreamClosed"]


def test_windows_open_only_by_acknowledged_data() -> None:
    """A peer cannot send more than the window before its data are read, and continues afterwards."""
    pair = Pair()
    stream = pair.client.send_request(REQUEST)
    size = STREAM_WINDOW_BYTES + 10
    pair.client.send_data(stream, bytes(size), end_stream=True)
    data = [one for one in pair.exchange()[0] if type(one) is engine.DataReceived]
    received = sum(len(one.data) for one in data)
    assert received == STREAM_WINDOW_BYTES
    assert max(len(one.data) for one in data) <= FRAME_BYTES_MAX
    pair.server.acknowledge_received_data(received, stream)
    assert sum(len(one.data) for one in pair.exchange()[0] if type(one) is engine.DataReceived) == 10


def test_a_reset_drops_queued_answers() -> None:
    """A status must therefore be sent before its stream is reset."""
    pair = Pair()
    stream = pair.client.send_request(REQUEST)
    pair.exchange()
    pair.server.send_response(stream, ((b":status", b"200"),), end_stream=True)
    pair.server.reset_stream(stream, 0)
    assert "ResponseReceived" not in kinds(pair.exchange()[1])


def test_too_many_streams_are_refused() -> None:
    """Also before the peer has acknowledged the limit."""
    limits = WireLimits(streams_max=2)
    server, client = limits.connection(), engine.Connection(engine.Role.CLIENT)
    server.initiate_connection(limits.settings())
    client.initiate_connection({})
    for _ in range(4):
        client.send_request(REQUEST)
    server.receive_data(client.data_to_send())
    assert kinds(server.events()).count("RequestReceived") == 2


def test_too_long_headers_and_too_many_resets_end_the_connection() -> None:
    """The first as an error, the second as an event with a known code."""
    pair = Pair(WireLimits(header_bytes_max=1_000))
    pair.client.send_request((*REQUEST, (b"x", b"a" * 3_000)))
    with pytest.raises(engine.DenialOfServiceError):
        pair.exchange()
    pair = Pair()
    closed: list[Any] = []
    while not closed:
        frames = b""
        for _ in range(50):
            stream = pair.client.send_request(REQUEST)
            frames += pair.client.data_to_send()
            pair.client.reset_stream(stream)
            frames += pair.client.data_to_send()
        pair.server.receive_data(frames)
        events = pair.server.events()
        pair.server.data_to_send()
        events += pair.server.events()
        closed = [one for one in events if type(one) is engine.ConnectionClosed]
    assert closed[0].error_code == engine.RATE_EXCEEDED


def test_a_graceful_end_has_two_steps() -> None:
    """The first keeps new streams allowed, and the second names the last one."""
    pair = Pair()
    pair.client.send_request(REQUEST)
    pair.exchange()
    pair.server.send_shutdown_notice()
    pair.server.ping(b"12345678")
    server, client = pair.exchange()
    assert kinds(server) == ["PingAcknowledged"]
    [goaway] = [one for one in client if type(one).__name__ == "GoAwayReceived"]
    assert goaway.last_stream_id == (1 << 31) - 1
    pair.server.send_goaway(0)
    [goaway] = [one for one in pair.exchange()[1] if type(one).__name__ == "GoAwayReceived"]
    assert goaway.last_stream_id == 1
