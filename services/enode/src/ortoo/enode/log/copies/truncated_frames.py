"""The frames that a truncation removes from a replica's log. It is possible that no other replica has them.

Removed frames are counted, listed, and saved in a file. The producer of a removed message did not learn the outcome, or
only the leader's disk had acknowledged the message (durability `leader`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.enode.disk.atomic_files import write_atomically
from ortoo.enode.disk.disk import Disk
from ortoo.enode.log.copies.frame_copies import frames_in
from ortoo.enode.log.frame import BadFrame, FrameKind

PREFIX = "cut-"
"""Prefix of the names of the files with removed frames."""


@dataclass(slots=True)
class TruncatedFrames:
    """The bytes that were removed from the log, from a position on."""

    position: int
    content: bytes
    epoch: int = 0
    """The latest epoch of the frames."""
    offsets: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """(topic id, queue id) to the first removed offset and the one after the last."""
    messages: int = 0

    @classmethod
    def of(cls, position: int, content: bytes) -> "TruncatedFrames":
        """Inspect bytes that lie at `position`; frames behind a damaged frame are not listed."""
        found = cls(position, content)
        try:
            for frame in frames_in(content, position):
                header = frame.header
                found.epoch = max(found.epoch, header.leader_epoch)
                if header.kind == FrameKind.MESSAGES:
                    key = (header.topic_id, header.queue_id)
                    first, _ = found.offsets.get(key, (header.first_offset, header.end_offset))
                    found.offsets[key] = (first, header.end_offset)
                    found.messages += header.item_count
        except BadFrame:
            pass  # the frame was never whole, so it was never acknowledged
        return found

    def write_file(self, disk: Disk, folder: Path) -> str:
        """Write the frames to a separate file; returns its name. Errors: OSError."""
        name = f"{PREFIX}{self.epoch}-{self.position}"
        write_atomically(disk, folder / name, self.content, uses_reserve=True)
        return name

    def describe_offsets(self, topics: Iterable[tuple[int, str]]) -> list[str]:
        """The removed offsets of each queue as text, with the names of known topics."""
        names = dict(topics)
        return [
            f"{names.get(topic_id, f'{topic_id:#x}')}/{queue_id}: {first} to {end - 1}"
            for (topic_id, queue_id), (first, end) in sorted(self.offsets.items())
        ]
