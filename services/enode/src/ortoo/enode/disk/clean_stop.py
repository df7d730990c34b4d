"""The marker of a clean stop: the log's end and the state there, so that the next start need not scan.

The marker is a cache. Without it, or if the log has frames behind the recorded end, the state is folded from the log.
"""

from dataclasses import dataclass
from pathlib import Path

from ortoo.enode.disk.atomic_files import DamagedFile, FileHead, read_file, with_crc, without_crc, write_atomically
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import tag_of

FILE_NAME = "clean"
_HEAD = FileHead("marker of a clean stop", b"ORTC", 1, "QIqQQ")


@dataclass(frozen=True, slots=True)
class CleanStop:
    """The position and state of a store when it was closed."""

    end_position: int
    store_open: int
    stored_at_ms: int
    state: bytes
    """The whole state as state changes."""
    active_index: bytes
    """The queue index of the active segment."""

    def encoded(self, tag: int = 0) -> bytes:
        """The file's bytes, with the tag of its folder."""
        head = _HEAD.pack(
            self.end_position, self.store_open, self.stored_at_ms, len(self.state), len(self.active_index), tag=tag
        )
        return with_crc(head + self.state + self.active_index)


def read_clean_stop(disk: Disk, folder: Path, tag: int | None = None) -> CleanStop | None:
    """The marker in a store's folder, if it is whole and belongs to this folder.

    `tag` replaces the tag from the folder's identity. Errors: Unsupported when the marker has a newer version.
    """
    data = read_file(disk, folder / FILE_NAME)
    return decode_clean_stop(data or b"", tag_of(disk, folder) if tag is None else tag)


def decode_clean_stop(data: bytes, tag: int) -> CleanStop | None:
    """The marker in a file's bytes, if it is whole and has the tag; 0 matches each tag. Errors: Unsupported."""
    try:
        body = without_crc(data, "bytes")
        if not _HEAD.is_of(tag, body):
            return None
        end_position, store_open, stored_at_ms, state_bytes, index_bytes = _HEAD.unpack(body)
    except DamagedFile:
        return None
    at_index = _HEAD.size + state_bytes
    if len(body) != at_index + index_bytes:
        return None
    return CleanStop(end_position, store_open, stored_at_ms, body[_HEAD.size : at_index], body[at_index:])


def write_clean_stop(disk: Disk, folder: Path, clean: CleanStop) -> None:
    """Write the marker durably. Errors: OSError."""
    write_atomically(disk, folder / FILE_NAME, clean.encoded(tag_of(disk, folder)))


def remove_clean_stop(disk: Disk, folder: Path) -> None:
    """Remove the marker durably; appends may start only afterwards."""
    if FILE_NAME in disk.list(folder):
        disk.remove(folder / FILE_NAME)
        disk.sync_directory(folder)
