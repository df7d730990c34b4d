"""gRPC's framing: messages in any pieces, metadata, timeouts and statuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.grpc.h2.framing import (
    MessageReader,
    MessageTooLarge,
    frame,
    pack,
    read_metadata,
    timeout_s,
    trailers,
    unpack,
    write_metadata,
)


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30), min_size=1))
def test_messages_arrive_in_any_pieces(messages: list[bytes], sizes: list[int]) -> None:
    """However the bytes are cut, the messages are the same, and nothing is kept of complete ones."""
    data, reader, found = b"".join(map(frame, messages)), MessageReader(100), list[bytes]()
    at = 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        found += reader.feed(data[at : at + size])
        at += size
    assert found == messages
    assert reader.partial_bytes == 0


def test_a_large_message_is_refused_at_its_first_bytes() -> None:
    """No byte of it is kept."""
    reader = MessageReader(100)
    assert reader.feed(frame(bytes(100))) == [bytes(100)]
    with pytest.raises(MessageTooLarge) as caught:
        reader.feed(frame(bytes(101))[:5])
    assert caught.value.args == (101,)
    assert reader.partial_bytes == 0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"250m", 0.25), (b"5u", 5e-6), (b"7n", 7e-9)],
)
def test_timeouts(value: bytes, seconds: float) -> None:
    """All six units."""
    assert timeout_s(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", [b"", b"S", b"1", b"1x", b"-1S", b"+1S", b" 1S", b"1_0S", b"\xb2S", b"123456789S", b"1.5S"]
)
def test_an_invalid_timeout(value: bytes) -> None:
    """The specification allows up to eight digits and a unit."""
    assert timeout_s(value) is None


def test_metadata() -> None:
    """Order and repeated keys are kept, binary values are base64, and headers of the protocol are no metadata."""
    metadata = (("k", "1"), ("k", "2"), ("b-bin", b"\0\xff"), ("empty", ""))
    headers = write_metadata(metadata)
    assert headers == ((b"k", b"1"), (b"k", b"2"), (b"b-bin", b"AP8"), (b"empty", b""))
    assert read_metadata(((b":path", b"/a"), (b"te", b"trailers"), (b"grpc-timeout", b"1S"), *headers)) == metadata
    with pytest.raises(ValueError, match="base64"):
        read_metadata(((b"b-bin", b"\xff"),))
    for wrong in (("k-bin", "text"), ("k", 1)):
        with pytest.raises(TypeError, match="must be"):
            write_metadata((wrong,))


def test_statuses() -> None:
    """Details are percent-encoded UTF-8, so that a status is never invalid HTTP/2."""
    assert trailers(0, "", ()) == ((b"grpc-status", b"0"),)
    assert trailers(5, "100 % of é\n", (("k", "v"),)) == (
        (b"grpc-status", b"5"),
        (b"grpc-message", b"100 %25 of %C3%A9%0A"),
        (b"k", b"v"),
    )


@given(
    st.lists(
        st.tuples(st.binary(min_size=1), st.binary()).map(lambda pair: tuple(one.replace(b"\0", b"0") for one in pair)),
        min_size=1,
    )
)
def test_packed_headers_are_the_same_headers(headers: list[tuple[bytes, bytes]]) -> None:
    """Also empty values."""
    assert unpack(pack(tuple(headers))) == tuple(headers)
