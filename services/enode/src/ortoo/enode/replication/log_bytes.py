"""The bytes of a replica's open log: reads them for followers, and repairs damaged frames."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain

from ortoo.common.errors import Unavailable
from ortoo.enode.disk.disk import Buffer
from ortoo.enode.log.copies.frame_copies import frames_in, whole_frames
from ortoo.enode.log.copies.protocol_frames import PROTOCOL_KINDS, decode_protocol_frame
from ortoo.enode.log.flushing.flush_group import FlushGroup
from ortoo.enode.log.frame import HEADER_BYTES, BadFrame, FrameHeader
from ortoo.enode.log.scan import Hole, read_frame, walk
from ortoo.enode.log.segment import Segment, segment_at
from ortoo.enode.recovery.strays import frame_at
from ortoo.enode.replication.protocol.events import SendFrames
from ortoo.enode.replication.protocol.log_summary import ProtocolFrame
from ortoo.enode.store.engine import Engine

PART_BYTES = 1 << 20
"""Approximate size of one message with frames."""
CACHE_BYTES = 32 << 20
"""Size of the log's end that is kept in memory for followers."""
RepairFrame = Callable[[int, int, bool], Awaitable[int]]
"""Ensures a whole frame at a position that ends at most at another one; its end, or 0 if no replica has it."""


@dataclass(eq=False)
class LogBytes:
    """The bytes of an open log, by position."""

    engine: Engine
    repair: RepairFrame | None = None
    """Repairs a damaged frame from another replica's copy."""
    has_followers: bool = True
    """Whether there are other replicas, which need the newest frames."""
    _cached: dict[int, tuple[int, list[Buffer]]] = field(default_factory=dict)
    """The newest frames as they went to the disk: the position of each part to its end and its bytes."""
    _cached_bytes: int = 0
    _owned: set[int] = field(default_factory=set)
    """The full segments that were verified to be of this log, by their first positions."""

    def cache_group(self, group: FlushGroup) -> tuple[ProtocolFrame, ...]:
        """Cache the bytes of a group that goes to the disk. Returns the group's frames of the replication protocol."""
        buffers = chain.from_iterable(part.buffers for part in group.parts)
        begin = at = group.parts[0].position
        buffered: list[Buffer] = []
        protocol_frames: list[ProtocolFrame] = []
        for entry in group.entries:
            header, end = entry.header, entry.header.end_position
            while at < end:
                buffered.append(next(buffers))
                at += len(buffered[-1])
            if header.kind in PROTOCOL_KINDS:
                protocol_frames.append(
                    decode_protocol_frame(
                        header, b"".join(buffered)[header.position - begin + HEADER_BYTES :][: header.length]
                    )
                )
            if end - begin >= PART_BYTES or end == group.end_position:
                self._cached[begin] = end, buffered
                self._cached_bytes += end - begin
                begin, buffered = end, []
        while self._cached_bytes > CACHE_BYTES:
            oldest = next(iter(self._cached))
            self._cached_bytes -= self._cached.pop(oldest)[0] - oldest
        return tuple(protocol_frames)

    def clear_cache(self) -> None:
        """Drop the frames in memory, because the log's end is truncated."""
        self._cached.clear()
        self._cached_bytes = 0

    def cached_frames(self, request: SendFrames) -> list[Buffer]:
        """The whole frames to send, or the first of them, in pieces; empty if they are not in memory."""
        end, content = request.begin, list[Buffer]()
        while end < request.limit and end - request.begin < PART_BYTES and (some := self._cached.get(end)):
            end = some[0]
            content += some[1]
        return content

    async def read(self, begin: int, limit: int) -> Sequence[Buffer]:
        """As `cached_frames`, but from the disk; damaged frames are repaired.

        Errors: OSError, Unavailable, BadFrame.
        """
        while True:
            try:
                content = await self.read_copy(begin, limit)
            except BadFrame:
                hole = await self.engine.work.run(self._first_hole, begin)
                if hole is None or self.repair is None:
                    raise
                if not await self.repair(hole.position, hole.end_position, False):
                    raise
            else:
                return (content,) if content else ()

    async def read_copy(self, begin: int, limit: int) -> bytes:
        """As `read`, but without repairs. Errors: OSError, Unavailable, BadFrame."""
        await self._check_owner(self._segment_at(begin))
        length = max(PART_BYTES, HEADER_BYTES)
        while True:
            data = await self.read_disk(begin, length)
            whole = whole_frames(data, begin, limit)
            if whole or len(data) < length:
                break
            length *= 16  # one frame is larger than a part
        if length > PART_BYTES:
            whole = min(whole, whole_frames(data, begin, begin + 1))
        data = data[:whole]
        for _ in frames_in(data, begin):
            pass  # each frame is checked
        return data

    async def _check_owner(self, segment: Segment) -> None:
        """Errors: OSError. BadFrame for a full segment whose last frame is of another log."""
        if segment.end is None or self._end_of(segment) < segment.end or segment.base in self._owned:
            return
        last = await self.engine.work.run(frame_at, segment, segment.end - HEADER_BYTES)
        if last is not None and not last.is_of(self.engine.identity.log_mark):
            raise BadFrame(f"{segment.path} is of another store: restore the right file, or empty the folder")
        self._owned.add(segment.base)

    async def find_frame(self, position: int) -> FrameHeader | None:
        """The frame at a position; None if there is no whole frame. Errors: OSError, Unavailable."""
        segment = self._segment_at(position)
        try:
            header, _ = await self.engine.work.run(read_frame, segment.read, position)
        except BadFrame:
            return None
        return header

    async def rewrite_frame(self, position: int, frame: bytes) -> None:
        """Overwrite a damaged frame on this disk. Errors: OSError.

        A place that an index lists as damaged stays listed until the index is rebuilt.
        """
        segment, catalog = self._segment_at(position), self.engine.catalog
        await self.engine.work.run(_rewrite_frame, segment, position, frame)
        holes = set(catalog.holes())
        catalog.damages = [
            one for one in catalog.damages if one.position != position or (position, one.length_bytes) in holes
        ]

    def _first_hole(self, begin: int) -> Hole | None:
        segment = self._segment_at(begin)
        walked = walk(segment.read, begin, self._end_of(segment), bodies_from=begin)
        return next((one for one in walked if isinstance(one, Hole)), None)

    def _segment_at(self, position: int) -> Segment:
        """The segment of a position. Errors: Unavailable when it was deleted."""
        segments = [*self.engine.catalog.segments, *self.engine.appender.next_segments]
        segment = segment_at(segments, position)
        if segment is None:
            raise Unavailable(f"the log at {position} was deleted")
        return segment

    def _end_of(self, segment: Segment) -> int:
        durable_position = self.engine.appender.durable_position
        return durable_position if segment.end is None else min(segment.end, durable_position)

    async def read_disk(self, position: int, length: int) -> bytes:
        """Bytes of this disk from a position on; fewer at the log's end. Errors: OSError, Unavailable."""
        segment = self._segment_at(position)
        end = self._end_of(segment)
        return await self.engine.work.run(segment.read, position, min(length, max(0, end - position)))


def _rewrite_frame(segment: Segment, position: int, frame: bytes) -> None:
    # A failed sync is reported once to each descriptor. On the log's own one a concurrent flush would not notice it.
    with closing(segment.files.disk.open(segment.path)) as file:
        file.write(position - segment.base, [frame])
        file.sync_data()
