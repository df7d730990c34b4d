"""The part of a replica's files that its disk keeps in a power cut."""

import bisect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ortoo.enode.disk.durable_mark import FILE_NAME as MARK_NAME
from ortoo.enode.disk.durable_mark import decode_slots
from ortoo.enode.disk.hard_state_file import FILE_NAME as HARD_STATE_NAME
from ortoo.enode.disk.log_summary_file import FILE_NAME as SUMMARY_NAME
from ortoo.enode.log.frame import ALIGNMENT_BYTES, HEADER_BYTES, MAGIC_BYTES, BadFrame, FrameHeader, decode_header
from ortoo.enode.log.scan import walk
from ortoo.testing.disks.disk_image import FileContent
from ortoo.testing.simulation.disk.simulated_disk import MachineDisk

SEGMENT_SUFFIX = ".seg"
COMPARED_BYTES = 16 << 10
"""The part of the log before a position that is compared. The parts before it were compared with earlier positions."""


@dataclass(frozen=True, slots=True)
class _Segments:
    """The segments among the durable files of a folder, by position."""

    files: Mapping[str, FileContent]
    bases: Sequence[int]
    contents: Sequence[FileContent]


@dataclass(slots=True)
class DurableLog:
    """The durable files in the folder of one replica."""

    disk: MachineDisk
    folder: Path
    _listed: _Segments = field(default=_Segments({}, (), ()))
    """The segments that were listed last. The disk makes another mapping of files when their names change."""

    def hard_state(self) -> Mapping[str, Any]:
        """The fields of the hard state; empty without the file."""
        return self._fields(HARD_STATE_NAME)

    def pending_truncation(self) -> int:
        """The position of the recorded truncation; -1 without one."""
        return int(self._fields(SUMMARY_NAME).get("cut", -1))

    def mark(self) -> int:
        """The position in the durable mark; 0 without one."""
        found = self.disk.durable_files(self.folder).get(MARK_NAME)
        return decode_slots(bytes(found.durable)) if found is not None else 0

    def lacks(self, end: int, compared_bytes: int = COMPARED_BYTES) -> str:
        """The first loss that a power cut may cause in the last `compared_bytes` before `end`; empty = none."""
        segments = self._segments()
        bases = segments.bases
        count = bisect.bisect_left(bases, end)
        if not count:
            return "" if end in bases[:1] else f"no segment before {end}"  # an emptied log begins there
        begin = max(bases[0], end - compared_bytes)
        for number in range(bisect.bisect_right(bases, begin) - 1, count):
            base, one = bases[number], segments.contents[number]
            stop = bases[number + 1] if number + 1 < count else end
            low, high = max(0, begin - base), stop - base
            if len(one.durable) < high:
                return f"the segment at {base} ends at {base + len(one.durable)}"
            if one.durable[low:high] != one.current[low:high]:
                return f"the segment at {base} has bytes that are not on the disk"
        return ""

    def frame_at(self, position: int) -> FrameHeader | None:
        """The header at a position; None for zeros, and for bytes of the earlier segment that the file was."""
        segments = self._segments()
        number = bisect.bisect_right(segments.bases, position) - 1
        if number < 0:
            return None
        begin, content = position - segments.bases[number], segments.contents[number].durable
        if not content.startswith(MAGIC_BYTES, begin):
            return None
        try:
            return decode_header(bytes(content[begin : begin + HEADER_BYTES]), position)
        except BadFrame:
            return None

    def has_frame_before(self, end: int) -> bool:
        """Whether a frame ends at a position."""
        found = (self.frame_at(at) for at in range(end - HEADER_BYTES, max(-1, end - COMPARED_BYTES), -ALIGNMENT_BYTES))
        return any(one is not None and one.end_position == end for one in found)

    def _segments(self) -> _Segments:
        files = self.disk.durable_files(self.folder)
        if files is not self._listed.files:
            named = [
                (int(name.removesuffix(SEGMENT_SUFFIX)), one) for name, one in files.items() if SEGMENT_SUFFIX in name
            ]
            named.sort(key=lambda one: one[0])
            self._listed = _Segments(files, [base for base, _ in named], [one for _, one in named])
        return self._listed

    def _fields(self, name: str) -> Mapping[str, Any]:
        found = self.disk.durable_files(self.folder).get(name)
        return {} if found is None else _decoded(bytes(found.durable))


def has_frames(data: bytes, position: int) -> bool:
    """Whether these bytes of the log from `position` on have a frame, and not only bytes of an earlier segment."""
    found = walk(lambda at, length: data[at - position : at - position + length], position, position + len(data))
    return any(isinstance(one, FrameHeader) for one in found)


@lru_cache(maxsize=256)
def _decoded(content: bytes) -> Mapping[str, Any]:
    """The fields of a small file: each message between replicas is compared with them, and they seldom change."""
    fields: dict[str, Any] = json.loads(content.partition(b"\n")[0])
    return fields
