"""The frame header: written bytes are read back, and all others are refused."""

import pytest

from ortoo.common.errors import Unsupported
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.sealed_batch import crc32c
from ortoo.enode.log.frame import (
    ALIGNMENT_BYTES,
    FIELDS,
    HEADER_BYTES,
    MAGIC_BYTES,
    BadFrame,
    FrameHeader,
    FrameKind,
    StaleFrame,
    body_problem,
    decode_header,
    frame_bytes,
    may_resemble_frame,
    with_durable_below,
)


def header(**fields: int) -> FrameHeader:
    """A messages header with a few fields set."""
    return FrameHeader(
        kind=FrameKind.MESSAGES, position=640, durable_below=64, store_open=3, stored_at_ms=1000, **fields
    )


def test_a_header_is_two_cache_lines_and_the_table_names_its_fields() -> None:
    """128 bytes, 64-byte-aligned frames, and the table's names are those of the decoded header."""
    assert HEADER_BYTES == 128
    assert tuple(name for name, _, _ in FIELDS) == FrameHeader._fields
    assert frame_bytes(0) == 128
    assert frame_bytes(1) == 192


def test_what_is_encoded_is_decoded() -> None:
    """Every field survives."""
    first = header(topic_id=2**64 - 1, queue_id=7, first_offset=2**40, item_count=4096, producer_id=5, length=9)
    found = decode_header(first.encoded(), 640)
    assert found._replace(header_crc=0) == first
    assert found.end_offset == 2**40 + 4096
    assert found.end_position == 640 + 192


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    """No single bit can change without the header being refused."""
    encoded = header(topic_id=9).encoded()
    for bit in range(len(encoded) * 8):
        damaged = bytearray(encoded)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadFrame):
            decode_header(bytes(damaged), 640)


def test_a_frame_that_lies_elsewhere_is_stale() -> None:
    """The position in the header protects against stale or copied bytes."""
    with pytest.raises(StaleFrame, match="stale"):
        decode_header(header().encoded(), 704)


def test_a_frame_of_another_position_is_stale_in_every_version() -> None:
    """Old bytes behind the end of a log ask for no upgrade."""
    with pytest.raises(StaleFrame):
        decode_header(header()._replace(version=2).encoded(), 704)


def test_a_newer_version_is_unsupported_and_not_damaged() -> None:
    """A whole frame of an unknown version, kind or flag asks for an upgrade."""
    for change in ({"version": 2}, {"kind": 9}, {"flags": 1 << 20}, {"codec": 1}):
        with pytest.raises(Unsupported):
            decode_header(header()._replace(**change).encoded(), 640)


def test_durable_below_can_be_renewed_without_decoding() -> None:
    """The first frame of a flush has the durable position at the time of its write."""
    renewed = decode_header(with_durable_below(header(topic_id=4).encoded(), 576), 640)
    assert renewed.durable_below == 576
    assert renewed.topic_id == 4


def test_a_body_is_checked_in_both_its_parts() -> None:
    """Prefix and payload each have their own CRC, and a short body is named."""
    body = b"changes" + b"messages"
    good = header(length=8, prefix_length=7, payload_crc=crc32c(b"messages"), prefix_crc=crc32c(b"changes"))
    assert body_problem(good, body) == ""
    assert "state changes" in body_problem(good, b"changed" + b"messages")
    assert "payload" in body_problem(good, b"changes" + b"messagez")
    assert "14 of 15" in body_problem(good, body[:-1])


@pytest.mark.parametrize("place", [0, ALIGNMENT_BYTES, 7 * ALIGNMENT_BYTES])
def test_a_magic_number_where_frames_may_begin_resembles_a_frame(place: int) -> None:
    """The first and the last place count; a magic number that the end of the body cuts is none."""
    body = b"m" * place + MAGIC_BYTES
    assert may_resemble_frame(body)
    assert may_resemble_frame(body + b"m" * 1_000)
    assert not may_resemble_frame(body[:-1])
    assert may_resemble_frame(b"m" * place + header().encoded())


def test_a_magic_number_at_another_place_resembles_no_frame() -> None:
    """No reader of the log looks for a frame there."""
    for place in range(1, ALIGNMENT_BYTES):
        assert not may_resemble_frame(b"m" * place + MAGIC_BYTES + b"m" * ALIGNMENT_BYTES)
    assert not may_resemble_frame(b"")


def test_every_body_is_compared_as_by_a_search_of_all_places() -> None:
    """A simpler search finds the same in bodies of the letters of the magic number."""
    chance = Randomness(1)
    found = 0
    for _ in range(300):
        lines = [bytes(b"ORTm"[chance.below(4)] for _ in range(ALIGNMENT_BYTES)) for _ in range(chance.below(24))]
        body = b"".join((b"", b"OR", b"ORT", MAGIC_BYTES)[chance.below(4)] + line for line in lines)
        places = range(0, len(body), ALIGNMENT_BYTES)
        expected = any(body[at : at + 4] == MAGIC_BYTES for at in places)
        assert may_resemble_frame(body) is expected
        found += expected
    assert 50 < found < 250
