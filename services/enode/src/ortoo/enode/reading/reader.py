"""The reading end of the log: finds and reads the batches at an offset."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ortoo.common.errors import DataLoss, Unavailable
from ortoo.common.records.stored_batch import StoredBatch
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.atomic_files import Damaged
from ortoo.enode.index.catalog import Catalog, QueueLog, Run
from ortoo.enode.index.index_files import load_rows, make_index
from ortoo.enode.log.results import Damage, DamagedQueue, Fetched
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.enode.log.frame import HEADER_BYTES, BadFrame, Kind, decode_header, frame_bytes
from ortoo.enode.log.rows import Rows
from ortoo.enode.log.scan import Read, read_body
from ortoo.enode.log.segment import Segment, holding, segment_name
from ortoo.enode.reading.recent import Recent

GAP_BYTES_MAX = 4096
"""Maximum gap between frames that are read together."""
READ_BYTES_MAX = 256 << 10
SMALL_BYTES = 16 << 10
"""Up to this length a frame is read with its body in one read. A larger body is read separately, and not copied."""


class Place(NamedTuple):
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
        """The offset after its last message."""
        return self.first_offset + self.message_count


@dataclass(frozen=True, slots=True)
class BadPlace:
    """A place whose frame is damaged or does not match the index."""

    place: Place
    reason: str
    is_other: bool = False
    """Whether another whole frame lies there."""


Look = Callable[[StoredBatch], None]
"""Called with each batch that was read, outside the event loop."""
Seeing = Callable[..., Awaitable[BadPlace | None]]


@dataclass(eq=False)
class Reader:
    """Finds and reads batches. It belongs to the event loop; only disk work runs outside it."""

    catalog: Catalog
    disk: Disk
    work: DiskWork
    recent: Recent
    """Batches in memory."""
    index_bytes: int
    """Approximate maximum memory for rows of earlier segments."""
    repair: Callable[[int, int, bool], Awaitable[int]] | None = None
    """Repairs the frame at a position, which ends at another, from another replica's copy; 0 if there is none.

    The third argument is whether a whole frame lies there, possibly of another log.
    """
    hits: int = 0
    misses: int = 0
    _loaded: OrderedDict[Run, Rows] = field(default_factory=OrderedDict)
    _loaded_bytes: int = 0

    async def read(self, queue: QueueLog, from_offset: int, bytes_max: int, look: Look | None = None) -> Fetched:
        """Whole batches from the one with `from_offset` on that fit `bytes_max`, at least one.

        With `look` the answer has no batches; each is passed to it when it is read, outside the event loop.
        `from_offset` lies in the queue's range. Errors: those of `look`. DataLoss when that batch is damaged.
        Unavailable when the disk cannot be read now. Overloaded when no file can be opened.
        """
        run = queue.run_with(from_offset)
        segment = run.segment if run is not None else self.catalog.active
        try:
            rows = queue.rows if run is None else run.rows
            if rows is None:
                rows = await self._rows_of(run) if run is not None else Rows()
            row = rows.find(from_offset)
            if row >= 0:
                return await self._read_rows(queue, segment, rows, row, bytes_max, look)
            if not await self._filled(queue, from_offset):
                raise self._hole(queue, from_offset, rows, -1 - row)
        except OSError as error:
            raise _unreadable(error) from error
        return await self.read(queue, from_offset, bytes_max, look)

    async def find_time(self, queue: QueueLog, stored_at_ms: int) -> int:
        """The first offset stored at or after a time; the end of the queue if there is none."""
        for run in tuple(queue.runs):  # retention may delete some meanwhile
            if run.entry.last_stored_at_ms >= stored_at_ms:
                try:
                    rows = run.rows or await self._rows_of(run)
                except OSError as error:
                    raise _unreadable(error) from error
                row = rows.find_time(stored_at_ms)
                if row < len(rows):  # the last ones may be damaged
                    return rows.first_offsets[row]
        if queue.rows:
            row = queue.rows.find_time(stored_at_ms)
            if row < len(queue.rows):
                return queue.rows.first_offsets[row]
        return queue.end_offset

    async def _read_rows(
        self, queue: QueueLog, segment: Segment, rows: Rows, row: int, bytes_max: int, look: Look | None
    ) -> Fetched:
        end = rows.fitting(row, bytes_max)
        soon = end if look is None else rows.fitting(end, bytes_max)
        places = [Place(segment, *queue.key, *rows.row(at)) for at in range(row, soon)]
        places, ahead = places[: end - row], places[end - row :]
        found = list[StoredBatch]()
        for place in places:
            batch = self.recent.get(place.position)
            if batch is None:
                break
            found.append(batch)
        missing = places[len(found) :]
        self.hits += len(found)
        self.misses += len(missing)
        bad: BadPlace | None = None
        if look is not None:
            run: Seeing = self.work.scan if missing else self.work.run  # batches in memory need no disk
            bad = await self._see(run, look, found, missing, ahead)
            found = []
        elif missing:
            bad = await self._see(self.work.run, found.append, (), missing, ahead)
        if bad is None:
            return Fetched(tuple(found), places[-1].end_offset, queue.end_offset)
        damage, first_offset = self._remember(bad), bad.place.first_offset
        if bad.place == places[0]:
            raise _damaged(damage, first_offset, bad.place.end_offset)
        return Fetched(tuple(found), first_offset, queue.end_offset)

    async def _see(
        self, run: Seeing, look: Look, found: Sequence[StoredBatch], places: list[Place], ahead: list[Place]
    ) -> BadPlace | None:
        """Pass batches to `look` until one cannot be repaired; a repaired one is read again.

        Errors: Unavailable, OSError, and those of `look`.
        """
        bad, position = await run(see, look, found, places, ahead), -1
        while bad is not None and self.repair is not None and bad.place.position != position:
            position = bad.place.position
            if not await self.repair(position, position + frame_bytes(bad.place.length), bad.is_other):
                break
            bad = await run(see, look, (), places[places.index(bad.place) :], [])
        return bad

    async def _filled(self, queue: QueueLog, offset: int) -> bool:
        """Repair the damaged places of closed segments that may hold an offset; whether any was repaired."""
        if self.repair is None:
            return False
        is_filled = False
        damaged = [self._sealed_at(damage.position) for damage in self._damages_at(queue, offset)]
        for segment in dict.fromkeys(one for one in damaged if one is not None):
            known = self.catalog.contents.get(segment.base)
            holes, repaired = known.holes if known else (), 0
            for position, length in holes:
                at = position
                while position <= at < position + length:
                    at = await self.repair(at, position + length, False)
                    repaired += at > 0
            if repaired and not segment.retired:
                contents = await self.work.run(make_index, self.disk, segment, segment.end or segment.base)
                if contents.holes != holes and not segment.retired:
                    self.forget(segment)
                    self.catalog.reindexed(segment, contents)
                    is_filled = True
        return is_filled

    def _sealed_at(self, position: int) -> Segment | None:
        """The closed segment with a position; None when its file is missing, or the log ends in it."""
        segment = holding(self.catalog.segments, position)
        return segment if segment is not None and segment.base in self.catalog.contents else None

    async def _rows_of(self, run: Run) -> Rows:
        """The rows of a sealed run: from memory, from the index file, or from the segment if the file is damaged."""
        rows = self._loaded.get(run)
        if rows is not None:
            self._loaded.move_to_end(run)
            return rows
        try:
            rows = await self.work.run(load_rows, self.disk, run)
        except (Damaged, FileNotFoundError):
            end = run.segment.end or run.segment.base
            contents = await self.work.run(make_index, self.disk, run.segment, end)
            for entry in contents.queues:
                queue = self.catalog.queues.get((entry.topic_id, entry.queue_id))
                for one in queue.runs if queue is not None else ():
                    if one.segment is run.segment:
                        one.entry = entry
            try:
                rows = await self.work.run(load_rows, self.disk, run)
            except Damaged as error:
                raise _lost(f"{run.segment.path}: {error}", run.entry.begin_offset, run.entry.end_offset) from error
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

    def _remember(self, bad: BadPlace) -> Damage:
        place = bad.place
        lost = DamagedQueue(place.topic_id, place.queue_id, place.first_offset, place.end_offset)
        damage = Damage(
            segment_name(place.segment.base), place.position, frame_bytes(place.length), bad.reason, (lost,)
        )
        if all(one.position != damage.position for one in self.catalog.damages):
            self.catalog.damages.append(damage)
        return damage

    def _hole(self, queue: QueueLog, offset: int, rows: Rows, next_row: int) -> DataLoss:
        """The error for an offset without a batch, with the next readable offset."""
        if next_row < len(rows):
            resume = rows.first_offsets[next_row]
        else:
            later = queue.run_with(rows.end_offset if rows else offset)
            if later is not None and later.entry.begin_offset > offset:
                resume = later.entry.begin_offset
            else:
                resume = queue.rows.begin_offset if queue.rows and queue.rows is not rows else queue.end_offset
        if damages := self._damages_at(queue, offset):
            return _damaged(damages[0], offset, resume)
        return _lost(f"no batch holds offset {offset}, because its place in the log is damaged", offset, resume)

    def _damages_at(self, queue: QueueLog, offset: int) -> list[Damage]:
        return [
            damage
            for damage in self.catalog.damages
            if any(
                (one.topic_id, one.queue_id) == queue.key and one.begin_offset <= offset < one.end_offset
                for one in damage.queues
            )
        ]


def _unreadable(error: OSError) -> Unavailable:
    return Unavailable(f"the log cannot be read now: {error}", retry_after_ms=100)


def _damaged(damage: Damage, begin_offset: int, end_offset: int) -> DataLoss:
    return _lost(
        f"offsets {begin_offset} to {end_offset} are damaged: {damage.file}, log position {damage.position}, "
        f"{damage.length_bytes} bytes, {damage.reason}",
        begin_offset,
        end_offset,
    )


def _lost(reason: str, begin_offset: int, end_offset: int) -> DataLoss:
    """The error for unreadable offsets, with the next readable offset."""
    return DataLoss(
        f"{reason}; continue to read at offset {end_offset}",
        field="from_offset",
        begin_offset=begin_offset,
        end_offset=end_offset,
    )


def see(look: Look, found: Sequence[StoredBatch], places: list[Place], ahead: list[Place]) -> BadPlace | None:
    """Pass `found` batches to `look`, then read `places` one by one and pass them, until one is bad.

    It runs outside the event loop, and accesses only the segments' files. Small frames that lie close together are read
    with one call. The places `ahead` are prefetched for the next read.
    """
    for place in ahead:
        place.segment.read_ahead(place.position, HEADER_BYTES + place.length)
    for batch in found:
        look(batch)
    for start, end in _neighbours(places):
        first, last = places[start], places[end - 1]
        read: Read = first.segment.read
        if end - start > 1 or first.length <= SMALL_BYTES:
            together = read(first.position, last.position + HEADER_BYTES + last.length - first.position)
            read = partial(_cut, together, first.position)
        for place in places[start:end]:
            try:
                look(_batch_at(place, read))  # not kept during the next read, which reuses the memory
            except BadFrame as error:
                return BadPlace(place, str(error), isinstance(error, OtherFrame))
    return None


class OtherFrame(BadFrame):
    """A whole frame at a place, but not the one in the index."""


def _cut(data: bytes, begin_position: int, position: int, length: int) -> bytes:
    """Bytes of the log from `position`, out of `data`, which lies at `begin_position`."""
    return data[position - begin_position : position - begin_position + length]


def _neighbours(places: list[Place]) -> Iterator[tuple[int, int]]:
    """Ranges of places, by number, that one read gets with small gaps."""
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


def _batch_at(place: Place, read: Read) -> StoredBatch:
    """Read a batch. Errors: BadFrame unless it is whole and its frame matches the index."""
    header = decode_header(read(place.position, HEADER_BYTES), place.position)
    if (
        header.kind != Kind.MESSAGES
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
