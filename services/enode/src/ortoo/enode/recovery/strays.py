"""Stray files: files with a segment's name that are not segments. They are left alone and cause no loss."""

from collections.abc import Sequence
from pathlib import Path

from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.frame import ALIGNMENT_BYTES, HEADER_BYTES, BadFrame, FrameFlag, FrameHeader, decode_header
from ortoo.enode.log.scan import walk
from ortoo.enode.log.segment import Segment


def find_strays(files: SegmentFiles, folder: Path, starts: Sequence[int]) -> list[int]:
    """The positions in `starts` whose file is not a segment of this log. Errors: Unsupported, OSError.

    A segment begins at an aligned position. Its file has the whole length before it is named as a segment. It is named
    only after the previous segment has ended at the new segment's begin. So a file with a whole frame at its begin is a
    segment. A file without such a frame is a stray in two cases. In the first case, the file is empty, and the previous
    segment does not end at its begin. In the second case, its begin lies within the frames of the previous segment.
    """
    strays: list[int] = []
    before: Segment | None = None
    for base in starts:
        if base % ALIGNMENT_BYTES:
            strays.append(base)
            continue
        segment = Segment(files, folder, base, base)
        segment.limit = base + segment.size_bytes()
        if not has_frame(segment, base) and not _may_follow(before, segment):
            strays.append(base)
            segment.retire()
            continue
        if before is not None:
            before.retire()
        before = segment
    if before is not None:
        before.retire()
    return strays


def has_frame(segment: Segment, position: int) -> bool:
    """Whether a whole header lies at a position. Errors: Unsupported, OSError."""
    return frame_at(segment, position) is not None


def frame_at(segment: Segment, position: int) -> FrameHeader | None:
    """The whole header at a position; None without one. Errors: Unsupported, OSError."""
    if position < segment.base:
        return None
    try:
        return decode_header(segment.read(position, HEADER_BYTES), position)
    except BadFrame:
        return None


def _may_follow(before: Segment | None, segment: Segment) -> bool:
    """Whether a segment without a first frame can be the successor of `before`."""
    is_empty = segment.limit == segment.base
    if before is None:
        return not is_empty
    if not is_empty and segment.base >= before.limit:
        return True
    last: FrameHeader | None = None
    for one in walk(before.read, before.base, before.limit):
        if isinstance(one, FrameHeader):
            last = one
    if last is None:
        return not is_empty
    if last.flags & FrameFlag.SEGMENT_END:
        return last.end_position == segment.base
    return not is_empty and last.end_position <= segment.base
