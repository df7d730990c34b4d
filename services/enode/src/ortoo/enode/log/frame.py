"""The frame: a batch or state record in the log. docs/formats/log.md shows this table."""

import enum
import struct
import sys
from typing import Annotated, NamedTuple, get_type_hints

from ortoo.common.errors import Unsupported
from ortoo.common.records.sealed_batch import SealedBatch, crc32c

MAGIC = int.from_bytes(b"ORTO", "little")
MAGIC_BYTES = b"ORTO"
VERSION = 1
ALIGNMENT_BYTES = 64

PAYLOAD_BYTES_MAX = 16 << 20
"""A frame with a longer payload is treated as damaged, even if the header's CRC matches."""


class FrameKind(enum.IntEnum):
    """The kind of a frame."""

    MESSAGES = 1
    STATE = 2
    CHECKPOINT = 3
    MARK = 4
    EPOCH = 5
    """A leader's first frame."""
    CONFIGURATION = 6
    """The replicas from this frame on."""
    BEGIN = 7
    """The position below which every replica deletes the log."""


class FrameFlag(enum.IntFlag):
    """Flags of a frame. A reader refuses an unknown set bit."""

    SEGMENT_END = 1
    OPENED = 2
    CLOSED = 4


_KINDS = frozenset(int(kind) for kind in FrameKind)
_FLAGS_UNKNOWN = ~int(FrameFlag.SEGMENT_END | FrameFlag.OPENED | FrameFlag.CLOSED)

PADDING = tuple(bytes(length) for length in range(ALIGNMENT_BYTES))


class FrameHeader(NamedTuple):
    """The header's fields in order, each with its `struct` code and its meaning. Little-endian, no padding."""

    magic: Annotated[int, "I", "the letters ORTO"] = MAGIC
    version: Annotated[
        int,
        "H",
        "version of this header; a reader that does not know the version calls the frame unsupported, not damaged",
    ] = VERSION
    kind: Annotated[int, "B", "1 messages, 2 state, 3 checkpoint, 4 mark, 5 epoch, 6 configuration, 7 begin"] = 0
    codec: Annotated[
        int, "B", "compression of the whole payload; 0 = none (the bodies inside a batch have a codec of their own)"
    ] = 0
    position: Annotated[
        int, "Q", "position of this frame in the log; a frame that lies at another position is stale"
    ] = 0
    durable_below: Annotated[
        int, "Q", "every byte of the log before this position was on disk when the frame was written"
    ] = 0
    leader_epoch: Annotated[
        int, "Q", "epoch of the leader that wrote the frame, 0 before the first EPOCH frame; never falls along the log"
    ] = 0
    store_open: Annotated[int, "I", "counts the openings of the leader's store; never falls within an epoch"] = 0
    flags: Annotated[
        int,
        "I",
        "bit 0 last frame of its segment, bit 1 first frame after an opening (only earlier versions), bit 2 clean stop",
    ] = 0
    length: Annotated[int, "I", "bytes of payload"] = 0
    prefix_length: Annotated[
        int, "I", "bytes of the state changes between header and payload, which are applied together with the payload"
    ] = 0
    payload_crc: Annotated[
        int, "I", "CRC-32C of the payload; in a messages frame the CRC that the producer computed"
    ] = 0
    prefix_crc: Annotated[int, "I", "CRC-32C of the prefix; 0 without a prefix"] = 0
    topic_id: Annotated[int, "Q", "topic of a messages frame; 0 in other frames"] = 0
    queue_id: Annotated[int, "I", "queue of a messages frame; 0 in other frames"] = 0
    item_count: Annotated[
        int, "I", "number of messages in the payload; in a state frame the number of state changes"
    ] = 0
    first_offset: Annotated[int, "q", "offset of the first message"] = 0
    stored_at_ms: Annotated[
        int, "q", "wall-clock time at which the frame was stored, but never smaller than that of the previous frame"
    ] = 0
    producer_id: Annotated[
        int,
        "Q",
        "producer of a messages frame, 0 = not idempotent; in other frames the fingerprint of the log, 0 = unknown",
    ] = 0
    first_sequence: Annotated[int, "Q", "number of messages that the producer sent to this queue before this frame"] = 0
    min_deliver_at_ms: Annotated[int, "q", "earliest due time of the messages; 0 = at once"] = 0
    max_deliver_at_ms: Annotated[int, "q", "latest due time of the messages; 0 = at once"] = 0
    inflated_bytes: Annotated[int, "I", "bytes of the message bodies after decompression"] = 0
    header_crc: Annotated[int, "I", "CRC-32C of the 124 bytes before"] = 0

    @property
    def order(self) -> tuple[int, int]:
        """(epoch, opening), which never decreases along the log; a frame behind a frame of greater order is stale."""
        return self.leader_epoch, self.store_open

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

    def is_of(self, log_mark: int) -> bool:
        """Whether the frame may belong to the log with this fingerprint. 0 matches every fingerprint."""
        return self.kind == FrameKind.MESSAGES or log_mark == 0 or self.producer_id in (0, log_mark)

    def batch(self, records: bytes) -> SealedBatch:
        """The batch of a messages frame, whose payload is `records`."""
        return SealedBatch(
            records, self.payload_crc, self.item_count, self.inflated_bytes, self.producer_id, self.first_sequence
        )

    def encoded(self) -> bytes:
        """The header's bytes, with a new CRC."""
        checked = HEADER.pack(*self)[:_CHECKED_BYTES]
        return checked + crc32c(checked).to_bytes(4, "little")


FIELDS: tuple[tuple[str, str, str], ...] = tuple(
    (name, *hint.__metadata__) for name, hint in get_type_hints(FrameHeader, include_extras=True).items()
)
"""The header's fields in order: name, `struct` code, meaning."""
HEADER = struct.Struct("<" + "".join(code for _, code, _ in FIELDS))
HEADER_BYTES = HEADER.size
_CHECKED_BYTES = HEADER_BYTES - 4
POSITION_AT = 8
"""The place of `position` in a header."""
_DURABLE_BELOW_AT = 16
RESEMBLING_MAX = 256
"""Maximum number of places in a body that are compared with the magic number one after another."""
_NATIVE_MAGIC = int.from_bytes(MAGIC_BYTES, sys.byteorder)


def may_resemble_frame(body: bytes) -> bool:
    """Whether a frame seems to begin inside a body, at a place where frames may begin.

    Clients decide these bytes. If they stay behind the end of a later log, a start must not take them for frames.
    In a body with very many letters O at such places, all places are compared at once, so that no body takes long.
    """
    firsts = body[::ALIGNMENT_BYTES]  # a body begins at a multiple of the alignment, because a header is one
    if firsts.count(MAGIC_BYTES[0]) > RESEMBLING_MAX:
        return _NATIVE_MAGIC in memoryview(body)[: len(body) // 4 * 4].cast("I")[:: ALIGNMENT_BYTES // 4]
    at = firsts.find(MAGIC_BYTES[0])
    while at >= 0:
        if body.startswith(MAGIC_BYTES, at * ALIGNMENT_BYTES):
            return True
        at = firsts.find(MAGIC_BYTES[0], at + 1)
    return False


def frame_bytes(payload_bytes: int) -> int:
    """Bytes of a frame in the log with this number of bytes of prefix and payload."""
    return (HEADER_BYTES + payload_bytes + ALIGNMENT_BYTES - 1) // ALIGNMENT_BYTES * ALIGNMENT_BYTES


def with_durable_below(encoded: bytes, durable_below: int) -> bytes:
    """The header `encoded` with another `durable_below`."""
    at = _DURABLE_BELOW_AT
    checked = encoded[:at] + durable_below.to_bytes(8, "little") + encoded[at + 8 : _CHECKED_BYTES]
    return checked + crc32c(checked).to_bytes(4, "little")


class BadFrame(ValueError):
    """The bytes are not a whole frame of this position; the message has the reason."""

    def __init__(self, reason: str, length_bytes: int = HEADER_BYTES) -> None:
        """`length_bytes` is the apparent number of bad bytes."""
        super().__init__(reason)
        self.length_bytes = length_bytes


class StaleFrame(BadFrame):
    """A whole header of another position."""


def decode_header(data: bytes, position: int) -> FrameHeader:
    """Read the header that should lie at `position` of the log; `data` begins with it.

    Errors: BadFrame when the bytes are not a frame, damaged or stale. Unsupported for a whole frame with a version,
    kind or flag that this process does not support.
    """
    if len(data) < HEADER_BYTES:
        raise BadFrame(f"only {len(data)} bytes are left, a header has {HEADER_BYTES}")
    header = FrameHeader._make(HEADER.unpack_from(data))
    if header.magic != MAGIC:
        raise BadFrame("zeros" if not any(data[:HEADER_BYTES]) else "no magic number")
    if crc32c(data[:_CHECKED_BYTES]) != header.header_crc:
        raise BadFrame("the header's CRC does not match")
    if header.position != position:
        raise StaleFrame(f"the frame says it lies at {header.position}: stale bytes")
    if header.version != VERSION or header.kind not in _KINDS or header.flags & _FLAGS_UNKNOWN or header.codec:
        raise Unsupported(
            f"frame at position {position}: version {header.version}, kind {header.kind}, codec {header.codec}, flags "
            f"{header.flags:#x}; this process supports version {VERSION}: upgrade it"
        )
    if header.prefix_length + header.length > PAYLOAD_BYTES_MAX:
        raise BadFrame(f"{header.length} bytes of payload, more than a frame may have")
    return header


def body_problem(header: FrameHeader, body: bytes | memoryview) -> str:
    """The difference between `body` (prefix and payload) and the header's lengths and CRCs; empty if they match."""
    if len(body) != header.prefix_length + header.length:
        return f"{len(body)} of {header.prefix_length + header.length} bytes are there"
    if header.prefix_length and crc32c(body[: header.prefix_length]) != header.prefix_crc:
        return "the CRC of the state changes does not match"
    payload = body[header.prefix_length :] if header.prefix_length else body
    if crc32c(payload) != header.payload_crc:
        return "the CRC of the payload does not match"
    return ""
