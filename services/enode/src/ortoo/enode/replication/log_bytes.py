"""The bytes of the log as replicas get them: by position, as far as they are durable."""

from dataclasses import dataclass

from ortoo.common.errors import Conflict, OutOfRange, Unavailable
from ortoo.common.records.sealed_batch import crc32c
from ortoo.enode.log.segment import Segment
from ortoo.enode.store.engine import Engine

CHUNK_BYTES = 1 << 20
TAIL_BYTES = 64 << 10
"""How much of its end a replica proves to share."""


@dataclass(frozen=True, slots=True)
class LogBytes:
    """Some bytes of one segment."""

    segment_position: int
    segment_bytes: int
    position: int
    data: bytes

    @property
    def end_position(self) -> int:
        """Where the log goes on."""
        return self.position + len(self.data)


@dataclass(frozen=True, slots=True)
class LogSource:
    """Reads the log of an open store."""

    engine: Engine

    @property
    def begin_position(self) -> int:
        """The first position that is still there."""
        return self.engine.catalog.begin_position

    @property
    def durable_position(self) -> int:
        """The end of what may be sent."""
        return self.engine.appender.durable_position

    async def check_tail(self, end_position: int, tail_bytes: int, tail_crc32c: int) -> None:
        """Refuse whoever has another log. Errors: Conflict; OutOfRange when what he has was deleted here."""
        if end_position > self.durable_position:
            raise Conflict(
                f"the replica has the log up to {end_position}, and this enode up to {self.durable_position}: it is "
                "ahead; start it as a master, or start it anew with an empty folder",
                field="durable_position",
            )
        begin = end_position - tail_bytes
        if tail_bytes > TAIL_BYTES or begin < self.begin_position:
            raise self._deleted(begin)
        tail = b""
        while len(tail) < tail_bytes:
            tail += (await self.read(begin + len(tail), tail_bytes - len(tail))).data
        if crc32c(tail) != tail_crc32c:
            raise Conflict(
                f"the replica's bytes before {end_position} are not this enode's: their histories differ; move its "
                "folder away and start it with an empty one",
                field="tail_crc32c",
            )

    async def read(self, position: int, length_max: int = CHUNK_BYTES) -> LogBytes:
        """The durable bytes at `position`; empty at the end. Errors: OutOfRange, Unavailable."""
        segment = self._segment_at(position)
        end = self.durable_position if segment.end is None else min(segment.end, self.durable_position)
        segment.acquire()
        try:
            data = await self.engine.read_log(segment, position, min(length_max, end - position))
        except OSError as error:
            raise Unavailable(f"the log cannot be read at {position}: {error}") from error
        finally:
            segment.release()
        return LogBytes(segment.base, segment.limit - segment.base, position, data)

    def _segment_at(self, position: int) -> Segment:
        segments = [*self.engine.catalog.segments, *self.engine.committer.next_segments]
        found = [one for one in segments if one.base <= position]
        if not found:
            raise self._deleted(position)
        return found[-1]

    def _deleted(self, position: int) -> OutOfRange:
        return OutOfRange(
            f"the log at {position} was deleted by retention; it begins at {self.begin_position}: move the replica's "
            "folder away and start it with an empty one",
            field="durable_position",
            begin_offset=self.begin_position,
            end_offset=self.durable_position,
        )
