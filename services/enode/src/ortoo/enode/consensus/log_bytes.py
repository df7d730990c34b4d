"""The bytes of a member's open log: read for those who follow, and a damaged frame written again."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain

from ortoo.common.errors import Unavailable
from ortoo.enode.disk.disk import Buffer
from ortoo.enode.log.copies.copying import frames_in, whole_frames
from ortoo.enode.log.copies.words import WORDS, mark_of
from ortoo.enode.log.flushing.group import Group
from ortoo.enode.log.frame import HEADER_BYTES, BadFrame, FrameHeader
from ortoo.enode.log.scan import Hole, read_frame, walk
from ortoo.enode.log.segment import Segment, holding
from ortoo.enode.members.driver import Ship
from ortoo.enode.members.log_outline import Mark
from ortoo.enode.store.engine import Engine

PART_BYTES = 1 << 20
"""About how much of the log is sent at once."""
KEPT_BYTES = 32 << 20
"""So much of the log's end is kept in memory for those who follow."""
Repairing = Callable[[int, int], Awaitable[int]]
"""Has a whole frame at a position of a log that goes on at another one; where it ends, 0 when nobody has it."""


@dataclass(eq=False)
class LogBytes:
    """What lies in an open log, by position."""

    engine: Engine
    repair: Repairing | None = None
    """Writes a damaged frame again from another copy."""
    _newest: dict[int, tuple[int, list[Buffer]]] = field(default_factory=dict)
    """The newest frames as they went to the disk, by where some of them begin: where these end, and their bytes."""
    _newest_bytes: int = 0

    def add_newest(self, group: Group) -> tuple[Mark, ...]:
        """Keep what goes to the disk in memory for a while. Returns what in it concerns the members."""
        buffers = chain.from_iterable(part.buffers for part in group.parts)
        begin = at = group.parts[0].position
        some: list[Buffer] = []
        marks: list[Mark] = []
        for entry in group.entries:
            header, end = entry.header, entry.header.end_position
            while at < end:
                some.append(next(buffers))
                at += len(some[-1])
            if header.kind in WORDS:
                marks.append(mark_of(header, b"".join(some)[header.position - begin + HEADER_BYTES :][: header.length]))
            if end - begin >= PART_BYTES or end == group.end_position:
                self._newest[begin] = end, some
                self._newest_bytes += end - begin
                begin, some = end, []
        while self._newest_bytes > KEPT_BYTES:
            oldest = next(iter(self._newest))
            self._newest_bytes -= self._newest.pop(oldest)[0] - oldest
        return tuple(marks)

    def forget_newest(self) -> None:
        """The log's end is cut: nothing in memory is believed."""
        self._newest.clear()
        self._newest_bytes = 0

    def newest(self, ship: Ship) -> list[Buffer]:
        """The whole frames that are to be sent, or the first of them, in pieces; empty when they are not in memory."""
        end, content = ship.begin, list[Buffer]()
        while end < ship.limit and end - ship.begin < PART_BYTES and (some := self._newest.get(end)):
            end = some[0]
            content += some[1]
        return content

    async def read(self, begin: int, limit: int) -> Sequence[Buffer]:
        """As `newest`, of the disk, where a damaged frame is repaired first. Errors: OSError, Unavailable, BadFrame."""
        while True:
            try:
                content = await self.read_copy(begin, limit)
            except BadFrame:
                hole = await self.engine.work.run(self._first_hole, begin)
                if hole is None or self.repair is None or not await self.repair(hole.position, hole.end_position):
                    raise
            else:
                return (content,) if content else ()

    async def read_copy(self, begin: int, limit: int) -> bytes:
        """As `read`, and nothing is repaired. Errors: OSError, Unavailable, BadFrame."""
        length = max(PART_BYTES, HEADER_BYTES)
        while True:
            data = await self.from_disk(begin, length)
            whole = whole_frames(data, begin, limit)
            if whole or len(data) < length:
                break
            length *= 16  # one frame is larger than a part
        if length > PART_BYTES:
            whole = min(whole, whole_frames(data, begin, begin + 1))
        data = data[:whole]
        for _ in frames_in(data, begin):
            pass  # each is looked at
        return data

    async def whole_frame(self, position: int) -> FrameHeader | None:
        """The frame at a position; None when there is no whole one. Errors: OSError, Unavailable."""
        segment = self._holding(position)
        try:
            header, _ = await self.engine.work.run(read_frame, segment.read, position)
        except BadFrame:
            return None
        return header

    async def write_again(self, position: int, frame: bytes) -> None:
        """Give a frame back to the disk that has it damaged. Errors: OSError.

        A place that an index calls damaged goes on being called so, until the index is made anew.
        """
        segment, catalog = self._holding(position), self.engine.catalog
        await self.engine.work.run(_write_again, segment, position, frame)
        holes = set(catalog.holes())
        catalog.damages = [
            one for one in catalog.damages if one.position != position or (position, one.length_bytes) in holes
        ]

    def _first_hole(self, begin: int) -> Hole | None:
        segment = self._holding(begin)
        found = walk(segment.read, begin, self._end_of(segment), bodies_from=begin)
        return next((one for one in found if isinstance(one, Hole)), None)

    def _holding(self, position: int) -> Segment:
        """The segment of a position. Errors: Unavailable when it was deleted."""
        segments = [*self.engine.catalog.segments, *self.engine.appender.next_segments]
        segment = holding(segments, position)
        if segment is None:
            raise Unavailable(f"the log at {position} was deleted")
        return segment

    def _end_of(self, segment: Segment) -> int:
        return self.engine.appender.durable_position if segment.end is None else segment.end

    async def from_disk(self, position: int, length: int) -> bytes:
        """Bytes of this disk from a position on; fewer at the log's end. Errors: OSError, Unavailable."""
        segment = self._holding(position)
        end = self._end_of(segment)
        return await self.engine.work.run(segment.read, position, min(length, max(0, end - position)))


def _write_again(segment: Segment, position: int, frame: bytes) -> None:
    # A failed sync is told once to each descriptor: on the log's own one the flush beside this would never hear of it.
    with closing(segment.files.disk.open(segment.path)) as file:
        file.write(position - segment.base, [frame])
        file.sync_data()
