"""The frame: a batch or a record of the state as it lies in the log. docs/formats/log.md shows this table."""

import enum
import struct
from typing import NamedTuple

from ortoo.common.errors import Unsupported
from ortoo.common.records.sealed_batch import crc32c

MAGIC = int.from_bytes(b"ORTO", "little")
MAGIC_BYTES = b"ORTO"
VERSION = 1
ALIGNMENT_BYTES = 64

FIELDS: tuple[tuple[str, str, str], ...] = (
    ("magic", "I", "the letters ORTO"),
    ("version", "H", "of this header; a reader that does not know it calls the frame unsupported, not damaged"),
    ("kind", "B", "1 messages, 2 state, 3 checkpoint, 4 mark"),
    ("codec", "B", "of the whole payload; 0 = none (bodies inside a batch have their own)"),
    ("position", "Q", "of this frame in the log; a frame that lies elsewhere is stale"),
    ("durable_below", "Q", "every byte of the log before this position was on disk when the frame was written"),
    ("leader_epoch", "Q", "reign of the leader that wrote it; 0 without replication"),
    ("store_open", "I", "counts the openings of the store; never falls along the log"),
    ("flags", "I", "bit 0 last frame of its segment, bit 1 first frame after an opening, bit 2 clean stop"),
    ("length", "I", "bytes of payload"),
    ("prefix_length", "I", "bytes of state changes between header and payload that happen together with it"),
    ("payload_crc", "I", "CRC-32C of the payload; for messages the producer's own"),
    ("prefix_crc", "I", "CRC-32C of the prefix; 0 without one"),
    ("topic_id", "Q", "of a messages frame, else 0"),
    ("queue_id", "I", "of a messages frame, else 0"),
    ("item_count", "I", "messages in the payload; state changes in a state frame"),
    ("first_offset", "q", "offset of the first message"),
    ("stored_at_ms", "q", "wall clock, but never smaller than that of the frame before"),
    ("producer_id", "Q", "0 = not idempotent"),
    ("first_sequence", "Q", "how many messages the producer sent to this queue before"),
    ("min_deliver_at_ms", "q", "0 = at once"),
    ("max_deliver_at_ms", "q", "0 = at once"),
    ("inflated_bytes", "I", "bodies after decompression"),
    ("header_crc", "I", "CRC-32C of the 124 bytes before"),
)
"""The header's fields in order: name, `struct` code, meaning. Little-endian, no padding."""

HEADER = struct.Struct("<" + "".join(code for _, code, _ in FIELDS))
HEADER_BYTES = HEADER.size
_CHECKED_BYTES = HEADER_BYTES - 4
_DURABLE_BELOW = struct.Struct("<Q")
_DURABLE_BELOW_AT = 16

PAYLOAD_BYTES_MAX = 16 << 20
"""A longer payload is not believed, whatever the header's CRC says."""


class Kind(enum.IntEnum):
    """What a frame is."""

    MESSAGES = 1
    STATE = 2
    CHECKPOINT = 3
    MARK = 4


class Flag(enum.IntFlag):
    """What else a frame says. A reader refuses a set bit it does not know."""

    SEGMENT_END = 1
    OPENED = 2
    CLOSED = 4


_KINDS = frozenset(int(kind) for kind in Kind)
_FLAGS_UNKNOWN = ~int(Flag.SEGMENT_END | Flag.OPENED | Flag.CLOSED)

PADDING = tuple(bytes(length) for length in range(ALIGNMENT_BYTES))


class FrameHeader(NamedTuple):
    """The header's fields; see `FIELDS`."""

    magic: int
    version: int
    kind: int
    codec: int
    position: int
    durable_below: int
    leader_epoch: int
    store_open: int
    flags: int
    length: int
    prefix_length: int
    payload_crc: int
    prefix_crc: int
    topic_id: int
    queue_id: int
    item_count: int
    first_offset: int
    stored_at_ms: int
    producer_id: int
    first_sequence: int
    min_deliver_at_ms: int
    max_deliver_at_ms: int
    inflated_bytes: int
    header_crc: int

    @property
    def frame_bytes(self) -> int:
        """Bytes from this frame's start to the next one's."""
        return frame_bytes(self.prefix_length + self.length)

    @property
    def end_position(self) -> int:
        """Where the next frame starts."""
        return self.position + frame_bytes(self.prefix_length + self.length)

    @property
    def end_offset(self) -> int:
        """The offset after the last message."""
        return self.first_offset + self.item_count

    def encoded(self) -> bytes:
        """The header's bytes, with its CRC made anew."""
        checked = HEADER.pack(*self)[:_CHECKED_BYTES]
        return checked + crc32c(checked).to_bytes(4, "little")


def frame_bytes(payload_bytes: int) -> int:
    """How much of the log a frame takes with so many bytes of prefix and payload."""
    return (HEADER_BYTES + payload_bytes + ALIGNMENT_BYTES - 1) // ALIGNMENT_BYTES * ALIGNMENT_BYTES


def new_header(
    kind: int,
    position: int,
    *,
    durable_below: int,
    store_open: int,
    stored_at_ms: int,
    leader_epoch: int = 0,
    flags: int = 0,
    length: int = 0,
    prefix_length: int = 0,
    payload_crc: int = 0,
    prefix_crc: int = 0,
    topic_id: int = 0,
    queue_id: int = 0,
    item_count: int = 0,
    first_offset: int = 0,
    producer_id: int = 0,
    first_sequence: int = 0,
    min_deliver_at_ms: int = 0,
    max_deliver_at_ms: int = 0,
    inflated_bytes: int = 0,
) -> FrameHeader:
    """A header of the current version; `encoded` gives it its CRC."""
    return FrameHeader(
        MAGIC, VERSION, kind, 0, position, durable_below, leader_epoch, store_open, flags, length, prefix_length,
        payload_crc, prefix_crc, topic_id, queue_id, item_count, first_offset, stored_at_ms, producer_id,
        first_sequence, min_deliver_at_ms, max_deliver_at_ms, inflated_bytes, 0,
    )  # fmt: skip


def with_durable_below(encoded: bytes, durable_below: int) -> bytes:
    """The same encoded header with another `durable_below`."""
    checked = (
        encoded[:_DURABLE_BELOW_AT]
        + _DURABLE_BELOW.pack(durable_below)
        + encoded[_DURABLE_BELOW_AT + 8 : _CHECKED_BYTES]
    )
    return checked + crc32c(checked).to_bytes(4, "little")


class BadHeader(ValueError):
    """These bytes are not the header of a frame at this position; the message says why."""


def decode_header(data: bytes, position: int) -> FrameHeader:
    """Read the header that should lie at `position` of the log; `data` begins with it.

    Errors: BadHeader when the bytes are something else, damaged or stale; Unsupported when they are whole, but of a
    version, kind or flag that this process does not know.
    """
    if len(data) < HEADER_BYTES:
        raise BadHeader(f"only {len(data)} bytes are left, a header has {HEADER_BYTES}")
    header = FrameHeader._make(HEADER.unpack_from(data))
    if header.magic != MAGIC:
        raise BadHeader("zeros" if not any(data[:HEADER_BYTES]) else "no magic number")
    if crc32c(data[:_CHECKED_BYTES]) != header.header_crc:
        raise BadHeader("the header's CRC does not match")
    if header.position != position:
        raise BadHeader(f"the frame says it lies at {header.position}: stale bytes")
    if header.version != VERSION or header.kind not in _KINDS or header.flags & _FLAGS_UNKNOWN or header.codec:
        raise Unsupported(
            f"frame at position {position}: version {header.version}, kind {header.kind}, codec {header.codec}, flags "
            f"{header.flags:#x}; this process knows version {VERSION}: upgrade it"
        )
    if header.prefix_length + header.length > PAYLOAD_BYTES_MAX:
        raise BadHeader(f"{header.length} bytes of payload, more than a frame may have")
    return header


def body_problem(header: FrameHeader, body: bytes) -> str:
    """Why `body` (prefix and payload) is not what the header promises; empty when it is."""
    if len(body) != header.prefix_length + header.length:
        return f"{len(body)} of {header.prefix_length + header.length} bytes are there"
    if header.prefix_length and crc32c(body[: header.prefix_length]) != header.prefix_crc:
        return "the CRC of the state changes does not match"
    payload = body[header.prefix_length :] if header.prefix_length else body
    if crc32c(payload) != header.payload_crc:
        return "the CRC of the payload does not match"
    return ""
