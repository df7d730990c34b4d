"""What a cut takes out of a member's log: named, counted and kept aside, for nobody else may have it.

A send that goes with it was unknown to its producer, or acknowledged by the leader's disk alone (durability `leader`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.whole_files import write_whole
from ortoo.enode.log.copies.copying import frames_in
from ortoo.enode.log.frame import BadFrame, Kind

PREFIX = "cut-"
"""How the names of the files begin that it is kept in."""


@dataclass(slots=True)
class CutFrames:
    """Bytes behind a position, as they lay in the log."""

    position: int
    content: bytes
    epoch: int = 0
    """The latest in which any of it was written."""
    offsets: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """(topic id, queue id) to the first offset that is gone and the one behind the last."""
    messages: int = 0

    @classmethod
    def of(cls, position: int, content: bytes) -> "CutFrames":
        """Look what is in the bytes that lie at `position`; behind a damaged frame nothing is named."""
        found = cls(position, content)
        try:
            for frame in frames_in(content, position):
                header = frame.header
                found.epoch = max(found.epoch, header.leader_epoch)
                if header.kind == Kind.MESSAGES:
                    key = (header.topic_id, header.queue_id)
                    first, _ = found.offsets.get(key, (header.first_offset, header.end_offset))
                    found.offsets[key] = (first, header.end_offset)
                    found.messages += header.item_count
        except BadFrame:
            pass  # what lies there was never whole, so it was never acknowledged
        return found

    def keep(self, disk: Disk, folder: Path) -> str:
        """Write them to a file of their own; its name. Errors: OSError."""
        name = f"{PREFIX}{self.epoch}-{self.position}"
        write_whole(disk, folder / name, self.content)
        return name

    def told(self, topics: Iterable[tuple[int, str]]) -> list[str]:
        """Which offsets are gone, queue by queue, with the names of topics that are known."""
        names = dict(topics)
        return [
            f"{names.get(topic_id, f'{topic_id:#x}')}/{queue_id}: {first} to {end - 1}"
            for (topic_id, queue_id), (first, end) in sorted(self.offsets.items())
        ]
