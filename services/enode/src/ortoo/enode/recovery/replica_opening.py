"""Opens the log of a replica: its state up to a committed position, and the later frames, which may be truncated.

It writes as little as possible. Frames that no flush of this disk covers are rewritten and synced, and a torn end is
truncated.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from pathlib import Path

from ortoo.common.errors import DataLoss
from ortoo.enode.disk.clean_stop import forget_clean_stop, read_clean_stop
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import read_identity
from ortoo.enode.disk.log_begin import read_log_begin
from ortoo.enode.disk.log_summary_file import NO_CUT, KeptOutline, write_outline
from ortoo.enode.disk.hard_state_file import read_reign, write_reign
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.disk.durable_mark import TideMark, read_committed_mark, read_tide_mark
from ortoo.enode.index.catalog import Catalog
from ortoo.enode.index.index_files import read_contents
from ortoo.enode.index.survey import Survey, survey
from ortoo.enode.log.checkpoint import complete_checkpoints
from ortoo.enode.log.copies.frame_copies import entry_of
from ortoo.enode.log.copies.protocol_frames import WORDS, mark_of
from ortoo.enode.log.flushing.flush_group import Group
from ortoo.enode.log.frame import BadFrame, Flag, FrameHeader
from ortoo.enode.log.queue_index import SliceAt
from ortoo.enode.log.scan import Hole, Window, read_body, walk
from ortoo.enode.log.segment import INDEX_SUFFIX, KEYS_SUFFIX, SUFFIX, Segment, bases, segment_name
from ortoo.enode.replication.protocol.identity import Reign, Tail
from ortoo.enode.replication.protocol.log_summary import LogOutline, Mark
from ortoo.enode.recovery.losses import damages_of
from ortoo.enode.recovery.opening import (
    Recovered,
    after_clean_stop,
    is_end_of_log,
    load_sealed,
    rewrite,
    settle_ranges,
    sweep,
    zero,
)
from ortoo.enode.recovery.owners import check_frame_owner, is_foreign
from ortoo.enode.recovery.refold import Refold, read_slice
from ortoo.enode.state.fold import State

GROUP_BYTES = 1 << 20
"""Approximate size of groups of frames that are not known to be committed; they are folded group by group."""
_END = 1 << 62
"""Used as the end of the protocol's frames when damaged ones may be skipped."""


@dataclass(slots=True)
class MemberLog:
    """The log of a replica at its opening."""

    recovered: Recovered
    """The store up to the known committed position; `active` is the segment with that position."""
    outline: LogOutline
    """The log summary; all of it is durable."""
    groups: list[Group] = field(default_factory=list)
    """The later frames."""
    next_segments: list[Segment] = field(default_factory=list)
    """The segments behind the active one."""
    is_cold: bool = False
    """Whether the log's begin is deleted and there is no whole checkpoint yet, so that no state can be folded."""
    lost: int = 0
    """The position that this disk once had, if it is beyond the log's end; 0 otherwise."""


def recover_member(
    files: SegmentFiles, folder: Path, kept: KeptOutline, *, is_last: bool = False, doubts: int = 0
) -> MemberLog:
    """Read the log and the state of a replica's folder. The caller closes `files`.

    Errors: DataLoss, Unsupported, OSError.

    `doubts` is the number of newest checkpoints to skip; the state may then be folded from the log's begin. With
    `is_last` no other replica has a copy any more, so damaged places that need not be read are skipped.
    """
    disk = files.disk
    if kept.cut != NO_CUT:
        cut_files(disk, folder, kept.cut)
        kept = KeptOutline(kept.outline)
        write_outline(disk, folder, kept)
    outline = kept.outline
    begin = read_log_begin(disk, folder)
    sweep(disk, folder, outline.begin)
    opening = _Opening(files, folder, outline, is_last=is_last, doubts=doubts)
    segments, flushed = opening.segments, opening.flushed
    if (clean := opening.clean) is not None:
        catalog = Catalog(files, opening.tag)
        opening.take_over(catalog, segments)
        recovered = after_clean_stop(disk, catalog, segments[-1], clean, begin)
        outline = opening.words.followed(outline, clean.end_position)
        return MemberLog(recovered, _synced(outline, clean.end_position, clean.end_position))
    found = opening.found()
    found.recovered.begin = begin
    settle_ranges(found.recovered)
    end = found.outline.appended
    if flushed > end:
        found.lost = flushed
        if (reign := read_reign(disk, folder)) is not None:  # before any truncation, because no other file records it
            write_reign(disk, folder, replace(reign, reign=owed(flushed, reign.reign)))
    forget_clean_stop(disk, folder)
    _make_durable(disk, folder, segments, min(flushed, end), end)
    return found


def whole_end(disk: Disk, folder: Path, kept: KeptOutline) -> int:
    """The future end of the last copy of a log: the end of its last frame, or the first damage that cannot be skipped.

    Nothing is written. Errors: Unsupported, OSError. DataLoss, also when its state cannot be folded.
    """
    with SegmentFiles(disk) as files:
        opening = _Opening(files, folder, kept.outline, is_last=True, repairs=False)
        if opening.clean is not None:
            end = opening.clean.end_position
        else:
            log = opening.found()
            if log.is_cold:
                raise DataLoss(
                    f"{folder} holds a log that begins at {kept.outline.begin}, but no whole checkpoint of the state. "
                    "It was being copied, or is damaged, so no replica can lead with it: choose another disk"
                )
            end = log.outline.appended
    return end if kept.cut == NO_CUT else min(end, kept.cut)


def known_end(disk: Disk, folder: Path) -> int:
    """The position up to which the log was certainly on this disk. A start may find a little more. Errors: OSError."""
    clean = read_clean_stop(disk, folder)
    return max(read_tide_mark(disk, folder), clean.end_position if clean else 0)


@dataclass(frozen=True, slots=True)
class _Words:
    """The readable frames of the replication protocol behind the position of the stored log summary."""

    end: int
    """Their end: the first damaged header or protocol frame, or the log's end. Frames beyond it are unknown."""
    marks: tuple[Mark, ...]

    @classmethod
    def behind(cls, outline: LogOutline, segments: Sequence[Segment], log_mark: int) -> "_Words":
        """Read the frames. Errors: OSError. DataLoss, also for a frame of a log with another fingerprint."""
        end, is_broken = outline.appended, False
        marks: list[Mark] = []
        for segment, following in zip_longest(segments, segments[1:]):
            if following is not None and following.base <= end:
                continue
            is_broken = is_broken or segment.base > end
            for one in walk(segment.read, max(end, segment.base), segment.limit):
                if isinstance(one, Hole):
                    is_broken = True
                    continue
                if one.leader_epoch == 0 and not marks and not outline.history.starts:
                    is_broken = False  # no protocol frames yet: the log of an enode without replicas
                try:
                    if not one.is_of(log_mark) and read_body(segment.read, one) is not None:
                        check_frame_owner(segment.path, one.position)
                    if not is_broken and one.kind in WORDS:
                        marks.append(mark_of(one, read_body(segment.read, one)))
                except BadFrame:
                    is_broken = True
                if is_broken:
                    return cls(end, tuple(marks))
                end = one.end_position
                if one.flags & Flag.SEGMENT_END:
                    break
        return cls(end, tuple(marks))

    def followed(self, outline: LogOutline, end: int) -> LogOutline:
        """The log summary with the protocol frames up to `end`, which is at most the end of these."""
        if outline.appended > end:
            return replace(outline.cut(end), cuts=0, is_cutting=False)
        return outline.extended(end, tuple(one for one in self.marks if one.end <= end))


@dataclass(eq=False)
class _Opening:
    """One folder before any folding."""

    files: SegmentFiles
    folder: Path
    outline: LogOutline
    is_last: bool
    repairs: bool = True
    doubts: int = 0

    def __post_init__(self) -> None:
        """Read the folder. Errors: DataLoss, Unsupported, OSError."""
        disk, folder, outline = self.files.disk, self.folder, self.outline
        identity = read_identity(disk, folder)
        self.tag, self.log_mark = (identity.tag, identity.log_mark) if identity is not None else (0, 0)
        """They distinguish the files of the folder, and the frames of the log, from others."""
        starts = [base for base in bases(disk.list(folder)) if base >= outline.begin]
        self.segments = [Segment(self.files, folder, base, base) for base in starts]
        for one in self.segments:
            one.limit = one.base + one.size_bytes()
        self.words = _Words.behind(outline, self.segments, self.log_mark)
        if self.is_last:
            self.words = replace(self.words, end=_END)
        self.flushed = known_end(disk, folder)
        """The position up to which the log was certainly on this disk."""
        clean, last = read_clean_stop(disk, folder), self.segments[-1:]
        is_usable = (
            clean and last and is_end_of_log(clean, last[0], self.log_mark) and clean.end_position <= self.words.end
        )
        self.clean = clean if is_usable else None
        """The marker of a clean stop, if it matches the log."""

    def found(self) -> MemberLog:
        """The log of a folder that was not closed cleanly."""
        slices = [one for segment in self.segments for one in self._slices(segment)]
        begin = self.outline.begin
        fold = self._folded(slices)
        is_cold = fold is None and begin > 0
        at = begin if fold is None else fold.end_position
        catalog = Catalog(self.files, self.tag)
        before = [one for one in self.segments if one.base < at] if at > begin else []
        behind = self.segments[len(before) :]
        state, store_open = (fold.state, fold.store_open) if fold else (State(), 0)
        active = before[-1] if before else None
        surveyed = survey(active.read, active.base, at) if active else Survey(end_position=at, is_ended=True)
        is_full = surveyed.is_ended and surveyed.end_position == at
        if is_full and behind and behind[0].base == at:
            active = behind.pop(0)
            self.take_over(catalog, [*before, active])
        elif active is not None:
            self.take_over(catalog, before)
            catalog.load_active(surveyed.parts)
            if is_full:
                active.end, active.last_stored_at_ms, active = at, surveyed.stored_at_ms, None
        recovered = Recovered(catalog, state, at, store_open, surveyed.stored_at_ms, active, was_clean=False)
        recovered.state_bytes = fold.checkpoint_bytes if fold else 0
        recovered.holes = [Hole(position, length, "damaged") for position, length in catalog.holes()]
        catalog.damages = damages_of(catalog, recovered.holes, self.files.disk)
        log = MemberLog(recovered, self.outline, is_cold=is_cold)
        self._follow(log, [*([active] if active else []), *behind])
        return log

    def take_over(self, catalog: Catalog, segments: list[Segment]) -> None:
        """Load segments into the catalog. All but the last one are sealed."""
        for one, following in pairwise(segments):
            load_sealed(catalog, self.files.disk, one, following.base, repairs=self.repairs)
        catalog.segments.append(segments[-1])

    def _slices(self, segment: Segment) -> list[SliceAt]:
        contents = read_contents(self.files.disk, segment, self.tag)
        return list(contents.slices) if contents else survey(segment.read, segment.base, segment.limit).slices

    def _folded(self, slices: list[SliceAt]) -> Refold | None:
        """The state of the newest whole checkpoint and the frames that it needs; all of it is committed.

        None when the log must be followed from its begin. No state is folded over a damaged place, because other
        replicas have it whole.
        """
        gap = min(self._first_gap(), self.words.end)
        checkpoints = complete_checkpoints(slices)
        most = len(checkpoints) - (self.outline.begin > 0)
        for parts in checkpoints[max(0, min(self.doubts, most)) :]:
            known = [one for one in slices if one.checkpoint_id <= parts[0].checkpoint_id]
            try:
                as_of = max(read_slice(self.segments, one, self.log_mark).as_of for one in parts)
                # The disk may have a checkpoint, but not all the frames before it that the checkpoint contains.
                if as_of > gap or self._is_holed(as_of):
                    continue
                if not (fold := Refold(self.segments, known, as_of, log_mark=self.log_mark)).holes:
                    return fold
            except (BadFrame, DataLoss):
                continue
        return None

    def _is_holed(self, position: int) -> bool:
        """Whether the last segment has a hole below `position`, which readers cannot have repaired before it is full.

        False if no other replica has a copy, because then later frames must be kept.
        """
        if self.words.end == _END or len(self.outline.members.voters) == 1:
            return False
        last = self.segments[-1]
        return last.base < position and bool(survey(last.read, last.base, position).holes)

    def _first_gap(self) -> int:
        """The end of the whole frames that follow the flushed part of the log."""
        end = max(self.flushed, self.outline.begin)
        for segment in self.segments:
            if segment.limit <= end:
                continue
            if segment.base > end:
                break
            for header, _ in _whole(segment, max(end, segment.base)):
                end = header.end_position
        return end

    def _follow(self, log: MemberLog, segments: list[Segment]) -> None:
        """Read the frames behind the committed position, up to the first gap."""
        recovered, at = log.recovered, log.recovered.end_position
        end = at
        for number, segment in enumerate(segments):
            if segment.base > end or is_foreign(segment, max(at, segment.base), self.log_mark):
                break
            if number:
                log.next_segments.append(segment)
            is_ended = False
            for header, body in _whole(segment, max(at, segment.base)):
                if not log.groups or log.groups[-1].bytes >= GROUP_BYTES:
                    log.groups.append(Group())
                group = log.groups[-1]
                group.entries.append(entry_of(header, body))
                group.bytes += header.frame_bytes
                group.end_position = end = header.end_position
                recovered.store_open = max(recovered.store_open, header.store_open)
                recovered.stored_at_ms = max(recovered.stored_at_ms, header.stored_at_ms)
                is_ended = bool(header.flags & Flag.SEGMENT_END)
            if not is_ended:
                break
            segment.end, segment.last_stored_at_ms = end, recovered.stored_at_ms
        log.outline = _synced(self.words.followed(log.outline, end), end, at)


def _whole(segment: Segment, position: int) -> Iterator[tuple[FrameHeader, bytes]]:
    """Whole frames from a position on, up to the first hole."""
    window = Window(segment.read, segment.limit)
    for one in walk(segment.read, position, segment.limit, bodies_from=position, window=window):
        if isinstance(one, Hole):
            return
        yield one, read_body(window.bytes_at, one)
        if one.flags & Flag.SEGMENT_END:
            return


def _synced(outline: LogOutline, end: int, committed: int) -> LogOutline:
    """The log summary with everything up to `end` flushed, and `committed`."""
    return replace(outline.committed_to(max(committed, outline.begin)), appended=end, flushed=end)


def _make_durable(disk: Disk, folder: Path, segments: list[Segment], flushed: int, end: int) -> None:
    """Rewrite and sync the frames that no flush covers, because the disk may lack cached pages; truncate at `end`."""
    for one in segments:
        if one.base < end and flushed < min(one.limit, end):
            rewrite(one, max(one.base, flushed), min(one.limit, end))
            one.writer.sync_data()
            one.stop_writing()
    cut_files(disk, folder, end)


def cut_files(disk: Disk, folder: Path, position: int) -> None:
    """Truncate the log at `position` permanently: later segments, last first, then the rest of its own segment."""
    names = disk.list(folder)
    gone = [base for base in bases(names) if base > position]
    for base in reversed(gone):
        _remove(disk, folder, names, base, (KEYS_SUFFIX, INDEX_SUFFIX, SUFFIX))
    for base in bases(names)[-len(gone) - 1 :][:1]:
        with SegmentFiles(disk) as files:
            segment = Segment(files, folder, base, base)
            segment.limit = base + segment.size_bytes()
            if base <= position < segment.limit:
                if zero(segment, position):
                    segment.writer.sync_data()
                _remove(disk, folder, names, base, (KEYS_SUFFIX, INDEX_SUFFIX))
    if read_tide_mark(disk, folder) > position:
        committed = min(position, read_committed_mark(disk, folder))
        with closing(TideMark(disk, folder)) as mark:
            mark.write(position, committed)
            mark.write(position, committed)  # the higher slot counts, so both must have it
    disk.sync_directory(folder)


def _remove(disk: Disk, folder: Path, names: Sequence[str], base: int, suffixes: Sequence[str]) -> None:
    for name in (segment_name(base, suffix) for suffix in suffixes):
        if name in names:
            disk.remove(folder / name)


def owed(lost: int, reign: Reign) -> Reign:
    """The hard state of a disk that once had `lost`, which it must fetch again, in the highest epoch that it had."""
    return replace(reign, owed=max(reign.owed, Tail(reign.epoch, lost))) if lost else reign
