"""The marker of a clean stop: where the log ends, and the state there, so that the next start need not scan.

It is a cache. Without it, or when the log goes on behind its end, the state is folded from the log.
"""

import struct
from dataclasses import dataclass

from ortoo.common.errors import Unsupported
from ortoo.common.records.sealed_batch import crc32c

FILE_NAME = "clean"
MAGIC = b"ORTC"
VERSION = 1
_HEAD = struct.Struct("<4sHHQIqQQ")


@dataclass(frozen=True, slots=True)
class CleanStop:
    """What a store knew when it was closed."""

    end_position: int
    store_open: int
    stored_at_ms: int
    state: bytes
    """All of it as state changes."""
    active_index: bytes
    """The queue index of the segment that was written to."""

    def encoded(self) -> bytes:
        """The file's bytes."""
        body = (
            _HEAD.pack(
                MAGIC,
                VERSION,
                0,
                self.end_position,
                self.store_open,
                self.stored_at_ms,
                len(self.state),
                len(self.active_index),
            )
            + self.state
            + self.active_index
        )
        return body + crc32c(body).to_bytes(4, "little")


def decode_clean_stop(data: bytes) -> CleanStop | None:
    """Read the marker; None when it is not whole. Errors: Unsupported when it is newer."""
    if len(data) < _HEAD.size + 4 or crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
        return None
    magic, version, _, end_position, store_open, stored_at_ms, state_bytes, index_bytes = _HEAD.unpack_from(data)
    if magic != MAGIC or len(data) != _HEAD.size + state_bytes + index_bytes + 4:
        return None
    if version != VERSION:
        raise Unsupported(f"the marker of a clean stop is of version {version}: upgrade this process")
    at_index = _HEAD.size + state_bytes
    return CleanStop(
        end_position, store_open, stored_at_ms, data[_HEAD.size : at_index], data[at_index : at_index + index_bytes]
    )
