"""The catalog: the segments, and the places of the queues' batches in them."""

import asyncio
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from operator import attrgetter

from ortoo.common.errors import Overloaded
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.queue_index import IndexParts, QueueEntry, QueueKey, SegmentContents
from ortoo.enode.log.results import Damage
from ortoo.enode.log.rows import IndexRows
from ortoo.enode.log.segment import Segment

RUN_BYTES = 362
"""Approximate memory of one queue in one sealed segment, as measured."""
_END_OFFSET = attrgetter("entry.end_offset")


@dataclass(slots=True, eq=False)
class SealedRun:
    """The batches of one queue in one sealed segment."""

    segment: Segment
    entry: QueueEntry
    """The range of the batches, and the place of their rows in the index file, if there is one."""
    rows: IndexRows | None = None
    """The rows, which are in memory until there is an index file."""


@dataclass(slots=True, eq=False)
class QueueLog:
    """One queue: its range and the places of its batches. It begins empty; its next message gets `end_offset`."""

    key: QueueKey
    begin_offset: int = 0
    end_offset: int = 0
    """The end offset that is visible to readers."""
    next_offset: int = field(init=False)
    """The next offset to assign; batches below it may still be on their way to the disk."""
    end_at_opening: int = 0
    """The end offset when this opening of the store began to serve."""
    bytes_in: int = 0
    """Bytes stored since the store was opened."""
    runs: list[SealedRun] = field(default_factory=list)
    rows: IndexRows | None = None
    """The rows in the active segment."""
    waiters: list[asyncio.Future[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start without batches on their way to the disk."""
        self.next_offset = self.end_offset

    def trim(self, begin_offset: int) -> None:
        """Make the messages below `begin_offset` unreadable."""
        self.begin_offset = max(self.begin_offset, begin_offset)

    @property
    def last_stored_at_ms(self) -> int:
        """When the last message was stored, milliseconds since 1970-01-01 UTC; 0 = the segments have no message.

        A trim does not change it.
        """
        return self.rows.stored_at_ms[-1] if self.rows else self.runs[-1].entry.last_stored_at_ms if self.runs else 0

    def run_containing(self, offset: int) -> SealedRun | None:
        """The sealed run with `offset`, or the next run behind it; None if only the active segment can hold it."""
        at = bisect_right(self.runs, offset, key=_END_OFFSET)
        return self.runs[at] if at < len(self.runs) else None

    def first_stored_offset(self, position: int = 0) -> int:
        """The first offset stored at or behind a log position; the queue's end offset if there is none."""
        for run in self.runs:
            if run.segment.base >= position:
                return run.entry.begin_offset
        return self.rows.begin_offset if self.rows else self.end_offset


class LogCatalog:
    """All segments and queues of a store. Belongs to the event loop."""

    def __init__(self, files: SegmentFiles, tag: int = 0) -> None:
        """Start empty; the segments are opened through `files`, and `tag` is that of the folder."""
        self.files = files
        self.tag = tag
        self.segments: list[Segment] = []
        self.queues: dict[QueueKey, QueueLog] = {}
        self.contents: dict[int, SegmentContents] = {}
        """The contents of sealed segments with an index file, by base."""
        self.damages: list[Damage] = []
        self.run_count = 0
        """The number of pairs of a queue and a sealed segment with its messages."""
        self.floor = 0
        """The first offset of new queues; not 0 if a damaged place may have held offsets of unknown queues."""
        self._topics: dict[int, list[QueueKey]] = {}
        """The keys of each topic's queues."""
        self.active_parts = IndexParts()
        """The parts of the active segment's index; the rows are those of its queues."""
        self.active_since_ms: int | None = None
        """When the first message of the active segment was stored; None if it has none."""
        self._active: dict[QueueKey, QueueLog] = {}
        """The queues of the active segment; one may already be forgotten when it gets its last rows."""

    @property
    def active(self) -> Segment:
        """The segment for new frames."""
        return self.segments[-1]

    @property
    def begin_position(self) -> int:
        """The first stored position."""
        return self.segments[0].base if self.segments else 0

    @property
    def index_bytes(self) -> int:
        """Memory of the index, which has an entry for each queue in each segment."""
        return RUN_BYTES * (self.run_count + len(self.active_parts.rows))

    def check_capacity(self, queue: QueueLog, bytes_max: int) -> None:
        """Refuse a queue that makes the index exceed `bytes_max`; `bytes_max` 0 = no limit. Errors: Overloaded."""
        if queue.rows is None and 0 < bytes_max < self.index_bytes + RUN_BYTES:
            raise Overloaded(
                f"{len(self.queues)} queues in {len(self.segments)} segments take {self.index_bytes} bytes of index. "
                f"The limit is {bytes_max} (store.index_bytes_max). "
                "Use fewer queues, larger segments or less retention",
                retry_after_ms=10_000,
            )

    def queue(self, key: QueueKey) -> QueueLog:
        """A queue, made at its first use."""
        found = self.queues.get(key)
        if found is None:
            found = self.queues[key] = QueueLog(key, self.floor, self.floor)
            self._topics.setdefault(key[0], []).append(key)
        return found

    def add_batch(self, queue: QueueLog, first_offset: int, count: int, position: int, length: int, at_ms: int) -> None:
        """Add a durable batch of the active segment, so that readers see it."""
        rows = queue.rows
        if rows is None:
            rows = queue.rows = self.active_parts.rows[queue.key] = IndexRows()
            self._active[queue.key] = queue
            if self.active_since_ms is None:
                self.active_since_ms = at_ms
        rows.append(first_offset, count, position, length, at_ms)
        queue.end_offset = first_offset + count
        queue.bytes_in += length

    def load_active(self, parts: IndexParts) -> None:
        """Load the index of the active segment; each queue has at least one row."""
        self.active_parts = parts
        self._active = {key: self.queue(key) for key in parts.rows}
        self.active_since_ms = min((rows.stored_at_ms[0] for rows in parts.rows.values()), default=None)
        for key, queue in self._active.items():
            queue.rows = parts.rows[key]

    def holes(self) -> list[tuple[int, int]]:
        """Position and length of all damaged places that the indexes record."""
        return [*(hole for one in self.contents.values() for hole in one.holes), *self.active_parts.holes]

    def load_sealed(self, segment: Segment, contents: SegmentContents) -> None:
        """Load a sealed segment with an index file; called in order of position."""
        segment.end = contents.end
        segment.last_stored_at_ms = contents.last_stored_at_ms
        self.segments.append(segment)
        self.contents[segment.base] = contents
        for entry in contents.queues:
            self.queue((entry.topic_id, entry.queue_id)).runs.append(SealedRun(segment, entry))
            self.run_count += 1

    def replace_index(self, segment: Segment, contents: SegmentContents) -> None:
        """Load the rebuilt index of a sealed segment after damaged frames were repaired."""
        known_holes = {position for position, _ in self.contents[segment.base].holes}
        left = [
            replace(one, position=position, length_bytes=length)
            for one in self.damages
            if one.position in known_holes
            for position, length in contents.holes
            if one.position <= position < one.position + one.length_bytes
        ]
        self.damages = [*(one for one in self.damages if one.position not in known_holes), *left]
        self.contents[segment.base] = contents
        for entry in contents.queues:
            runs = self.queue((entry.topic_id, entry.queue_id)).runs
            at = bisect_left(runs, segment.base, key=lambda run: run.segment.base)
            if at < len(runs) and runs[at].segment is segment:
                runs[at] = SealedRun(segment, entry)
            else:
                runs.insert(at, SealedRun(segment, entry))
                self.run_count += 1

    def seal_active(self, segment: Segment) -> "SealedSegment":
        """Turn the rows of the full and durable active segment into runs. Returns the data for its index file."""
        parts, self.active_parts = self.active_parts, IndexParts()
        active, self._active, self.active_since_ms = self._active, {}, None
        runs: dict[QueueKey, SealedRun] = {}
        for key, queue in active.items():
            rows = parts.rows[key]
            runs[key] = SealedRun(segment, QueueEntry.of(key, rows), rows)
            queue.runs.append(runs[key])
            queue.rows = None
        self.run_count += len(runs)
        return SealedSegment(segment, runs, parts)

    def index_written(self, sealed: "SealedSegment", contents: SegmentContents) -> None:
        """Release the rows of a sealed segment, because its index file is written."""
        self.contents[sealed.segment.base] = contents
        for entry in contents.queues:
            run = sealed.runs[entry.topic_id, entry.queue_id]
            run.entry, run.rows = entry, None

    def begin_offsets_without(self, count: int) -> dict[QueueKey, int]:
        """The begin offset of each queue after the deletion of the `count` oldest segments."""
        position = self.segments[count].base if count else 0
        return {
            key: max(queue.begin_offset, queue.first_stored_offset(position))
            if queue.runs and queue.runs[0].segment.base < position
            else queue.begin_offset
            for key, queue in self.queues.items()
        }

    def drop_first_segment(self) -> Segment:
        """Forget the oldest segment, and advance the queues' begin offsets."""
        segment = self.segments.pop(0)
        contents = self.contents.pop(segment.base, None)
        keys = [(entry.topic_id, entry.queue_id) for entry in contents.queues] if contents else list(self.queues)
        for key in keys:
            queue = self.queues.get(key)
            if queue is not None and queue.runs and queue.runs[0].segment is segment:
                del queue.runs[0]
                self.run_count -= 1
                queue.trim(queue.first_stored_offset())
        end = segment.end or segment.base
        self.damages = [one for one in self.damages if one.position + one.length_bytes > end]
        return segment

    def forget_topic(self, topic_id: int) -> list[QueueLog]:
        """Forget the queues of a topic; returns them."""
        keys = self._topics.pop(topic_id, [])
        for key in keys:
            self._active.pop(key, None)
            self.active_parts.rows.pop(key, None)
            self.run_count -= len(self.queues[key].runs)
        return [self.queues.pop(key) for key in keys]

    def close(self) -> None:
        """Close all files."""
        for segment in self.segments:
            segment.retire()
        self.files.close()


@dataclass(slots=True, eq=False)
class SealedSegment:
    """A sealed segment without an index file, and the data for that file."""

    segment: Segment
    runs: dict[QueueKey, SealedRun]
    parts: IndexParts
