"""Bugs to plant into the storage engine, to test the harness that searches for bugs."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ortoo.common.errors import Unavailable
from ortoo.enode.disk import json_files
from ortoo.enode.disk.clean_stop import CleanStop
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.log_begin import LogBegin, write_log_begin
from ortoo.enode.index import survey
from ortoo.enode.index.survey import SegmentSurvey
from ortoo.enode.log import appender, scan, spares
from ortoo.enode.log.appender import Appender
from ortoo.enode.log.checkpoint import CheckpointSlice
from ortoo.enode.log.flushing.flush_group import FlushGroup
from ortoo.enode.log.frame import ALIGNMENT_BYTES, FrameHeader, decode_header
from ortoo.enode.log.segment import Segment, remove_below, segment_name
from ortoo.enode.log.spares import SpareSegments
from ortoo.enode.recovery import only_copy, opening
from ortoo.enode.recovery.refold import StateRefold
from ortoo.enode.replication import log_opening
from ortoo.enode.replication.replicated_log import ReplicatedLog
from ortoo.enode.state.tables.dedup import Duplicate, Sequencer, SequenceWindowTable
from ortoo.enode.state.tables.offsets import GroupOffsetTable
from ortoo.enode.store import checkpoints, housekeeping
from ortoo.enode.store.checkpoints import CHECKPOINTS_KEPT
from ortoo.enode.store.housekeeping import Housekeeping
from ortoo.testing.disks.memory_disk import MemoryDisk

Plant = Callable[[pytest.MonkeyPatch], None]
POSITION_AT = 8
"""The place of the position in a header."""


def no_fsync(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge data that were written but not synced."""

    def write(group: FlushGroup) -> None:
        for part in group.parts:
            part.segment.install()
            part.segment.writer.write(part.position - part.segment.base, part.buffers)

    patch.setattr(FlushGroup, "write", write)


def fsync_before_the_write(patch: pytest.MonkeyPatch) -> None:
    """Sync, but too early."""

    def write(group: FlushGroup) -> None:
        for part in group.parts:
            part.segment.install()
            part.segment.writer.sync_data()
            part.segment.writer.write(part.position - part.segment.base, part.buffers)

    patch.setattr(FlushGroup, "write", write)


def zeros_over_the_group(patch: pytest.MonkeyPatch) -> None:
    """Write the zeros from the last frame's padding on instead of behind it."""

    def write(group: FlushGroup) -> None:
        for part in group.parts:
            part.segment.install()
            length = part.segment.writer.write(part.position - part.segment.base, part.buffers)
            part.segment.writer.zero_ahead(part.position - part.segment.base + length - ALIGNMENT_BYTES)
            part.segment.writer.sync_data()

    patch.setattr(FlushGroup, "write", write)


def no_folder_fsync(patch: pytest.MonkeyPatch) -> None:
    """Write into a segment whose name is not durable."""

    def install(segment: Segment) -> None:
        if segment.source is not None:
            name = segment._reading.path = segment.folder / segment_name(segment.base)
            segment.files.disk.rename(segment.source, name)
            segment.source = None

    patch.setattr(Segment, "install", install)


def offsets_given_twice(patch: pytest.MonkeyPatch) -> None:
    """After a restart, continue with the last batch's offset instead of the one after it."""
    start = ReplicatedLog.start_serving

    def started(log: ReplicatedLog) -> None:
        start(log)
        for queue in log.engine.catalog.queues.values():
            if queue.rows:
                queue.next_offset = queue.rows.first_offsets[-1]

    patch.setattr(ReplicatedLog, "start_serving", started)


def acknowledged_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """Answer as soon as the frame has its place."""

    def wait_flush(appender: Appender, waiter: "asyncio.Future[Any]", answer: object, *, early: bool = False) -> None:
        appender._groups = appender._groups or deque([FlushGroup()])
        waiter.set_result(answer)

    patch.setattr(Appender, "add_waiter", wait_flush)


def stale_snapshot(patch: pytest.MonkeyPatch) -> None:
    """Keep the marker of a clean stop, and trust it."""

    def is_end_of_log(clean: CleanStop, last: Segment, log_mark: int) -> bool:
        return last.base <= clean.end_position <= last.limit

    patch.setattr(only_copy, "is_at_log_end", is_end_of_log)
    patch.setattr(opening, "is_at_log_end", is_end_of_log)
    patch.setattr(log_opening, "remove_clean_stop", lambda disk, folder: None)


def cut_too_early(patch: pytest.MonkeyPatch) -> None:
    """Truncate the log at its last durable mark, not at the first bad frame."""

    def find_cut(found: SegmentSurvey, read: scan.Read, base: int, limit: int) -> int:
        return max(base, found.durable_below)

    patch.setattr(only_copy, "find_log_end", find_cut)


def torn_frame_accepted(patch: pytest.MonkeyPatch) -> None:
    """Check only headers when searching for the end of the log."""
    patch.setattr(survey, "walk", lambda read, start, end, **_: scan.walk(read, start, end))


def durable_below_too_high(patch: pytest.MonkeyPatch) -> None:
    """Let a write group report that it is itself already durable."""
    declare = FlushGroup.set_durable_below
    patch.setattr(FlushGroup, "set_durable_below", lambda group, position: declare(group, group.end_position))


def dedup_windows_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Leave the producers' windows out of checkpoints."""
    patch.setattr(SequenceWindowTable, "checkpoint", lambda windows: iter(()))


def offsets_left_out(patch: pytest.MonkeyPatch) -> None:
    """Leave one group's offsets out of checkpoints."""
    checkpoint = GroupOffsetTable.checkpoint

    def shorter(offsets: GroupOffsetTable) -> Iterator[bytes]:
        whole = checkpoint(offsets)
        next(whole, None)
        yield from whole

    patch.setattr(GroupOffsetTable, "checkpoint", shorter)


def segments_deleted_before_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """Treat a checkpoint as complete before its slices are written."""
    checkpoint = Housekeeping.checkpoint

    async def early(keeping: Housekeeping) -> None:
        keeping.checkpoints.begins.extend([keeping.appender.durable_position] * CHECKPOINTS_KEPT)
        await keeping.apply_retention()
        await checkpoint(keeping)

    patch.setattr(Housekeeping, "checkpoint", early)


def checkpoint_folded_too_late(patch: pytest.MonkeyPatch) -> None:
    """Continue the fold from the position of the last slice, although the first slices are older."""

    def late(
        checkpoint_id: int, number: int, total: int, fold_from: int, as_of: int, changes: bytes
    ) -> CheckpointSlice:
        return CheckpointSlice(checkpoint_id, number, total, as_of, as_of, changes)

    patch.setattr(checkpoints, "CheckpointSlice", late)


def beginning_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """Delete segments without recording it before."""
    patch.setattr(housekeeping, "write_log_begin", lambda disk, folder, begin: None)


def beginning_recorded_too_late(patch: pytest.MonkeyPatch) -> None:
    """Record the beginning of the log only after the segments are deleted."""
    removed: list[tuple[Disk, Path, LogBegin]] = []
    patch.setattr(housekeeping, "write_log_begin", lambda *record: removed.append(record))

    def remove(disk: Disk, folder: Path, position: int) -> int:
        count = remove_below(disk, folder, position)
        while removed:
            write_log_begin(*removed.pop())
        return count

    patch.setattr(spares, "remove_below", remove)


def small_files_not_synced(patch: pytest.MonkeyPatch) -> None:
    """Rename a file to its name before its bytes are durable."""

    def write_whole(disk: Disk, path: Path, data: bytes, *, uses_reserve: bool = False) -> None:
        temporary = path.with_name(path.name + ".tmp")
        if temporary.name in disk.list(path.parent):
            disk.remove(temporary)
        file = disk.open(temporary, create=True)
        file.write(0, [data])
        file.close()
        disk.rename(temporary, path)
        disk.sync_directory(path.parent)

    patch.setattr(json_files, "write_atomically", write_whole)


def gaps_stored(patch: pytest.MonkeyPatch) -> None:
    """Accept any sequence that was not stored before."""
    honest = Sequencer.decide

    def decide(
        sequencer: Sequencer, key: tuple[int, int, int], first_sequence: int, count: int, crc: int, now_ms: int
    ) -> Duplicate | None:
        try:
            return honest(sequencer, key, first_sequence, count, crc, now_ms)
        except Unavailable:
            return None

    patch.setattr(Sequencer, "decide", decide)


def carried_changes_lost(patch: pytest.MonkeyPatch) -> None:
    """After a crash, fold batches without the state changes that they carry."""

    def fold_messages(fold: StateRefold, segment: Segment, header: FrameHeader) -> None:
        fold.state.apply_messages(header)

    patch.setattr(StateRefold, "_fold_messages", fold_messages)


def page_cache_believed(patch: pytest.MonkeyPatch) -> None:
    """At a start, treat readable data after the last durable byte as durable."""
    patch.setattr(only_copy, "rewrite_unsynced", lambda segment, position, end: None)


def position_not_compared(patch: pytest.MonkeyPatch) -> None:
    """At a start, accept a frame that was written for another position."""

    def decode(data: bytes, position: int) -> FrameHeader:
        written_for = int.from_bytes(data[POSITION_AT : POSITION_AT + 8], "little")
        return decode_header(data, written_for)._replace(position=position)

    patch.setattr(scan, "decode_header", decode)


def bodies_not_searched(patch: pytest.MonkeyPatch) -> None:
    """Use the file of a segment again although a client put frames into its messages."""
    patch.setattr(appender, "may_resemble_frame", lambda body: False)


def open_files_overwritten(patch: pytest.MonkeyPatch) -> None:
    """Use the file of a segment again although a reader has it open."""
    patch.setattr(MemoryDisk, "is_shared", lambda disk, path: False)


def overwritten_before_its_name_is_durable(patch: pytest.MonkeyPatch) -> None:
    """Overwrite the file of a deleted segment before its new name is durable."""
    install = Segment.install

    def early(segment: Segment) -> None:
        with pytest.MonkeyPatch.context() as within:
            if segment.is_reused:
                within.setattr(segment.files.disk, "sync_directory", lambda folder: None)
            install(segment)

    patch.setattr(Segment, "install", early)


def reused_before_the_begin_is_recorded(patch: pytest.MonkeyPatch) -> None:
    """Take the files of deleted segments before the log's begin is recorded."""
    postponed: list[tuple[Disk, Path, LogBegin]] = []
    patch.setattr(housekeeping, "write_log_begin", lambda *record: postponed.append(record))
    reuse = SpareSegments.reuse

    def early(spares: SpareSegments, segments: Sequence[Segment]) -> None:
        reuse(spares, segments)
        while postponed:
            write_log_begin(*postponed.pop())

    patch.setattr(SpareSegments, "reuse", early)


BUGS_OF_A_FAILING_DISK: dict[Plant, str] = {
    page_cache_believed: "is lost|damage is reported|DataLoss|instead of|expected one of"
}
"""Those that show when a flush fails, the process starts again on the same disk, and then the power is cut."""
BUGS_OF_REUSE: dict[Plant, str] = {
    position_not_compared: "the state's|DataLoss",
    bodies_not_searched: "damage is reported|the state's",
    open_files_overwritten: "changed under a reader",
    overwritten_before_its_name_is_durable: "is written while the durable names",
    reused_before_the_begin_is_recorded: "damage is reported",
}
"""Those that show when the log uses the files of deleted segments again."""
BUGS: dict[Plant, str] = {
    no_fsync: "is lost|damage is reported|instead of|DataLoss|expected one of",
    fsync_before_the_write: "is lost|damage is reported|instead of|DataLoss|expected one of",
    zeros_over_the_group: "is lost|damage is reported|instead of|DataLoss|expected one of",
    no_folder_fsync: "is lost|damage is reported|instead of|is None",
    offsets_given_twice: "the next offset is|already|twice|expected|acknowledged at",
    acknowledged_before_the_flush: "is lost",
    stale_snapshot: "the state's|is lost|expected one of",
    cut_too_early: "is lost|expected one of",
    torn_frame_accepted: "DataLoss|instead of|ValueError|damage is reported",
    durable_below_too_high: "damage is reported|DataLoss",
    dedup_windows_forgotten: "the state's windows|producer|although sequence",
    offsets_left_out: "the state's offsets",
    segments_deleted_before_the_checkpoint: "no whole checkpoint|the state's|is lost",
    checkpoint_folded_too_late: "the state's",
    beginning_not_recorded: "damage is reported|are damaged",
    beginning_recorded_too_late: "damage is reported|are damaged",
    small_files_not_synced: "is damaged",
    carried_changes_lost: "the state's (offsets|ids|sent_back|modes)|only one is found",
    gaps_stored: "although sequence",
}
"""Each bug with the harness's report about it."""

SOONEST: dict[Plant, int] = {
    beginning_recorded_too_late: 13, checkpoint_folded_too_late: 2, durable_below_too_high: 3, stale_snapshot: 11,
    torn_frame_accepted: 3,
}  # fmt: skip
"""The seeds of runs that show those bugs after few points that the first run shows late; found by trying."""

SMALL_SEGMENTS: dict[Plant, int] = {no_folder_fsync: 4096}
"""The segment size of runs that need many segments: another file syncs the folder after the first one has its name."""
