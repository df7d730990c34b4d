"""Changes of segment files at an opening: removes leftovers, rewrites unsynced frames, truncates the log."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from ortoo.common.logs.logger import get_logger
from ortoo.enode import log_events
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.durable_mark import DurableMark, read_committed_mark, read_durable_mark
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.scan import find_stale_frame
from ortoo.enode.log.segment import (
    INDEX_SUFFIX,
    KEYS_SUFFIX,
    SPARE_SUFFIX,
    SUFFIX,
    Segment,
    remove_below,
    segment_bases,
    segment_name,
)

CHUNK_BYTES = 1 << 20
_log = get_logger("store")


def remove_leftovers(disk: Disk, folder: Path, begin_position: int) -> None:
    """Remove leftovers of interrupted work."""
    try:
        remove_below(disk, folder, begin_position)
    except OSError as error:
        _log.emit(log_events.SEGMENT_DELETE_FAILED, reason=str(error))
    names = disk.list(folder)
    segments = {segment_name(base) for base in segment_bases(names)}
    orphans = {
        segment_name(base, suffix)
        for suffix in (INDEX_SUFFIX, KEYS_SUFFIX)
        for base in segment_bases(names, suffix)
        if segment_name(base) not in segments
    }
    left = [name for name in names if name in orphans or name.endswith((SPARE_SUFFIX, ".tmp"))]
    for name in left:
        disk.remove(folder / name)
    if left:
        disk.sync_directory(folder)


def rewrite_unsynced(segment: Segment, position: int, end: int) -> None:
    """Write the bytes from `position` on again, because they are not known to be durable.

    After a failed fdatasync the page cache may show bytes that the disk never got. Only a new write stores them; later
    syncs do not. They were checked frame by frame.
    """
    for at, chunk in _chunks(segment, position, end):
        segment.writer.write(at - segment.base, [chunk])


def zero_behind(segment: Segment, position: int) -> int:
    """Overwrite the bytes behind the log's end with synced zeros, so that they never return.

    Returns their number, without those of the earlier segment that the file may have been.
    """
    cut, is_new, is_zero = 0, True, True
    for at, chunk in _chunks(segment, position, segment.limit):
        if chunk.count(0) != len(chunk):
            segment.writer.write(at - segment.base, [bytes(len(chunk))])
            is_zero = False
            if is_new:
                old_at = find_stale_frame(chunk, at)
                is_new = old_at < 0
                cut += len(chunk) if is_new else old_at - at
    if not is_zero:
        segment.writer.sync_data()
    return cut


def _chunks(segment: Segment, position: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The bytes of a segment between two positions in parts, each with its position."""
    while position < end and (chunk := segment.read(position, min(CHUNK_BYTES, end - position))):
        yield position, chunk
        position += len(chunk)


def truncate_files(disk: Disk, folder: Path, position: int) -> None:
    """Truncate the log at `position` permanently: later segments, last first, then the rest of its own segment."""
    names = disk.list(folder)
    gone = [base for base in segment_bases(names) if base > position]
    for base in reversed(gone):
        _remove(disk, folder, names, base, (KEYS_SUFFIX, INDEX_SUFFIX, SUFFIX))
    for base in segment_bases(names)[-len(gone) - 1 :][:1]:
        with SegmentFiles(disk) as files:
            segment = Segment(files, folder, base, base)
            segment.limit = base + segment.size_bytes()
            if base <= position < segment.limit:
                zero_behind(segment, position)
                _remove(disk, folder, names, base, (KEYS_SUFFIX, INDEX_SUFFIX))
    if read_durable_mark(disk, folder) > position:
        committed = min(position, read_committed_mark(disk, folder))
        with closing(DurableMark(disk, folder)) as mark:
            mark.write(position, committed)
            mark.write(position, committed)  # the higher slot counts, so both must have it
    disk.sync_directory(folder)


def _remove(disk: Disk, folder: Path, names: Sequence[str], base: int, suffixes: Sequence[str]) -> None:
    for name in (segment_name(base, suffix) for suffix in suffixes):
        if name in names:
            disk.remove(folder / name)
