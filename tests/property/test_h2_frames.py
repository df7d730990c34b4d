"""Both ends of a connection of the transport h2 take any frames: no defect, and no call that remains."""

import asyncio

from hypothesis import example, given
from hypothesis import strategies as st

from tests.hostile.frames import PATHS, to_client, to_server
from tests.hostile.http2 import (
    CONTINUATION,
    DATA,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    headers,
    message,
    opening,
)

KINDS = (DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION, 2, 5, 99)
STREAMS = st.sampled_from((0, 1, 3, 5, 2))
SIZES = {RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4, GOAWAY: 8, SETTINGS: 6}
"""Frames whose payload has a fixed size get it often, or libnghttp2 ends the connection at once."""
RESPONSE = b"\x88\x5f\x10application/grpc"
"""The header block of an answer: the status 200, and the content type."""
STATUS = b"\0\x0bgrpc-status\x010"


@st.composite
def any_frame(draw: st.DrawFn) -> bytes:
    """A frame of any kind."""
    kind = draw(st.sampled_from(KINDS))
    size = SIZES.get(kind)
    payload = draw(st.binary(max_size=40) if size is None else st.binary(min_size=size, max_size=size))
    return frame(kind, draw(st.sampled_from((0, 1, 4, 5, 8, 32))), draw(STREAMS), payload)


@st.composite
def data(draw: st.DrawFn) -> bytes:
    """Messages, or parts of them."""
    body = b"".join(message(draw(st.binary(max_size=20))) for _ in range(draw(st.integers(0, 3))))
    cut = draw(st.integers(0, len(body)))
    return frame(DATA, draw(st.integers(0, 1)), draw(STREAMS), body[:cut])


@st.composite
def call(draw: st.DrawFn) -> bytes:
    """The headers of a call."""
    timeout = draw(st.sampled_from(((), (("grpc-timeout", "1n"),), (("grpc-timeout", "never"),), (("a-bin", "?"),))))
    return opening(draw(STREAMS), headers(draw(st.sampled_from((*PATHS, "/none", ""))), *timeout))


@st.composite
def answer(draw: st.DrawFn) -> bytes:
    """The headers of an answer, or of its end."""
    block = draw(st.sampled_from((RESPONSE, STATUS, RESPONSE + STATUS, b"\0\x0bgrpc-status\x01x", b"\x8d")))
    return frame(HEADERS, draw(st.sampled_from((4, 5))), draw(STREAMS), block)


@given(st.lists(st.one_of(call(), data(), any_frame()), max_size=20))
@example([opening(1, headers(PATHS[1])), frame(DATA, 0, 1, bytes(5))])  # a request without bytes, answered by three
def test_a_server_takes_any_frames(frames: list[bytes]) -> None:
    """Behind the preface of a client."""
    asyncio.run(to_server(PREFACE + frame(SETTINGS, 0, 0) + b"".join(frames)))


@given(st.lists(st.one_of(answer(), data(), any_frame()), max_size=20))
def test_a_client_takes_any_frames(frames: list[bytes]) -> None:
    """Behind the settings of a server."""
    asyncio.run(to_client(frame(SETTINGS, 0, 0) + b"".join(frames)))


@given(st.binary(max_size=200))
def test_both_take_any_bytes(data: bytes) -> None:
    """Those of another protocol, for example."""
    asyncio.run(to_server(data))
    asyncio.run(to_client(data))
