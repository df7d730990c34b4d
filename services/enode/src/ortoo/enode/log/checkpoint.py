"""Checkpoints: the whole state written into the log in slices, so that earlier segments may be deleted."""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ortoo.common.errors import Unsupported
from ortoo.enode.changes.kinds import encode_changes
from ortoo.enode.log.queue_index import SliceLocation

VERSION = 1
_SLICE = struct.Struct("<HHQIIQQ")
SLICE_HEAD_BYTES = _SLICE.size


class CheckpointSlice(NamedTuple):
    """The part of a checkpoint that one frame holds."""

    checkpoint_id: int
    """The position at which the checkpoint began."""
    number: int
    total: int
    """The number of slices in the last slice; 0 in all others."""
    fold_from: int
    """The position from which later frames must be folded; no slice is older."""
    as_of: int
    """The position up to which this slice's part of the state is folded."""
    changes: bytes
    """Encoded as in a state frame."""

    def encoded(self) -> bytes:
        """The payload of the frame."""
        return _SLICE.pack(VERSION, 0, *self[:-1]) + self.changes

    def at(self, position: int) -> SliceLocation:
        """The queue index's entry for this slice, which is stored at `position`."""
        return SliceLocation(position, self.checkpoint_id, self.number, self.total, self.fold_from)


def decode_slice(payload: bytes) -> CheckpointSlice:
    """Read one slice. Errors: Unsupported when the slice has a newer version."""
    version, _, *numbers = _SLICE.unpack_from(payload)
    if version != VERSION:
        raise Unsupported(f"checkpoint of version {version}; this process supports {VERSION}: upgrade it")
    return CheckpointSlice._make((*numbers, payload[_SLICE.size :]))


def split_slices(encoded: Iterable[bytes], slice_bytes: int) -> Iterator[tuple[bytes, bool]]:
    """Gather encoded changes into payloads of about `slice_bytes`; yields each payload and whether it is the last.

    Changes are drawn lazily: a slice is encoded only after the previous one was taken.
    """
    part: list[bytes] = []
    size = 0
    for one in encoded:
        if part and size + len(one) > slice_bytes:
            yield encode_changes(part), False
            part, size = [], 0
        part.append(one)
        size += len(one)
    yield encode_changes(part), True


def complete_checkpoints(slices: Iterable[SliceLocation]) -> list[tuple[SliceLocation, ...]]:
    """The slices of each complete checkpoint, in order; the newest checkpoint first."""
    found: dict[int, dict[int, SliceLocation]] = {}
    for one in slices:
        found.setdefault(one.checkpoint_id, {})[one.number] = one
    complete = []
    for checkpoint_id in sorted(found, reverse=True):
        parts = found[checkpoint_id]
        last = max(parts)
        if parts[last].total == last + 1 == len(parts):
            complete.append(tuple(parts[number] for number in range(last + 1)))
    return complete
