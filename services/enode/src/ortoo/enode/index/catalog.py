"""The catalog: which segments there are, and which batches of which queues lie where in them."""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from operator import attrgetter

from ortoo.common.errors import Overloaded
from ortoo.enode.log.answers import Damage
from ortoo.enode.log.queue_index import Contents, QueueEntry, QueueKey, SliceAt
from ortoo.enode.log.rows import Rows
from ortoo.enode.log.segment import Segment

RUN_BYTES = 362
"""What it costs in memory to know of the batches of one queue in one sealed segment, as measured."""


@dataclass(slots=True, eq=False)
class Run:
    """The batches of one queue in one sealed segment."""

    segment: Segment
    begin_offset: int
    end_offset: int
    first_stored_at_ms: int
    last_stored_at_ms: int
    entry: QueueEntry | None = None
    """Where its rows lie in the index file; None as long as there is no file."""
    rows: Rows | None = None
    """They are in memory until there is one."""

    @classmethod
    def fresh(cls, segment: Segment, rows: Rows) -> "Run":
        """Of a segment that was just sealed."""
        times = rows.stored_at_ms
        return cls(segment, rows.begin_offset, rows.end_offset, times[0], times[-1], rows=rows)

    @classmethod
    def indexed(cls, segment: Segment, entry: QueueEntry) -> "Run":
        """Of a segment that has an index file."""
        return cls(
            segment, entry.begin_offset, entry.end_offset, entry.first_stored_at_ms, entry.last_stored_at_ms, entry
        )


@dataclass(slots=True, eq=False)
class QueueLog:
    """One queue: its range, and where its batches lie. It begins empty; its next message gets `end_offset`."""

    key: QueueKey
    begin_offset: int = 0
    end_offset: int = 0
    """The next offset to be stored, as far as readers may see."""
    next_offset: int = field(init=False)
    """The next offset to be given out; those below may still be on their way to the disk."""
    bytes_in: int = 0
    """What was stored since the store was opened."""
    runs: list[Run] = field(default_factory=list)
    rows: Rows | None = None
    """Of the active segment."""
    waiters: list[asyncio.Future[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nothing is on its way."""
        self.next_offset = self.end_offset

    def run_with(self, offset: int) -> Run | None:
        """The sealed run that holds `offset`, or the next one after it; None if only the active segment can."""
        at = bisect_right(self.runs, offset, key=attrgetter("end_offset"))
        return self.runs[at] if at < len(self.runs) else None

    def first_stored_offset(self) -> int:
        """The first offset of which bytes are there; the end if there are none."""
        if self.runs:
            return self.runs[0].begin_offset
        return self.rows.begin_offset if self.rows else self.end_offset


class Catalog:
    """All segments and queues of a store. Belongs to the event loop."""

    def __init__(self) -> None:
        """No segments, no queues."""
        self.segments: list[Segment] = []
        self.queues: dict[QueueKey, QueueLog] = {}
        self.contents: dict[int, Contents] = {}
        """Of sealed segments whose index file is written, by base."""
        self.damages: list[Damage] = []
        self.run_count = 0
        """How many pairs of a queue and a sealed segment that holds something of it are known."""
        self.floor = 0
        """Where queues begin that are new: not 0 when a damaged place may have held offsets of unknown queues."""
        self._topics: dict[int, list[QueueKey]] = {}
        """The keys of each topic's queues."""
        self._active: dict[QueueKey, QueueLog] = {}
        self._slices: list[SliceAt] = []
        self._holes: list[tuple[int, int]] = []

    @property
    def active(self) -> Segment:
        """The segment that is written to."""
        return self.segments[-1]

    @property
    def begin_position(self) -> int:
        """The first position that is still there."""
        return self.segments[0].base if self.segments else 0

    @property
    def index_bytes(self) -> int:
        """What knowing where everything lies costs in memory: it grows with queues times segments."""
        return RUN_BYTES * (self.run_count + len(self._active))

    def check_room(self, queue: QueueLog, bytes_max: int) -> None:
        """Refuse one more queue in the active segment. 0 = there is no bound. Errors: Overloaded."""
        if queue.rows is None and 0 < bytes_max < self.index_bytes + RUN_BYTES:
            raise Overloaded(
                f"{len(self.queues)} queues in {len(self.segments)} segments take {self.index_bytes} bytes of index, "
                f"{bytes_max} are allowed (store.index_bytes_max); use fewer queues, larger segments or less retention",
                retry_after_ms=10_000,
            )

    def queue(self, key: QueueKey) -> QueueLog:
        """A queue, made when it is first asked for."""
        found = self.queues.get(key)
        if found is None:
            found = self.queues[key] = QueueLog(key, self.floor, self.floor)
            self._topics.setdefault(key[0], []).append(key)
        return found

    def add_batch(self, queue: QueueLog, first_offset: int, count: int, position: int, length: int, at_ms: int) -> None:
        """A batch of the active segment is durable: readers may see it."""
        rows = queue.rows
        if rows is None:
            rows = queue.rows = Rows()
            self._active[queue.key] = queue
        rows.append(first_offset, count, position, length, at_ms)
        queue.end_offset = first_offset + count
        queue.bytes_in += length

    def add_slice(self, one: SliceAt) -> None:
        """A slice of a checkpoint in the active segment is durable."""
        self._slices.append(one)

    def load_active(
        self, rows_by_queue: dict[QueueKey, Rows], slices: Iterable[SliceAt], holes: Iterable[tuple[int, int]]
    ) -> None:
        """Take over what was found in the active segment."""
        for key, rows in rows_by_queue.items():
            if rows:
                queue = self.queue(key)
                queue.rows = rows
                self._active[key] = queue
        self._slices = list(slices)
        self._holes = list(holes)

    def active_contents(self) -> tuple[dict[QueueKey, Rows], list[SliceAt], list[tuple[int, int]]]:
        """What is known about the active segment: rows by queue, checkpoint slices, holes."""
        return {key: queue.rows for key, queue in self._active.items() if queue.rows}, self._slices, self._holes

    def holes(self) -> list[tuple[int, int]]:
        """Position and length of all damaged places that indexes tell of."""
        return [*(hole for one in self.contents.values() for hole in one.holes), *self._holes]

    def load_sealed(self, segment: Segment, contents: Contents) -> None:
        """Take over a sealed segment that has an index file; in order of position."""
        segment.end = contents.end
        segment.last_stored_at_ms = contents.last_stored_at_ms
        self.segments.append(segment)
        self.contents[segment.base] = contents
        for entry in contents.queues:
            self.queue((entry.topic_id, entry.queue_id)).runs.append(Run.indexed(segment, entry))
            self.run_count += 1

    def reindexed(self, segment: Segment, contents: Contents) -> None:
        """The index of a sealed segment was made anew, for frames that were damaged are there again."""
        were = {position for position, _ in self.contents[segment.base].holes}
        left = [
            replace(one, position=position, length_bytes=length)
            for one in self.damages
            if one.position in were
            for position, length in contents.holes
            if one.position <= position < one.position + one.length_bytes
        ]
        self.damages = [*(one for one in self.damages if one.position not in were), *left]
        self.contents[segment.base] = contents
        for entry in contents.queues:
            runs = self.queue((entry.topic_id, entry.queue_id)).runs
            at = bisect_left(runs, segment.base, key=lambda run: run.segment.base)
            if at < len(runs) and runs[at].segment is segment:
                runs[at] = Run.indexed(segment, entry)
            else:
                runs.insert(at, Run.indexed(segment, entry))
                self.run_count += 1

    def seal(self, segment: Segment) -> "Sealed":
        """The active segment is full and durable: its rows become runs. Returns what its index file is made of."""
        runs: dict[QueueKey, Run] = {}
        for key, queue in self._active.items():
            if queue.rows:
                runs[key] = Run.fresh(segment, queue.rows)
                queue.runs.append(runs[key])
                self.run_count += 1
            queue.rows = None
        sealed = Sealed(segment, runs, self._slices, self._holes)
        self._active, self._slices, self._holes = {}, [], []
        return sealed

    def indexed(self, sealed: "Sealed", contents: Contents) -> None:
        """The index file of a sealed segment is written: its rows need not stay in memory."""
        self.contents[sealed.segment.base] = contents
        for entry in contents.queues:
            run = sealed.runs[entry.topic_id, entry.queue_id]
            run.entry, run.rows = entry, None

    def begins_without(self, count: int) -> dict[QueueKey, int]:
        """Where each queue begins once the `count` oldest segments are dropped."""
        gone = {one.base for one in self.segments[:count]}
        begins = {key: queue.begin_offset for key, queue in self.queues.items()}
        for key, queue in self.queues.items():
            if queue.runs and queue.runs[0].segment.base in gone:
                left = next((run for run in queue.runs if run.segment.base not in gone), None)
                last = queue.rows.begin_offset if queue.rows else queue.end_offset
                begins[key] = left.begin_offset if left is not None else last
        return begins

    def drop_first_segment(self) -> Segment:
        """Forget the oldest segment: queues begin later now."""
        segment = self.segments.pop(0)
        contents = self.contents.pop(segment.base, None)
        keys = [(entry.topic_id, entry.queue_id) for entry in contents.queues] if contents else list(self.queues)
        for key in keys:
            queue = self.queues.get(key)
            if queue is not None and queue.runs and queue.runs[0].segment is segment:
                del queue.runs[0]
                self.run_count -= 1
                queue.begin_offset = queue.first_stored_offset()
        end = segment.end or segment.base
        self.damages = [one for one in self.damages if one.position + one.length_bytes > end]
        return segment

    def forget_topic(self, topic_id: int) -> list[QueueLog]:
        """Forget the queues of a topic; returns them."""
        keys = self._topics.pop(topic_id, [])
        for key in keys:
            self._active.pop(key, None)
            self.run_count -= len(self.queues[key].runs)
        return [self.queues.pop(key) for key in keys]

    def close(self) -> None:
        """Close all files."""
        for segment in self.segments:
            segment.retire()


@dataclass(slots=True, eq=False)
class Sealed:
    """A sealed segment that has no index file yet, and what the file is made of."""

    segment: Segment
    runs: dict[QueueKey, Run]
    slices: list[SliceAt]
    holes: list[tuple[int, int]]

    @property
    def rows_by_queue(self) -> dict[QueueKey, Rows]:
        """The rows to write."""
        return {key: run.rows for key, run in self.runs.items() if run.rows is not None}
