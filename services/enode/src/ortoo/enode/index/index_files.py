"""The index files of sealed segments: reads and rebuilds them."""

from ortoo.enode.disk.atomic_files import DamagedFile, read_part, write_atomically
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import tag_of
from ortoo.enode.index.catalog import SealedRun
from ortoo.enode.index.survey import survey_sealed
from ortoo.enode.log.queue_index import (
    HEAD_BYTES,
    IndexParts,
    SegmentContents,
    decode_contents,
    decode_rows,
    encode_index,
    tables_bytes,
)
from ortoo.enode.log.rows import IndexRows
from ortoo.enode.log.segment import INDEX_SUFFIX, Segment, segment_name


def read_contents(disk: Disk, segment: Segment, tag: int = 0) -> SegmentContents | None:
    """The tables of a segment's index file; None if it is missing, damaged, or has the tag of another folder.

    Errors: Unsupported.
    """
    path = segment.folder / segment_name(segment.base, INDEX_SUFFIX)
    try:
        length = tables_bytes(read_part(disk, path, 0, HEAD_BYTES))
        return decode_contents(read_part(disk, path, 0, length), segment.base, tag)
    except (FileNotFoundError, DamagedFile):
        return None


def write_index(
    disk: Disk,
    segment: Segment,
    end: int,
    last_stored_at_ms: int,
    parts: IndexParts,
    *,
    write: bool = True,
    tag: int = 0,
) -> SegmentContents:
    """Write the index file of a segment that ends at log position `end`. If `write` is false, only return its contents.

    `tag` is the folder's tag; 0 = read it from the folder's identity.
    """
    tag = tag or tag_of(disk, segment.folder)
    contents, data = encode_index(segment.base, end, last_stored_at_ms, parts, tag)
    if write:
        write_atomically(disk, segment.folder / segment_name(segment.base, INDEX_SUFFIX), data)
    return contents


def make_index(disk: Disk, segment: Segment, next_base: int, *, write: bool = True, tag: int = 0) -> SegmentContents:
    """Make a sealed segment's index from its frames. If `write` is false, only return the contents of its file.

    `tag` is the folder's tag; 0 = read it from the folder's identity.
    """
    file_end = segment.base + segment.size_bytes()
    found = survey_sealed(segment.read, segment.base, file_end, next_base)
    return write_index(disk, segment, next_base, found.stored_at_ms, found.parts, write=write, tag=tag)


def load_rows(disk: Disk, run: SealedRun) -> IndexRows:
    """One queue's rows in a sealed segment with an index file. Errors: DamagedFile, FileNotFoundError."""
    path = run.segment.folder / segment_name(run.segment.base, INDEX_SUFFIX)
    return decode_rows(run.entry, read_part(disk, path, run.entry.block_at, run.entry.block_bytes))
