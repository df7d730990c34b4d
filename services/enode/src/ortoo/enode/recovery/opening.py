"""Opening a store: what is there, where the log ends, what the state is. docs/formats/crash-safety.md argues why.

Runs before anything else touches the store, wholly on blocking calls; it never needs the event loop.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ortoo.common.errors import DataLoss
from ortoo.common.logs.logger import get_logger
from ortoo.enode import log_events
from ortoo.enode.changes.all import OffsetsSkipped, decode_changes, encode_changes
from ortoo.enode.disk.clean_stop import CleanStop, read_clean_stop
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.log_begin import LogBegin, read_log_begin
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.disk.tide_mark import read_tide_mark
from ortoo.enode.disk.whole_files import Damaged
from ortoo.enode.index.catalog import Catalog
from ortoo.enode.index.index_files import make_index, read_contents
from ortoo.enode.index.survey import Survey, find_cut, survey
from ortoo.enode.log.queue_index import Contents, IndexParts, decode_contents, decode_rows, encode_index
from ortoo.enode.log.scan import Hole
from ortoo.enode.log.segment import (
    INDEX_SUFFIX,
    KEYS_SUFFIX,
    SPARE_SUFFIX,
    Segment,
    bases,
    remove_below,
    segment_name,
)
from ortoo.enode.recovery.losses import damages_of
from ortoo.enode.recovery.refold import Refold
from ortoo.enode.recovery.restored import begin_anew, read_apart, write_restored
from ortoo.enode.recovery.strays import has_frame, strays_among
from ortoo.enode.state.fold import State

CHUNK_BYTES = 1 << 20
_log = get_logger("store")


@dataclass(slots=True)
class Recovered:
    """A store as it was found and put right."""

    catalog: Catalog
    state: State
    end_position: int
    """Where the log goes on."""
    store_open: int
    """The number of the opening before."""
    stored_at_ms: int
    active: Segment | None
    """The segment to go on in; None when a new one must be made."""
    was_clean: bool
    skips: list[OffsetsSkipped] = field(default_factory=list)
    """To be stored before anything is served."""
    holes: list[Hole] = field(default_factory=list)
    """Damaged places."""
    cut_bytes: int = 0
    """How much of a torn tail was cut off."""
    begin: LogBegin | None = None
    """Where the log begins, as it was recorded; None in a store of an older version."""
    strays: list[str] = field(default_factory=list)
    """Files that bear the name of a segment and are none."""
    missing_bytes: int = 0
    """How much that was durable is missing because the last file was cut short."""
    state_bytes: int = 0
    """How long the state was as encoded, in the checkpoint or the marker that it was taken from."""
    is_restored: bool = False
    """Whether it ends before what others know of it, and what that means is not in the log yet."""


def recover(files: SegmentFiles, folder: Path, *, repairs: bool = True, without_checkpoint: bool = False) -> Recovered:
    """Find out what a folder holds.

    With `repairs` (the default) also cut a torn tail, make missing index files and remove leftovers; without, nothing
    is written. `without_checkpoint` accepts a state folded from the segments that are there, though older ones are
    missing. What is opened is among `files`, which the caller closes.

    Errors: DataLoss, Unsupported, OSError.
    """
    disk = files.disk
    begin = read_log_begin(disk, folder)
    begin_position = begin.position if begin is not None else 0
    if repairs:
        sweep(disk, folder, begin_position)
    starts = [base for base in bases(disk.list(folder)) if base >= begin_position]
    strays = strays_among(files, folder, starts)
    starts = [base for base in starts if base not in strays]
    recovered = _recover(files, folder, starts, begin, repairs=repairs, without_checkpoint=without_checkpoint)
    recovered.strays = [segment_name(base) for base in strays]
    if recovered.missing_bytes and repairs and not read_apart(disk, folder):
        write_restored(disk, folder)
    if apart := read_apart(disk, folder):
        recovered.state.apply_all(begin_anew(recovered.state, apart, recovered.stored_at_ms))
        settle_ranges(recovered)
        recovered.store_open += apart
        recovered.is_restored = True
    return recovered


def _recover(
    files: SegmentFiles,
    folder: Path,
    starts: list[int],
    begin: LogBegin | None,
    *,
    repairs: bool,
    without_checkpoint: bool,
) -> Recovered:
    disk = files.disk
    clean = read_clean_stop(disk, folder)
    durable = max(read_tide_mark(disk, folder), clean.end_position if clean else 0)
    catalog = Catalog(files)
    if not starts:
        if durable:
            raise DataLoss(
                f"{folder} held a log up to position {durable}, and no segment is left: put the files back from a "
                f"copy, or run `ortoo-enode repair {folder} --caches` to begin an empty log"
            )
        return Recovered(catalog, State(), begin.position if begin else 0, 0, 0, None, was_clean=False, begin=begin)
    for base, next_base in pairwise(starts):
        load_sealed(catalog, disk, Segment(files, folder, base, next_base), next_base, repairs=repairs)
    last = Segment(files, folder, starts[-1], starts[-1])
    last.limit = last.base + last.size_bytes()
    if clean is not None and is_end_of_log(clean, last):
        catalog.segments.append(last)
        return after_clean_stop(disk, catalog, last, clean, begin)

    cut_bytes = 0
    cut_at: int | None = None
    if durable > last.limit:
        # Behind a segment that was ended files are missing; of one that was not, the end of the file is.
        headers = survey(last.read, last.base, last.limit)
        cut_at = None if headers.is_ended else headers.end_position
        load_sealed(catalog, disk, last, durable, repairs=repairs)
        found, end = Survey(end_position=durable, is_ended=True), durable
    else:
        catalog.segments.append(last)
        found = survey(last.read, last.base, last.limit)
        found.durable_below = max(found.durable_below, durable)
        end = find_cut(found, last.read, last.base, last.limit)
        found.cut(end)
        if repairs:
            rewrite(last, max(last.base, min(found.durable_below, end)), end)
            cut_bytes = zero(last, end)
            last.writer.sync_data()
        catalog.load_active(found.parts)
        if found.is_ended and end == found.end_position:
            last.end, last.last_stored_at_ms = end, found.stored_at_ms
            if repairs and last.limit > end:
                last.writer.truncate(end - last.base)
                last.limit = end
        last.stop_writing()
    recovered = _folded(catalog, found, end, cut_at, without_checkpoint=without_checkpoint)
    recovered.cut_bytes, recovered.begin = cut_bytes, begin
    recovered.holes += _missing_beginning(catalog, begin)
    settle_ranges(recovered)
    catalog.damages = damages_of(catalog, recovered.holes, disk)
    return recovered


def _folded(catalog: Catalog, found: Survey, end: int, cut_at: int | None, *, without_checkpoint: bool) -> Recovered:
    """The state at the log's end, and every hole that was met."""
    holes = _known_holes(catalog, catalog.contents.values()) + found.holes
    slices = [part for one in catalog.contents.values() for part in one.slices] + found.slices
    fold = Refold(catalog.segments, slices, end if cut_at is None else cut_at, without_checkpoint=without_checkpoint)
    fold.forget_producers(is_cut=cut_at is not None)
    known = {hole.position for hole in holes}
    holes += [hole for hole in fold.holes if hole.position not in known]
    return Recovered(
        catalog,
        fold.state,
        end,
        max(found.store_open, fold.store_open),
        max([found.stored_at_ms, *(one.last_stored_at_ms for one in catalog.segments)]),
        None if catalog.segments[-1].end is not None else catalog.segments[-1],
        was_clean=False,
        skips=fold.skips(is_cut=cut_at is not None),
        holes=holes,
        missing_bytes=0 if cut_at is None else end - cut_at,
        state_bytes=fold.checkpoint_bytes,
    )


def _known_holes(catalog: Catalog, contents: Iterable[Contents]) -> list[Hole]:
    """The damaged places that index files tell of."""
    by_base = {segment.base: segment for segment in catalog.segments}
    holes = []
    for one in contents:
        for position, length in one.holes:
            file_end = one.base + by_base[one.base].size_bytes()
            reason = f"the file ends at log position {file_end}" if file_end < position + length else "damaged"
            holes.append(Hole(position, length, reason))
    return holes


def _missing_beginning(catalog: Catalog, begin: LogBegin | None) -> list[Hole]:
    """The first segments, when they are not there though retention never let them go."""
    if begin is None or catalog.begin_position <= begin.position:
        return []
    return [Hole(begin.position, catalog.begin_position - begin.position, "the first segment files are missing")]


def sweep(disk: Disk, folder: Path, begin_position: int) -> None:
    """Remove what interrupted work left behind."""
    try:
        remove_below(disk, folder, begin_position)
    except OSError as error:
        _log.emit(log_events.SEGMENT_DELETE_FAILED, reason=str(error))
    names = disk.list(folder)
    segments = {segment_name(base) for base in bases(names)}
    orphans = {
        segment_name(base, suffix)
        for suffix in (INDEX_SUFFIX, KEYS_SUFFIX)
        for base in bases(names, suffix)
        if segment_name(base) not in segments
    }
    left = [name for name in names if name in orphans or name.endswith((SPARE_SUFFIX, ".tmp"))]
    for name in left:
        disk.remove(folder / name)
    if left:
        disk.sync_directory(folder)


def is_end_of_log(clean: CleanStop, last: Segment) -> bool:
    """Whether the log really ends where the marker says: in this segment, and no frame lies there."""
    try:
        is_there = last.base <= clean.end_position <= last.limit
        if not is_there or decode_contents(clean.active_index, last.base).end != clean.end_position:
            return False
    except Damaged:
        return False
    return not has_frame(last, clean.end_position)


def after_clean_stop(
    disk: Disk, catalog: Catalog, last: Segment, clean: CleanStop, begin: LogBegin | None
) -> Recovered:
    """Take everything from the marker; no frame is read."""
    state = State()
    state.apply_all(decode_changes(clean.state))
    contents = decode_contents(clean.active_index, last.base)
    rows = {
        (one.topic_id, one.queue_id): decode_rows(
            one, clean.active_index[one.block_at : one.block_at + one.block_bytes]
        )
        for one in contents.queues
    }
    catalog.load_active(IndexParts(rows, list(contents.slices), list(contents.holes)))
    recovered = Recovered(
        catalog, state, clean.end_position, clean.store_open, clean.stored_at_ms, last, was_clean=True, begin=begin,
        state_bytes=len(clean.state),
    )  # fmt: skip
    if clean.end_position >= last.limit:
        last.end, last.last_stored_at_ms = clean.end_position, clean.stored_at_ms
        recovered.active = None
    settle_ranges(recovered)
    holes = _known_holes(catalog, (*catalog.contents.values(), contents)) + _missing_beginning(catalog, begin)
    catalog.damages = damages_of(catalog, holes, disk)
    return recovered


def load_sealed(catalog: Catalog, disk: Disk, segment: Segment, next_base: int, *, repairs: bool) -> None:
    """Take over a sealed segment: by its index file, or by its frames when there is no whole one."""
    contents = read_contents(disk, segment)
    if contents is None or contents.end != next_base:
        contents = make_index(disk, segment, next_base, write=repairs)
    catalog.load_sealed(segment, contents)


def marker_of(catalog: Catalog, state: State, end: int, store_open: int, stored_at_ms: int) -> CleanStop:
    """The marker of a clean stop at log position `end`, which lets the next start take over all that is known here."""
    _, index = encode_index(catalog.active.base, end, stored_at_ms, catalog.active_parts)
    return CleanStop(end, store_open, stored_at_ms, encode_changes(tuple(state.checkpoint())), index)


def rewrite(segment: Segment, position: int, end: int) -> None:
    """Write again what was read from `position` on, where nothing says that it is durable.

    After a failed fdatasync the page cache may show bytes that the disk never got, and no later sync writes them: only
    a new write does. They were checked frame by frame.
    """
    for at, chunk in _chunks(segment, position, end):
        segment.writer.write(at - segment.base, [chunk])


def zero(segment: Segment, position: int) -> int:
    """Write zeros over whatever lies behind the log's end, so that it never comes back; return how many bytes."""
    cut = 0
    for at, chunk in _chunks(segment, position, segment.limit):
        if chunk.count(0) != len(chunk):
            segment.writer.write(at - segment.base, [bytes(len(chunk))])
            cut += len(chunk)
    return cut


def _chunks(segment: Segment, position: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The bytes of a segment between two positions, each part with where it lies."""
    while position < end and (chunk := segment.read(position, min(CHUNK_BYTES, end - position))):
        yield position, chunk
        position += len(chunk)


def settle_ranges(recovered: Recovered) -> None:
    """Give every queue its first and next offset."""
    catalog, state = recovered.catalog, recovered.state
    for segment_contents in catalog.contents.values():
        for entry in segment_contents.queues:
            state.ends.see((entry.topic_id, entry.queue_id), entry.end_offset)
    catalog.floor = state.ends.floor
    log_begin = recovered.begin or LogBegin(catalog.begin_position, None)
    recorded = log_begin.queues
    is_whole = log_begin.position == 0
    for key, end in state.ends.all():
        queue = catalog.queue(key)
        if queue.rows:
            end.offset = max(end.offset, queue.rows.end_offset)
        queue.end_offset = queue.next_offset = max(end.offset, queue.end_offset)
    for queue in catalog.queues.values():
        begin = queue.first_stored_offset()
        if is_whole:
            begin = min(begin, state.ends.floor, *(first for first, _ in state.ends.skipped(queue.key)))
        elif recorded is not None:
            begin = min(begin, recorded.get(queue.key, state.ends.floor))
        queue.begin_offset = begin
