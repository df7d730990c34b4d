"""Opening the log of a member: its state as of what is known to be committed, and the frames behind, which may go.

As little is written as can be: what no flush of this disk covers is written again and synced, and a torn end goes.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from pathlib import Path

from ortoo.common.errors import DataLoss
from ortoo.enode.disk.clean_stop import forget_clean_stop, read_clean_stop
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.log_begin import read_log_begin
from ortoo.enode.disk.outline_file import NO_CUT, KeptOutline, write_outline
from ortoo.enode.disk.reign_file import read_reign, write_reign
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.disk.tide_mark import TideMark, read_tide_mark
from ortoo.enode.index.catalog import Catalog
from ortoo.enode.index.index_files import read_contents
from ortoo.enode.index.survey import Survey, survey
from ortoo.enode.log.checkpoint import complete_checkpoints
from ortoo.enode.log.copies.copying import entry_of
from ortoo.enode.log.copies.words import WORDS, mark_of
from ortoo.enode.log.flushing.group import Group
from ortoo.enode.log.frame import BadFrame, Flag, FrameHeader
from ortoo.enode.log.queue_index import SliceAt
from ortoo.enode.log.scan import Hole, Window, read_body, walk
from ortoo.enode.log.segment import INDEX_SUFFIX, KEYS_SUFFIX, SUFFIX, Segment, bases, segment_name
from ortoo.enode.members.identity import Reign, Tail
from ortoo.enode.members.log_outline import LogOutline, Mark
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
from ortoo.enode.recovery.refold import Refold, read_slice
from ortoo.enode.state.fold import State

GROUP_BYTES = 1 << 20
"""Frames that are not known to be committed are kept in groups of about this size, which are folded one by one."""
_END = 1 << 62
"""As the end of what is to be read for members: it need not be read."""


@dataclass(slots=True)
class MemberLog:
    """The log of a member as it was found."""

    recovered: Recovered
    """As of what is known to be committed; `active` is the segment that this lies in."""
    outline: LogOutline
    """All of it is on disk for good."""
    groups: list[Group] = field(default_factory=list)
    """The frames behind."""
    next_segments: list[Segment] = field(default_factory=list)
    """Those behind the active one."""
    is_cold: bool = False
    """Whether its begin is gone and no whole checkpoint is there yet: nothing can be folded."""
    lost: int = 0
    """How far this disk once was, when it was further than this; 0 when it was not."""


def recover_member(
    files: SegmentFiles, folder: Path, kept: KeptOutline, *, is_last: bool = False, doubts: int = 0
) -> MemberLog:
    """Find out what a member's folder holds. What is opened is among `files`, which the caller closes.

    Errors: DataLoss, Unsupported, OSError.

    With `doubts` its state is folded from a checkpoint so many before the newest, or from the log's begin. With
    `is_last` nobody else has a copy any more: a damaged place that need not be read is passed over.
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
        catalog = Catalog(files)
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
        if (reign := read_reign(disk, folder)) is not None:  # before anything is taken away: nothing else tells of it
            write_reign(disk, folder, replace(reign, reign=owed(flushed, reign.reign)))
    forget_clean_stop(disk, folder)
    _make_durable(disk, folder, segments, min(flushed, end), end)
    return found


def whole_end(disk: Disk, folder: Path, kept: KeptOutline) -> int:
    """Where the last copy of a log will end: behind its last frame, or at the first damage that cannot be passed over.

    Nothing is written. Errors: DataLoss, also when its state cannot be folded; Unsupported, OSError.
    """
    with SegmentFiles(disk) as files:
        opening = _Opening(files, folder, kept.outline, is_last=True, repairs=False)
        if opening.clean is not None:
            end = opening.clean.end_position
        else:
            log = opening.found()
            if log.is_cold:
                raise DataLoss(
                    f"{folder} holds a log that begins at {kept.outline.begin}, and no whole checkpoint of the state: "
                    "it was being copied, or is damaged, and nobody can lead with it; choose another disk"
                )
            end = log.outline.appended
    return end if kept.cut == NO_CUT else min(end, kept.cut)


def known_end(disk: Disk, folder: Path) -> int:
    """Up to where the log once was on this disk for certain. A start may find a little more. Errors: OSError."""
    clean = read_clean_stop(disk, folder)
    return max(read_tide_mark(disk, folder), clean.end_position if clean else 0)


@dataclass(frozen=True, slots=True)
class _Words:
    """What the log says to its members behind the place where the outline was kept, as far as it can be read."""

    end: int
    """Where that ends: at the first damaged header or word, or with the log. Nobody knows what was said there."""
    marks: tuple[Mark, ...]

    @classmethod
    def behind(cls, outline: LogOutline, segments: Sequence[Segment]) -> "_Words":
        """Read them. Errors: DataLoss, OSError."""
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
                    is_broken = False  # nobody had said anything yet: the log of an enode that was no member then
                try:
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
        """The outline with what was said between where it was kept and `end`, which is not behind the end of these."""
        if outline.appended > end:
            return replace(outline.cut(end), cuts=0, is_cutting=False)
        return outline.extended(end, tuple(one for one in self.marks if one.end <= end))


@dataclass(eq=False)
class _Opening:
    """One folder as it is found, before anything is folded."""

    files: SegmentFiles
    folder: Path
    outline: LogOutline
    is_last: bool
    repairs: bool = True
    doubts: int = 0

    def __post_init__(self) -> None:
        """Look at the folder. Errors: DataLoss, Unsupported, OSError."""
        disk, folder, outline = self.files.disk, self.folder, self.outline
        starts = [base for base in bases(disk.list(folder)) if base >= outline.begin]
        self.segments = [Segment(self.files, folder, base, base) for base in starts]
        for one in self.segments:
            one.limit = one.base + one.size_bytes()
        self.words = _Words.behind(outline, self.segments)
        if self.is_last:
            self.words = replace(self.words, end=_END)
        self.flushed = known_end(disk, folder)
        """How far the disk once was for certain."""
        clean, last = read_clean_stop(disk, folder), self.segments[-1:]
        is_usable = clean and last and is_end_of_log(clean, last[0]) and clean.end_position <= self.words.end
        self.clean = clean if is_usable else None
        """The marker of a clean stop, if the log can be taken from it."""

    def found(self) -> MemberLog:
        """What is there, when it was not closed cleanly."""
        slices = [one for segment in self.segments for one in self._slices(segment)]
        begin = self.outline.begin
        fold = self._folded(slices)
        is_cold = fold is None and begin > 0
        at = begin if fold is None else fold.end_position
        catalog = Catalog(self.files)
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
        """Let the catalog have segments. All but the last one are sealed."""
        for one, following in pairwise(segments):
            load_sealed(catalog, self.files.disk, one, following.base, repairs=self.repairs)
        catalog.segments.append(segments[-1])

    def _slices(self, segment: Segment) -> list[SliceAt]:
        contents = read_contents(self.files.disk, segment)
        return list(contents.slices) if contents else survey(segment.read, segment.base, segment.limit).slices

    def _folded(self, slices: list[SliceAt]) -> Refold | None:
        """The state of the newest whole checkpoint and what it is folded from; all of that is committed.

        None when the log has to be followed from its begin: nothing is folded over a damaged place, which others have
        whole.
        """
        gap = min(self._first_gap(), self.words.end)
        checkpoints = complete_checkpoints(slices)
        most = len(checkpoints) - (self.outline.begin > 0)
        for parts in checkpoints[max(0, min(self.doubts, most)) :]:
            known = [one for one in slices if one.checkpoint_id <= parts[0].checkpoint_id]
            try:
                as_of = max(read_slice(self.segments, one).as_of for one in parts)
                # The disk may have got a checkpoint, and not all the frames before that it tells of.
                if as_of > gap or self._is_holed(as_of):
                    continue
                if not (fold := Refold(self.segments, known, as_of)).holes:
                    return fold
            except (BadFrame, DataLoss):
                continue
        return None

    def _is_holed(self, position: int) -> bool:
        """Whether the last segment has a hole below `position`: no reader could have it repaired before it is full.

        Where nobody else has a copy nothing is won by that, and what lies behind is kept.
        """
        if self.words.end == _END or len(self.outline.members.voters) == 1:
            return False
        last = self.segments[-1]
        return last.base < position and bool(survey(last.read, last.base, position).holes)

    def _first_gap(self) -> int:
        """Where the frames end that no flush of this disk covers, whatever lies behind."""
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
        """Take the frames behind what is committed, up to the first place where there is none."""
        recovered, at = log.recovered, log.recovered.end_position
        end = at
        for number, segment in enumerate(segments):
            if segment.base > end:
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
    """Whole frames from a position on, until there is none."""
    window = Window(segment.read, segment.limit)
    for one in walk(segment.read, position, segment.limit, bodies_from=position, window=window):
        if isinstance(one, Hole):
            return
        yield one, read_body(window.bytes_at, one)
        if one.flags & Flag.SEGMENT_END:
            return


def _synced(outline: LogOutline, end: int, committed: int) -> LogOutline:
    """All of it is on disk; of that, so much is committed."""
    return replace(outline.committed_to(max(committed, outline.begin)), appended=end, flushed=end)


def _make_durable(disk: Disk, folder: Path, segments: list[Segment], flushed: int, end: int) -> None:
    """Write again and sync what no flush covers, for the page cache may show what the disk never got; end there."""
    for one in segments:
        if one.base < end and flushed < min(one.limit, end):
            rewrite(one, max(one.base, flushed), min(one.limit, end))
            one.writer.sync_data()
            one.stop_writing()
    cut_files(disk, folder, end)


def cut_files(disk: Disk, folder: Path, position: int) -> None:
    """Take everything behind `position` away, for good: later segments, last first, then the rest of its own."""
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
        with closing(TideMark(disk, folder)) as mark:
            mark.write(position)
            mark.write(position)  # the higher slot counts, so both have to say it
    disk.sync_directory(folder)


def _remove(disk: Disk, folder: Path, names: Sequence[str], base: int, suffixes: Sequence[str]) -> None:
    for name in (segment_name(base, suffix) for suffix in suffixes):
        if name in names:
            disk.remove(folder / name)


def owed(lost: int, reign: Reign) -> Reign:
    """The reign of a disk that once was as far as `lost`: it owes that, under the highest epoch it may have had."""
    return replace(reign, owed=max(reign.owed, Tail(reign.epoch, lost))) if lost else reign
