"""Reads a log of which no other disk has a copy, and the state at its end. Damaged places are skipped and reported.

docs/formats/crash-safety.md has the reasons. It runs only on blocking calls, without the event loop.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ortoo.common.errors import DataLoss
from ortoo.common.logs.logger import get_logger
from ortoo.enode import log_events
from ortoo.enode.changes.kinds import OffsetsSkipped, decode_changes, encode_changes
from ortoo.enode.disk.atomic_files import DamagedFile
from ortoo.enode.disk.clean_stop import CleanStop, read_clean_stop
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.durable_mark import read_durable_mark
from ortoo.enode.disk.identity import StoreIdentity, read_identity
from ortoo.enode.disk.log_begin import LogBegin, read_log_begin
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.index.catalog import LogCatalog
from ortoo.enode.index.index_files import make_index, read_contents
from ortoo.enode.index.survey import SegmentSurvey, find_log_end, survey
from ortoo.enode.log.frame import HEADER_BYTES, BadFrame, FrameFlag, decode_header
from ortoo.enode.log.queue_index import IndexParts, SegmentContents, decode_contents, decode_rows, encode_index
from ortoo.enode.log.scan import Hole
from ortoo.enode.log.segment import (
    Segment,
    segment_bases,
    segment_name,
)
from ortoo.enode.recovery.losses import find_damages
from ortoo.enode.recovery.owners import check_frame_owner
from ortoo.enode.recovery.refold import StateRefold
from ortoo.enode.recovery.segment_changes import remove_leftovers, rewrite_unsynced, zero_behind
from ortoo.enode.recovery.strays import find_strays, frame_at, has_frame
from ortoo.enode.state.fold import State

_log = get_logger("store")


@dataclass(slots=True)
class Recovered:
    """The contents of an opened and repaired store."""

    catalog: LogCatalog
    state: State
    end_position: int
    """The position of the next frame."""
    store_open: int
    """The number of the previous opening."""
    stored_at_ms: int
    active: Segment | None
    """The segment for the next frame; None when a new one must be made."""
    was_clean: bool
    skips: list[OffsetsSkipped] = field(default_factory=list)
    """Changes to store before requests are served."""
    holes: list[Hole] = field(default_factory=list)
    """Damaged places."""
    truncated_bytes: int = 0
    """Bytes of the torn tail that were truncated."""
    begin: LogBegin | None = None
    """The recorded begin of the log; None in a store of an older version."""
    strays: list[str] = field(default_factory=list)
    """Names of stray files: they have a segment's name and are not segments."""
    missing_bytes: int = 0
    """Durable bytes that are missing because the last file was cut short."""
    state_bytes: int = 0
    """Length of the encoded state in the checkpoint or marker from which it was loaded."""
    leader_epoch: int = 0
    """The epoch of the last frame, if the last segment has one."""

    @property
    def is_end_lost(self) -> bool:
        """Whether the log ends in a damaged place, which may have held more openings and epochs."""
        return any(one.end_position >= self.end_position for one in self.holes)


def recover(
    files: SegmentFiles,
    folder: Path,
    *,
    begin: LogBegin | None = None,
    known_end: int = 0,
    repairs: bool = True,
    without_checkpoint: bool = False,
    identity: StoreIdentity | None = None,
) -> Recovered:
    """Read the log, which no other replica has, and the state at its end. Damaged places are skipped and reported.

    With `repairs` (the default) also truncate a torn tail, make missing index files and remove leftovers; without,
    nothing is written. `without_checkpoint` accepts a state folded from the existing segments, although older ones are
    missing. `begin` is the begin of the log; None = the recorded one. `known_end` is a position up to which the log was
    durable, besides those that the durable mark and the marker of a clean stop record. `identity` is the future
    identity of a folder without one. The caller closes `files`.

    Errors: Unsupported, OSError, DataLoss.
    """
    disk = files.disk
    begin = begin or read_log_begin(disk, folder)
    begin_position = begin.position if begin is not None else 0
    if repairs:
        remove_leftovers(disk, folder, begin_position)
    starts = [base for base in segment_bases(disk.list(folder)) if base >= begin_position]
    strays = find_strays(files, folder, starts)
    starts = [base for base in starts if base not in strays]
    ways = {"repairs": repairs, "without_checkpoint": without_checkpoint}
    recovered = _recover(files, folder, starts, begin, known_end, identity or read_identity(disk, folder), **ways)
    recovered.strays = [segment_name(base) for base in strays]
    return recovered


def _recover(
    files: SegmentFiles,
    folder: Path,
    starts: list[int],
    begin: LogBegin | None,
    known_end: int,
    identity: StoreIdentity | None,
    *,
    repairs: bool,
    without_checkpoint: bool,
) -> Recovered:
    disk = files.disk
    clean = read_clean_stop(disk, folder)
    durable = max(known_end, read_durable_mark(disk, folder), clean.end_position if clean else 0)
    tag, log_mark = (identity.tag, identity.log_mark) if identity is not None else (0, 0)
    catalog = LogCatalog(files, tag)
    if not starts:
        if durable:
            raise DataLoss(
                f"{folder} held a log up to position {durable}, but no segment is left. Restore the files from a "
                f"copy, or run `ortoo-enode repair {folder} --caches` to start an empty log"
            )
        return Recovered(catalog, State(), begin.position if begin else 0, 0, 0, None, was_clean=False, begin=begin)
    for base, next_base in pairwise(starts):
        load_sealed(catalog, disk, Segment(files, folder, base, next_base), next_base, repairs=repairs)
    last = Segment(files, folder, starts[-1], starts[-1])
    last.limit = last.base + last.size_bytes()
    if clean is not None and is_at_log_end(clean, last, log_mark):
        catalog.segments.append(last)
        recovered = recover_clean_stop(disk, catalog, last, clean, begin)
        closing = frame_at(last, clean.end_position - HEADER_BYTES)
        recovered.leader_epoch = closing.leader_epoch if closing is not None else 0
        return recovered

    truncated_bytes = 0
    truncated_at: int | None = None
    if durable > last.limit:
        # If the segment was ended, later files are missing. If it was not, the end of this file is missing.
        headers = survey(last.read, last.base, last.limit, log_mark)
        check_frame_owner(last.path, headers.foreign_at)
        truncated_at = None if headers.is_ended else headers.end_position
        load_sealed(catalog, disk, last, durable, repairs=repairs)
        found, end = SegmentSurvey(leader_epoch=headers.leader_epoch, end_position=durable, is_ended=True), durable
    else:
        catalog.segments.append(last)
        found = survey(last.read, last.base, last.limit, log_mark)
        found.durable_below = max(found.durable_below, durable)
        end = find_log_end(found, last.read, last.base, last.limit)
        if found.foreign_at < end:
            check_frame_owner(last.path, found.foreign_at)
        found.truncate(end)
        if repairs:
            rewrite_unsynced(last, max(last.base, min(found.durable_below, end)), end)
            truncated_bytes = zero_behind(last, end)
            last.writer.sync_data()
        catalog.load_active(found.parts)
        if found.is_ended and end == found.end_position:
            last.end, last.last_stored_at_ms = end, found.stored_at_ms
            if repairs and last.limit > end:
                last.writer.truncate(end - last.base)
                last.limit = end
        last.stop_writing()
    recovered = _fold_state(catalog, found, end, truncated_at, log_mark, without_checkpoint=without_checkpoint)
    recovered.truncated_bytes, recovered.begin = truncated_bytes, begin
    recovered.holes += _missing_beginning(catalog, begin)
    set_queue_ranges(recovered)
    catalog.damages = find_damages(catalog, recovered.holes, disk)
    return recovered


def _fold_state(
    catalog: LogCatalog,
    found: SegmentSurvey,
    end: int,
    truncated_at: int | None,
    log_mark: int,
    *,
    without_checkpoint: bool,
) -> Recovered:
    """The state at the log's end, and all holes."""
    holes = _known_holes(catalog, catalog.contents.values()) + found.holes
    slices = [part for one in catalog.contents.values() for part in one.slices] + found.slices
    as_of = end if truncated_at is None else truncated_at
    fold = StateRefold(catalog.segments, slices, as_of, without_checkpoint=without_checkpoint, log_mark=log_mark)
    fold.forget_producers(is_cut=truncated_at is not None)
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
        skips=fold.offsets_to_skip(is_cut=truncated_at is not None),
        holes=holes,
        missing_bytes=0 if truncated_at is None else end - truncated_at,
        state_bytes=fold.checkpoint_bytes,
        leader_epoch=found.leader_epoch,
    )


def _known_holes(catalog: LogCatalog, contents: Iterable[SegmentContents]) -> list[Hole]:
    """The damaged places that index files list."""
    by_base = {segment.base: segment for segment in catalog.segments}
    holes = []
    for one in contents:
        for position, length in one.holes:
            file_end = one.base + by_base[one.base].size_bytes()
            reason = f"the file ends at log position {file_end}" if file_end < position + length else "damaged"
            holes.append(Hole(position, length, reason))
    return holes


def _missing_beginning(catalog: LogCatalog, begin: LogBegin | None) -> list[Hole]:
    """A hole for missing first segments that retention did not delete."""
    if begin is None or catalog.begin_position <= begin.position:
        return []
    return [Hole(begin.position, catalog.begin_position - begin.position, "the first segment files are missing")]


def is_at_log_end(clean: CleanStop, last: Segment, log_mark: int) -> bool:
    """Whether the log ends at the marker's position: in this segment, and without a frame there.

    The last batch of the marker's index must lie at its position, because the file may be another one.
    """
    if not last.base <= clean.end_position <= last.limit or has_frame(last, clean.end_position):
        return False
    try:
        contents = decode_contents(clean.active_index, last.base)
        places = ((one.last_position(clean.active_index), one.topic_id, one.queue_id) for one in contents.queues)
        position, *queue = max(places, default=(-1, 0, 0))
        frame = decode_header(last.read(position, HEADER_BYTES), position) if position >= 0 else None
        mark = frame_at(last, clean.end_position - HEADER_BYTES)
    except (DamagedFile, BadFrame):
        return False
    is_same = frame is None or [frame.topic_id, frame.queue_id] == queue
    return is_same and contents.end == clean.end_position and (mark is None or mark.is_of(log_mark))


def recover_clean_stop(
    disk: Disk, catalog: LogCatalog, last: Segment, clean: CleanStop, begin: LogBegin | None
) -> Recovered:
    """Load everything from the marker. No frame is read, except the last one of a full segment."""
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
    if clean.end_position >= last.limit and _has_end_mark(last, clean.end_position):
        last.end, last.last_stored_at_ms = clean.end_position, clean.stored_at_ms
        recovered.active = None
    set_queue_ranges(recovered)
    holes = _known_holes(catalog, (*catalog.contents.values(), contents)) + _missing_beginning(catalog, begin)
    catalog.damages = find_damages(catalog, holes, disk)
    return recovered


def _has_end_mark(segment: Segment, end: int) -> bool:
    """Whether a segment that is full up to `end` is ended.

    Without the mark, the next frame belongs into it, even if its file must grow. A start that reads the frames would
    not find a frame in another segment.
    """
    mark = frame_at(segment, end - HEADER_BYTES)
    return mark is not None and bool(mark.flags & FrameFlag.SEGMENT_END) and mark.end_position == end


def load_sealed(catalog: LogCatalog, disk: Disk, segment: Segment, next_base: int, *, repairs: bool) -> None:
    """Load a sealed segment from its index file, or from its frames if there is no whole index file."""
    contents = read_contents(disk, segment, catalog.tag)
    if contents is None or contents.end != next_base:
        contents = make_index(disk, segment, next_base, write=repairs, tag=catalog.tag)
    catalog.load_sealed(segment, contents)


def make_clean_stop(catalog: LogCatalog, state: State, end: int, store_open: int, stored_at_ms: int) -> CleanStop:
    """The marker of a clean stop at log position `end`, from which the next start loads the state and the index."""
    _, index = encode_index(catalog.active.base, end, stored_at_ms, catalog.active_parts)
    return CleanStop(end, store_open, stored_at_ms, encode_changes(tuple(state.checkpoint())), index)


def set_queue_ranges(recovered: Recovered) -> None:
    """Set the first and the next offset of every queue."""
    catalog, state = recovered.catalog, recovered.state
    for segment_contents in catalog.contents.values():
        for entry in segment_contents.queues:
            state.ends.extend((entry.topic_id, entry.queue_id), entry.end_offset)
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
        queue.begin_offset = max(begin, state.trims.of(*queue.key))


def log_opening(folder: Path, recovered: Recovered, end: int) -> None:
    """Log what a start found: the state of the log that ends at `end`, and its damage."""
    for name in recovered.strays:
        _log.emit(log_events.FOREIGN_SEGMENT_IGNORED, file=name)
    if recovered.missing_bytes:
        position = recovered.end_position - recovered.missing_bytes
        _log.emit(log_events.SEGMENT_TRUNCATED_OUTSIDE, missing_bytes=recovered.missing_bytes, position=position)
    for skip in recovered.skips:
        if skip.begin_offset < skip.end_offset:
            _log.emit(log_events.OFFSETS_SKIPPED_AFTER_DAMAGE, topic_id=skip.topic_id, queue_id=skip.queue_id)
    for damage in recovered.catalog.damages:
        _log.emit(
            log_events.LOG_DAMAGED,
            file=damage.file,
            position=damage.position,
            bytes=damage.length_bytes,
            reason=damage.reason,
            queues=len(damage.queues),
        )
    _log.emit(
        log_events.STORE_OPENED,
        folder=str(folder),
        clean=recovered.was_clean,
        end=end,
        truncated_bytes=recovered.truncated_bytes,
        segments=len(recovered.catalog.segments),
    )
