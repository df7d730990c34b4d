"""The part of a replica's files that its disk keeps in a power cut."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ortoo.enode.disk.durable_mark import FILE_NAME as MARK_NAME
from ortoo.enode.disk.durable_mark import decode_slots
from ortoo.enode.disk.hard_state_file import FILE_NAME as HARD_STATE_NAME
from ortoo.enode.disk.log_summary_file import FILE_NAME as SUMMARY_NAME
from ortoo.testing.disks.disk_image import FileContent
from ortoo.testing.simulation.disk.simulated_disk import MachineDisk

SEGMENT_SUFFIX = ".seg"
FRAME_BYTES = 64
"""The alignment of frames."""
COMPARED_BYTES = 16 << 10
"""The part of the log before a position that is compared. The parts before it were compared with earlier positions."""


@dataclass(frozen=True, slots=True)
class DurableLog:
    """The durable files in the folder of one replica."""

    disk: MachineDisk
    folder: Path

    def hard_state(self) -> dict[str, Any]:
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
        bases = sorted(base for base in segments if base < end)
        if not bases:
            return f"no segment before {end}"
        begin = max(bases[0], end - compared_bytes)
        for number, base in enumerate(bases):
            stop = bases[number + 1] if number + 1 < len(bases) else end
            if stop <= begin:
                continue
            low, high = max(0, begin - base), stop - base
            one = segments[base]
            if len(one.durable) < high:
                return f"the segment at {base} ends at {base + len(one.durable)}"
            if one.durable[low:high] != one.current[low:high]:
                return f"the segment at {base} has bytes that are not on the disk"
        return ""

    def has_bytes_at(self, position: int) -> bool:
        """Whether a part of a frame is at a multiple of the alignment. Segments are filled with zeros before."""
        segments = self._segments()
        base = max((base for base in segments if base <= position), default=-1)
        return base >= 0 and any(segments[base].durable[position - base : position - base + FRAME_BYTES])

    def _segments(self) -> dict[int, FileContent]:
        files = self.disk.durable_files(self.folder)
        named = [(name.removesuffix(SEGMENT_SUFFIX), one) for name, one in files.items() if SEGMENT_SUFFIX in name]
        return {int(base): one for base, one in named}

    def _fields(self, name: str) -> dict[str, Any]:
        found = self.disk.durable_files(self.folder).get(name)
        if found is None:
            return {}
        fields: dict[str, Any] = json.loads(bytes(found.durable).partition(b"\n")[0])
        return fields
