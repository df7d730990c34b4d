"""The reading end of the log: finds and reads the batches at an offset."""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from sys import maxsize
from typing import NamedTuple

from ortoo.common.errors import DataLoss, Unavailable
from ortoo.common.records.sealed_batch import StoredBatch
from ortoo.enode.disk.atomic_files import DamagedFile
from ortoo.enode.disk.disk import Disk
from ortoo.enode.index.catalog import LogCatalog, QueueLog, SealedRun
from ortoo.enode.index.index_files import load_rows, make_index
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.enode.log.frame import HEADER_BYTES, BadFrame, FrameKind, decode_header, frame_bytes
from ortoo.enode.log.results import Damage, DamagedQueue, FetchResult, QueueSize
from ortoo.enode.log.rows import IndexRows
from ortoo.enode.log.scan import Read, read_body
from ortoo.enode.log.segment import Segment, segment_at, segment_name
from ortoo.enode.reading.recent import RecentBatches

GAP_BYTES_MAX = 4096
"""Maximum gap between frames that are read together."""
READ_BYTES_MAX = 256 << 10
SMALL_BYTES = 16 << 10
"""Up to this length a frame is read with its body in one read. A larger body is read separately, and not copied."""

BATCHES_MAX = 512
"""Maximum number of batches of one read. The reader of an answer examines its fields one by one (`PIECES_MAX`)."""


class BatchLocation(NamedTuple):
    """The place of a batch, and the expected fields of its frame."""

    segment: Segment
    topic_id: int
    queue_id: int
    first_offset: int
    message_count: int
    position: int
    length: int

    @property
    def end_offset(self) -> int:
        """The offset after the batch's last message."""
        return self.first_offset + self.message_count


@dataclass(frozen=True, slots=True)
class DamagedBatch:
    """A place whose frame is damaged or does not match the index."""

    location: BatchLocation
    reason: str
    is_other: bool = False
    """Whether another whole frame lies there."""


OnBatch = Callable[[StoredBatch], None]
"""Called with each batch that was read, outside the event loop."""
RunScan = Callable[..., Awaitable[DamagedBatch | None]]


@dataclass(eq=False)
class Reader:
    """Finds and reads batches. It belongs to the event loop; only disk work runs outside it."""

    catalog: LogCatalog
    disk: Disk
    work: DiskWork
    recent: RecentBatches
    """Batches in memory."""
    index_bytes: int
    """Approximate maximum memory for rows of earlier segments."""
    repair: Callable[[int, int, bool], Awaitable[int]] | None = None
    """Repairs the frame at a position, which ends at another, from another replica's copy; 0 if there is none.

    The third argument is whether a whole frame lies there, possibly of another log.
    """
    hits: int = 0
    misses: int = 0
    _loaded: OrderedDict[SealedRun, IndexRows] = field(default_factory=OrderedDict)
    _loaded_bytes: int = 0

    async def read(
        self, queue: QueueLog, from_offset: int, bytes_max: int, on_batch: OnBatch | None = None, before: int = maxsize
    ) -> FetchResult:
        """Read whole batches from the batch that holds `from_offset` on, within `bytes_max`; at least one, at most 512.

        All but the first begin before the offset `before`. With `on_batch`, each batch is passed to `on_batch` outside
        the event loop, and the result has no batches. `from_offset` lies in the queue's range. Errors: those of
        `on_batch`. DataLoss when the first batch is damaged. Unavailable when the disk cannot be read now. Overloaded
        when no file can be opened.
        """
        run = queue.run_containing(from_offset)
        segment = run.segment if run is not None else self.catalog.active
        try:
            rows = queue.rows if run is None else run.rows
            if rows is None:
                rows = await self._rows_of(run) if run is not None else IndexRows()
            row = rows.find(from_offset)
            if row >= 0:
                span = range(row, min(bisect_left(rows.first_offsets, before), row + BATCHES_MAX))
                return await self._read_rows(queue, segment, rows, span, bytes_max, on_batch)
            if not await self._repair_holes(queue, from_offset):
                raise self._hole_error(queue, from_offset, rows, -1 - row)
        except OSError as error:
            raise _unreadable_error(error) from error
        return await self.read(queue, from_offset, bytes_max, on_batch, before)

    async def find_time(self, queue: QueueLog, stored_at_ms: int) -> int:
        """The first offset stored at or after a time; the end of the queue if there is none."""
        for run in tuple(queue.runs):  # retention may delete some meanwhile
            if run.entry.last_stored_at_ms >= stored_at_ms:
                try:
                    rows = run.rows or await self._rows_of(run)
                except OSError as error:
                    raise _unreadable_error(error) from error
                row = rows.find_time(stored_at_ms)
                if row < len(rows):  # the last ones may be damaged
                    return rows.first_offsets[row]
        if queue.rows:
            row = queue.rows.find_time(stored_at_ms)
            if row < len(queue.rows):
                return queue.rows.first_offsets[row]
        return queue.end_offset

    async def measure(self, queue: QueueLog, from_offset: int, bytes_max: int) -> QueueSize:
        """The bytes of the batches from the one that holds `from_offset` on, within `bytes_max`; at least one batch.

        Errors: DataLoss and Unavailable if an index cannot be read.
        """
        sealed = [
            run for run in queue.runs if run.entry.end_offset > from_offset
        ]  # retention may delete some meanwhile
        active, end_offset, size_bytes = queue.rows, from_offset, 0
        for run in (*sealed, None):
            try:
                rows = active if run is None else run.rows or await self._rows_of(run)
            except OSError as error:
                raise _unreadable_error(error) from error
            if not rows:
                continue
            found = rows.find(end_offset)
            row = found if found >= 0 else -1 - found  # offsets without a batch are damaged, and have no bytes
            end, added_bytes = rows.measure(row, bytes_max - size_bytes)
            if end == row < len(rows) and not size_bytes:
                end, added_bytes = row + 1, rows.lengths[row]
            if end > row:
                end_offset, size_bytes = rows.first_offsets[end - 1] + rows.counts[end - 1], size_bytes + added_bytes
            if end < len(rows):
                break
        return QueueSize(end_offset, size_bytes)

    async def _read_rows(
        self, queue: QueueLog, segment: Segment, rows: IndexRows, span: range, bytes_max: int, on_batch: OnBatch | None
    ) -> FetchResult:
        row, end = span.start, rows.end_fitting(span.start, bytes_max, span.stop)
        read_ahead_end = end if on_batch is None else rows.end_fitting(end, bytes_max, end + BATCHES_MAX)
        places = [BatchLocation(segment, *queue.key, *rows.row(at)) for at in range(row, read_ahead_end)]
        places, ahead = places[: end - row], places[end - row :]
        found = list[StoredBatch]()
        for place in places:
            batch = self.recent.get(place.position)
            if batch is None:
                break
            found.append(batch)
        durable_position = self.recent.durable_position()
        missing = [place for place in places[len(found) :] if place.position < durable_position]
        ahead = [place for place in ahead if place.position < durable_position]
        places = places[: len(found) + len(missing)]
        self.hits += len(found)
        self.misses += len(missing)
        damaged: DamagedBatch | None = None
        if on_batch is not None:
            run: RunScan = self.work.scan if missing else self.work.run  # batches in memory need no disk
            damaged = await self._scan_with_repair(run, on_batch, found, missing, ahead)
            found = []
        elif missing:
            damaged = await self._scan_with_repair(self.work.run, found.append, (), missing, ahead)
        if damaged is None:
            return FetchResult(tuple(found), places[-1].end_offset, queue.end_offset)
        damage, first_offset = self._record_damage(damaged), damaged.location.first_offset
        if damaged.location == places[0]:
            raise _damage_error(damage, first_offset, damaged.location.end_offset)
        return FetchResult(tuple(found), first_offset, queue.end_offset)

    async def _scan_with_repair(
        self,
        run: RunScan,
        on_batch: OnBatch,
        found: Sequence[StoredBatch],
        places: list[BatchLocation],
        ahead: list[BatchLocation],
    ) -> DamagedBatch | None:
        """Pass batches to `on_batch` until a damaged batch cannot be repaired. A repaired batch is read again.

        Errors: Unavailable, OSError, and those of `on_batch`.
        """
        damaged, position = await run(scan_batches, on_batch, found, places, ahead), -1
        while damaged is not None and self.repair is not None and damaged.location.position != position:
            position = damaged.location.position
            if not await self.repair(position, position + frame_bytes(damaged.location.length), damaged.is_other):
                break
            damaged = await run(scan_batches, on_batch, (), places[places.index(damaged.location) :], [])
        return damaged

    async def _repair_holes(self, queue: QueueLog, offset: int) -> bool:
        """Repair the damaged places of closed segments that may hold an offset; returns whether any was repaired."""
        if self.repair is None:
            return False
        is_repaired = False
        damaged = [self._sealed_segment_at(damage.position) for damage in self._damages_at(queue, offset)]
        for segment in dict.fromkeys(one for one in damaged if one is not None):
            known = self.catalog.contents.get(segment.base)
            holes, repaired = known.holes if known else (), 0
            for position, length in holes:
                at = position
                while position <= at < position + length:
                    at = await self.repair(at, position + length, False)
                    repaired += at > 0
            if repaired and not segment.is_retired:
                contents = await self.work.run(make_index, self.disk, segment, segment.end or segment.base)
                if contents.holes != holes and not segment.is_retired:
                    self.forget(segment)
                    self.catalog.replace_index(segment, contents)
                    is_repaired = True
        return is_repaired

    def _sealed_segment_at(self, position: int) -> Segment | None:
        """The sealed segment that holds a position; None when its file is missing, or it is the active segment."""
        segment = segment_at(self.catalog.segments, position)
        return segment if segment is not None and segment.base in self.catalog.contents else None

    async def _rows_of(self, run: SealedRun) -> IndexRows:
        """The rows of a sealed run: from memory, from the index file, or from the segment if the file is damaged."""
        rows = self._loaded.get(run)
        if rows is not None:
            self._loaded.move_to_end(run)
            return rows
        try:
            rows = await self.work.run(load_rows, self.disk, run)
        except (DamagedFile, FileNotFoundError):
            end = run.segment.end or run.segment.base
            contents = await self.work.run(make_index, self.disk, run.segment, end)
            for entry in contents.queues:
                queue = self.catalog.queues.get((entry.topic_id, entry.queue_id))
                for one in queue.runs if queue is not None else ():
                    if one.segment is run.segment:
                        one.entry = entry
            try:
                rows = await self.work.run(load_rows, self.disk, run)
            except DamagedFile as error:
                raise _loss_error(
                    f"{run.segment.path}: {error}", run.entry.begin_offset, run.entry.end_offset
                ) from error
        if run not in self._loaded:
            self._loaded[run] = rows
            self._loaded_bytes += rows.bytes
            while self._loaded_bytes > self.index_bytes and len(self._loaded) > 1:
                _, old = self._loaded.popitem(last=False)
                self._loaded_bytes -= old.bytes
        return rows

    def forget(self, segment: Segment) -> None:
        """Forget the rows of a deleted segment."""
        for run in [run for run in self._loaded if run.segment is segment]:
            self._loaded_bytes -= self._loaded.pop(run).bytes

    def _record_damage(self, damaged: DamagedBatch) -> Damage:
        place = damaged.location
        lost = DamagedQueue(place.topic_id, place.queue_id, place.first_offset, place.end_offset)
        damage = Damage(
            segment_name(place.segment.base), place.position, frame_bytes(place.length), damaged.reason, (lost,)
        )
        if all(one.position != damage.position for one in self.catalog.damages):
            self.catalog.damages.append(damage)
        return damage

    def _hole_error(self, queue: QueueLog, offset: int, rows: IndexRows, next_row: int) -> DataLoss:
        """The error for an offset without a batch, with the next readable offset."""
        if next_row < len(rows):
            resume = rows.first_offsets[next_row]
        else:
            later = queue.run_containing(rows.end_offset if rows else offset)
            if later is not None and later.entry.begin_offset > offset:
                resume = later.entry.begin_offset
            else:
                resume = queue.rows.begin_offset if queue.rows and queue.rows is not rows else queue.end_offset
        if damages := self._damages_at(queue, offset):
            return _damage_error(damages[0], offset, resume)
        return _loss_error(f"no batch holds offset {offset}, because its place in the log is damaged", offset, resume)

    def _damages_at(self, queue: QueueLog, offset: int) -> list[Damage]:
        return [
            damage
            for damage in self.catalog.damages
            if any(
                (one.topic_id, one.queue_id) == queue.key and one.begin_offset <= offset < one.end_offset
                for one in damage.queues
            )
        ]


def _unreadable_error(error: OSError) -> Unavailable:
    return Unavailable(f"the log cannot be read now: {error}", retry_after_ms=100)


def _damage_error(damage: Damage, begin_offset: int, end_offset: int) -> DataLoss:
    return _loss_error(
        f"offsets {begin_offset} to {end_offset} are damaged: {damage.file}, log position {damage.position}, "
        f"{damage.length_bytes} bytes, {damage.reason}",
        begin_offset,
        end_offset,
    )


def _loss_error(reason: str, begin_offset: int, end_offset: int) -> DataLoss:
    """The error for unreadable offsets, with the next readable offset."""
    return DataLoss(
        f"{reason}; continue to read at offset {end_offset}",
        field="from_offset",
        begin_offset=begin_offset,
        end_offset=end_offset,
    )


def scan_batches(
    on_batch: OnBatch, found: Sequence[StoredBatch], places: list[BatchLocation], ahead: list[BatchLocation]
) -> DamagedBatch | None:
    """Pass the batches `found` to `on_batch`, then read and pass those at `places`, until a batch is damaged.

    The scan runs outside the event loop, and accesses only the segments' files. Small frames that lie close together
    are read with one call. The places `ahead` are prefetched for the next read.
    """
    for place in ahead:
        place.segment.read_ahead(place.position, HEADER_BYTES + place.length)
    for batch in found:
        on_batch(batch)
    for start, end in _adjacent_runs(places):
        first, last = places[start], places[end - 1]
        read: Read = first.segment.read
        if end - start > 1 or first.length <= SMALL_BYTES:
            together = read(first.position, last.position + HEADER_BYTES + last.length - first.position)
            read = partial(_slice_of, together, first.position)
        for place in places[start:end]:
            try:
                on_batch(_batch_at(place, read))  # not kept during the next read, which reuses the memory
            except BadFrame as error:
                return DamagedBatch(place, str(error), isinstance(error, OtherFrame))
    return None


class OtherFrame(BadFrame):
    """The frame at a place is whole, but does not match the index."""


def _slice_of(data: bytes, begin_position: int, position: int, length: int) -> bytes:
    """Bytes of the log from `position`, taken from `data`, which begins at `begin_position`."""
    return data[position - begin_position : position - begin_position + length]


def _adjacent_runs(places: list[BatchLocation]) -> Iterator[tuple[int, int]]:
    """Ranges (begin, end) of indexes into `places`; one read gets a range, because its gaps are small."""
    start = 0
    for number in range(1, len(places) + 1):
        if number < len(places):
            before, place = places[number - 1], places[number]
            gap = place.position - (before.position + HEADER_BYTES + before.length)
            span = place.position + HEADER_BYTES + place.length - places[start].position
            if gap <= GAP_BYTES_MAX and span <= READ_BYTES_MAX:
                continue
        yield start, number
        start = number


def _batch_at(place: BatchLocation, read: Read) -> StoredBatch:
    """Read a batch. Errors: BadFrame when its frame is damaged or does not match the index."""
    header = decode_header(read(place.position, HEADER_BYTES), place.position)
    if (
        header.kind != FrameKind.MESSAGES
        or header.topic_id != place.topic_id
        or header.queue_id != place.queue_id
        or header.first_offset != place.first_offset
        or header.item_count != place.message_count
        or header.prefix_length + header.length != place.length
    ):
        raise OtherFrame("the frame does not match the index")
    body = read_body(read, header)
    batch = header.batch(body[header.prefix_length :] if header.prefix_length else body)
    return StoredBatch(header.first_offset, header.stored_at_ms, batch)
