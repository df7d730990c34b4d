"""Opens the log of a replica.

The only replica of a set commits what its disk has, so its log is read to the end, and damaged places are skipped.
Otherwise the state is folded up to a known committed position, and the later frames may still be truncated. Then as
little as possible is written. Frames that no flush of this disk covers are rewritten and synced, and a torn end is
truncated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from ortoo.common.errors import DataLoss
from ortoo.enode.disk.clean_stop import read_clean_stop, remove_clean_stop
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.durable_mark import read_durable_mark
from ortoo.enode.disk.hard_state_file import read_hard_state, write_hard_state
from ortoo.enode.disk.identity import read_identity
from ortoo.enode.disk.log_begin import LogBegin, read_log_begin
from ortoo.enode.disk.log_summary_file import NO_TRUNCATION, StoredLogSummary, write_log_summary
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.index.catalog import LogCatalog
from ortoo.enode.index.index_files import read_contents
from ortoo.enode.index.survey import SegmentSurvey, survey
from ortoo.enode.log.checkpoint import complete_checkpoints
from ortoo.enode.log.copies.frame_copies import make_entry
from ortoo.enode.log.flushing.flush_group import FlushGroup
from ortoo.enode.log.frame import BadFrame, FrameFlag, FrameHeader
from ortoo.enode.log.queue_index import SliceLocation
from ortoo.enode.log.scan import Hole, ReadWindow, read_body, walk
from ortoo.enode.log.segment import Segment, segment_bases
from ortoo.enode.recovery.losses import find_damages
from ortoo.enode.recovery.only_copy import (
    Recovered,
    is_at_log_end,
    load_sealed,
    recover,
    recover_clean_stop,
    set_queue_ranges,
)
from ortoo.enode.recovery.owners import is_foreign
from ortoo.enode.recovery.protocol_frames import ProtocolFrames
from ortoo.enode.recovery.refold import StateRefold, read_slice
from ortoo.enode.recovery.restored import read_openings_gap
from ortoo.enode.recovery.segment_changes import remove_leftovers, rewrite_unsynced, truncate_files
from ortoo.enode.replication.protocol.identity import HardState, Tail
from ortoo.enode.replication.protocol.log_summary import LogSummary
from ortoo.enode.state.fold import State

_END = 1 << 62
"""A position behind every log."""
GROUP_BYTES = 1 << 20
"""Approximate size of groups of frames that are not known to be committed; they are folded group by group."""


@dataclass(slots=True)
class ReplicaLog:
    """The log of a replica at its opening."""

    recovered: Recovered
    """The store up to the known committed position; `active` is the segment with that position."""
    summary: LogSummary
    """The log summary; all of it is durable."""
    groups: list[FlushGroup] = field(default_factory=list)
    """The later frames."""
    next_segments: list[Segment] = field(default_factory=list)
    """The segments behind the active one."""
    is_missing_state: bool = False
    """Whether the log's begin is deleted and there is no whole checkpoint yet, so that no state can be folded."""
    former_end: int = 0
    """The position that this disk once had, if it is beyond the log's end; 0 otherwise."""
    is_alone: bool = False
    """Whether no other replica has the log, so that what is durable here is committed."""
    last_epoch: int = 0
    """If `is_alone`, the highest epoch in the log."""


def recover_replica(
    files: SegmentFiles,
    folder: Path,
    stored: StoredLogSummary,
    *,
    is_last_copy: bool = False,
    repairs: bool = True,
    skipped_checkpoints: int = 0,
) -> ReplicaLog:
    """Read the log and the state of a replica's folder. The caller closes `files`.

    With `is_last_copy` the disk counts as the only replica, because all others are lost. Without `repairs` nothing is
    written. `skipped_checkpoints` is the number of newest checkpoints to skip if there are other replicas; the state
    may then be folded from the log's begin.

    Errors: DataLoss, Unsupported, OSError.
    """
    disk = files.disk
    if stored.pending_truncation != NO_TRUNCATION and repairs:
        truncate_files(disk, folder, stored.pending_truncation)
        stored = StoredLogSummary(stored.summary)
        write_log_summary(disk, folder, stored)
    summary = stored.summary
    begin = read_log_begin(disk, folder)
    opening = _Opening(files, folder, summary, is_last_copy=is_last_copy, skipped_checkpoints=skipped_checkpoints)
    if opening.is_alone:
        known = begin.position if begin is not None else 0
        if known < summary.begin and (begin is None or is_last_copy):
            begin = LogBegin(summary.begin, None)
        # Only what was durable is stored of a log without other replicas. A command may have removed its end.
        is_known = not is_last_copy and not read_openings_gap(disk, folder) and summary.appended > summary.begin
        known_end = summary.appended if is_known else 0
        recovered = recover(files, folder, begin=begin, known_end=known_end, repairs=repairs)
        return opening.as_alone(recovered)
    remove_leftovers(disk, folder, summary.begin)
    segments, flushed = opening.segments, opening.flushed
    if (clean := opening.clean) is not None:
        catalog = LogCatalog(files, opening.tag)
        opening.adopt_segments(catalog, segments)
        recovered = recover_clean_stop(disk, catalog, segments[-1], clean, begin)
        summary = opening.protocol_frames.applied_to(summary, clean.end_position)
        return ReplicaLog(recovered, _as_synced(summary, clean.end_position, clean.end_position))
    found = opening.recover()
    found.recovered.begin = begin
    set_queue_ranges(found.recovered)
    end = found.summary.appended
    if flushed > end:
        found.former_end = flushed
        # before any truncation, because no other file records it
        if (reign := read_hard_state(disk, folder)) is not None:
            write_hard_state(disk, folder, replace(reign, hard_state=with_lost_tail(flushed, reign.hard_state)))
    remove_clean_stop(disk, folder)
    _make_durable(disk, folder, segments, min(flushed, end), end)
    return found


def last_copy_end(disk: Disk, folder: Path, stored: StoredLogSummary) -> int:
    """The future end of the last copy of a log. Nothing is written.

    Errors: Unsupported, OSError. DataLoss, also when its state cannot be folded.
    """
    with SegmentFiles(disk) as files:
        log = recover_replica(files, folder, stored, is_last_copy=True, repairs=False)
    if stored.summary.begin and not log.recovered.catalog.segments:
        raise DataLoss(
            f"{folder} holds no part of the log behind its begin at {stored.summary.begin}, and no state. It was being "
            "copied, or is damaged, so no replica can lead with it: run this command on another disk"
        )
    end = log.summary.appended
    return end if stored.pending_truncation == NO_TRUNCATION else min(end, stored.pending_truncation)


def durable_end(disk: Disk, folder: Path) -> int:
    """The position up to which the log was certainly on this disk. A start may find a little more. Errors: OSError."""
    clean = read_clean_stop(disk, folder)
    return max(read_durable_mark(disk, folder), clean.end_position if clean else 0)


@dataclass(eq=False)
class _Opening:
    """One folder before any folding."""

    files: SegmentFiles
    folder: Path
    summary: LogSummary
    is_last_copy: bool
    skipped_checkpoints: int = 0

    def __post_init__(self) -> None:
        """Read the folder. Errors: DataLoss, Unsupported, OSError."""
        disk, folder, summary = self.files.disk, self.folder, self.summary
        identity = read_identity(disk, folder)
        self.tag, self.log_mark = (identity.tag, identity.log_mark) if identity is not None else (0, 0)
        """The tag of the store's files, and the fingerprint of the log's frames; 0 without an identity."""
        self._own_disk = identity.disk if identity is not None else ""
        starts = [base for base in segment_bases(disk.list(folder)) if base >= summary.begin]
        self.segments = [Segment(self.files, folder, base, base) for base in starts]
        for one in self.segments:
            one.limit = one.base + one.size_bytes()
        self.flushed = durable_end(disk, folder)
        """The position up to which the log was certainly on this disk."""
        clean, last = read_clean_stop(disk, folder), self.segments[-1:]
        self.clean = clean if clean and last and is_at_log_end(clean, last[0], self.log_mark) else None
        """The marker of a clean stop, if it matches the log."""
        self.is_alone = self.is_last_copy or self._is_only_replica(summary)
        """Whether no other replica has the log, so that everything on this disk is committed."""
        self._read_protocol_frames()
        if self.is_alone and not self.is_last_copy:
            self.is_alone = self._is_only_replica(self.protocol_frames.applied_to(summary, self.protocol_frames.end))
            if not self.is_alone:
                self._read_protocol_frames()
        if self.clean is not None and self.clean.end_position > self.protocol_frames.end and not self.is_alone:
            self.clean = None

    def _read_protocol_frames(self) -> None:
        log_end = self.clean.end_position if self.clean is not None else _END
        self.protocol_frames = ProtocolFrames.read_behind(
            self.summary, self.segments, self.log_mark, log_end, skips_damage=self.is_alone
        )

    def _is_only_replica(self, summary: LogSummary) -> bool:
        return [one.disk for one in summary.configuration.replicas] == [self._own_disk]

    def as_alone(self, recovered: Recovered) -> ReplicaLog:
        """The log of the only replica, which was read to its end."""
        end = recovered.end_position
        summary = _as_synced(self.protocol_frames.applied_to(self.summary, end), end, end)
        last_epoch = max(recovered.leader_epoch, summary.history.last_epoch)
        return ReplicaLog(recovered, summary, is_alone=True, last_epoch=last_epoch)

    def recover(self) -> ReplicaLog:
        """The log of a folder that was not closed cleanly."""
        slices = [one for segment in self.segments for one in self._slices(segment)]
        begin = self.summary.begin
        fold = self._fold_state(slices)
        is_cold = fold is None and begin > 0
        at = begin if fold is None else fold.end_position
        catalog = LogCatalog(self.files, self.tag)
        before = [one for one in self.segments if one.base < at] if at > begin else []
        behind = self.segments[len(before) :]
        state, store_open = (fold.state, fold.store_open) if fold else (State(), 0)
        active = before[-1] if before else None
        surveyed = survey(active.read, active.base, at) if active else SegmentSurvey(end_position=at, is_ended=True)
        is_full = surveyed.is_ended and surveyed.end_position == at
        if surveyed.end_position == at and _is_followed(at, behind):
            active = behind.pop(0)
            self.adopt_segments(catalog, [*before, active])
        elif active is not None:
            self.adopt_segments(catalog, before)
            catalog.load_active(surveyed.parts)
            if is_full:
                active.end, active.last_stored_at_ms, active = at, surveyed.stored_at_ms, None
        recovered = Recovered(catalog, state, at, store_open, surveyed.stored_at_ms, active, was_clean=False)
        recovered.state_bytes = fold.checkpoint_bytes if fold else 0
        recovered.holes = [Hole(position, length, "damaged") for position, length in catalog.holes()]
        catalog.damages = find_damages(catalog, recovered.holes, self.files.disk)
        log = ReplicaLog(recovered, self.summary, is_missing_state=is_cold)
        self._add_frames_behind(log, [*([active] if active else []), *behind])
        return log

    def adopt_segments(self, catalog: LogCatalog, segments: list[Segment]) -> None:
        """Load segments into the catalog. All but the last one are sealed."""
        for one, following in pairwise(segments):
            load_sealed(catalog, self.files.disk, one, following.base, repairs=True)
        catalog.segments.append(segments[-1])

    def _slices(self, segment: Segment) -> list[SliceLocation]:
        contents = read_contents(self.files.disk, segment, self.tag)
        return list(contents.slices) if contents else survey(segment.read, segment.base, segment.limit).slices

    def _fold_state(self, slices: list[SliceLocation]) -> StateRefold | None:
        """The state of the newest whole checkpoint and the frames that it needs; all of it is committed.

        None when the log must be followed from its begin. No state is folded over a damaged place, because other
        replicas have it whole.
        """
        gap = min(self._first_gap(), self.protocol_frames.end)
        checkpoints = complete_checkpoints(slices)
        limit = len(checkpoints) - (self.summary.begin > 0)
        for parts in checkpoints[max(0, min(self.skipped_checkpoints, limit)) :]:
            known = [one for one in slices if one.checkpoint_id <= parts[0].checkpoint_id]
            try:
                as_of = max(read_slice(self.segments, one, self.log_mark).as_of for one in parts)
                # The disk may have a checkpoint, but not all the frames before it that the checkpoint contains.
                if as_of > gap or self._has_hole_below(as_of):
                    continue
                if not (fold := StateRefold(self.segments, known, as_of, log_mark=self.log_mark)).holes:
                    return fold
            except (BadFrame, DataLoss):
                continue
        return None

    def _has_hole_below(self, position: int) -> bool:
        """Whether the last segment has a hole below `position`. Readers repair only full segments.

        False if the stored summary has one voter only, because then no other replica has a copy.
        """
        if len(self.summary.configuration.voters) == 1:
            return False
        last = self.segments[-1]
        return last.base < position and bool(survey(last.read, last.base, position).holes)

    def _first_gap(self) -> int:
        """The end of the whole frames that follow the flushed part of the log."""
        end = max(self.flushed, self.summary.begin)
        for segment in self.segments:
            if segment.limit <= end:
                continue
            if segment.base > end:
                break
            for header, _ in _whole_frames(segment, max(end, segment.base)):
                end = header.end_position
        return end

    def _add_frames_behind(self, log: ReplicaLog, segments: list[Segment]) -> None:
        """Read the frames behind the committed position, up to the first gap.

        A full segment may have no end mark: an earlier version began the next segment behind it after a clean stop.
        """
        recovered, at = log.recovered, log.recovered.end_position
        end = at
        for number, segment in enumerate(segments):
            if segment.base > end or is_foreign(segment, max(at, segment.base), self.log_mark):
                break
            if number:
                log.next_segments.append(segment)
            is_ended = False
            for header, body in _whole_frames(segment, max(at, segment.base)):
                if not log.groups or log.groups[-1].bytes >= GROUP_BYTES:
                    log.groups.append(FlushGroup())
                group = log.groups[-1]
                group.entries.append(make_entry(header, body))
                group.bytes += header.frame_bytes
                group.end_position = end = header.end_position
                recovered.store_open = max(recovered.store_open, header.store_open)
                recovered.stored_at_ms = max(recovered.stored_at_ms, header.stored_at_ms)
                is_ended = bool(header.flags & FrameFlag.SEGMENT_END)
            if not (is_ended or _is_followed(end, segments[number + 1 :])):
                break
            segment.end, segment.last_stored_at_ms = end, recovered.stored_at_ms
        log.summary = _as_synced(self.protocol_frames.applied_to(log.summary, end), end, at)


def _is_followed(end: int, later: Sequence[Segment]) -> bool:
    """Whether the next one of the `later` segments begins at the position `end`."""
    return bool(later) and later[0].base == end


def _whole_frames(segment: Segment, position: int) -> Iterator[tuple[FrameHeader, bytes]]:
    """Whole frames from a position on, up to the first hole."""
    window = ReadWindow(segment.read, segment.limit)
    for one in walk(segment.read, position, segment.limit, bodies_from=position, window=window):
        if isinstance(one, Hole):
            return
        yield one, read_body(window.bytes_at, one)
        if one.flags & FrameFlag.SEGMENT_END:
            return


def _as_synced(summary: LogSummary, end: int, committed: int) -> LogSummary:
    """The log summary with everything up to `end` flushed, and `committed`."""
    return replace(summary.committed_to(max(committed, summary.begin)), appended=end, flushed=end)


def _make_durable(disk: Disk, folder: Path, segments: list[Segment], flushed: int, end: int) -> None:
    """Rewrite and sync the frames that no flush covers, because the disk may lack cached pages; truncate at `end`."""
    for one in segments:
        if one.base < end and flushed < min(one.limit, end):
            rewrite_unsynced(one, max(one.base, flushed), min(one.limit, end))
            one.writer.sync_data()
            one.stop_writing()
    truncate_files(disk, folder, end)


def with_lost_tail(former_end: int, hard_state: HardState) -> HardState:
    """The hard state with a lost end up to `former_end`, which the disk must fetch again; 0 = nothing is lost."""
    return (
        replace(hard_state, unsynced_tail=max(hard_state.unsynced_tail, Tail(hard_state.epoch, former_end)))
        if former_end
        else hard_state
    )
