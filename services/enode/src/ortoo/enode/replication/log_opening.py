"""Opens the log of one replica: reads its files, and starts the engine at the end of the log."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ortoo.common.process.clock import Clock
from ortoo.enode.disk.atomic_files import fill_reserve
from ortoo.enode.disk.clean_stop import remove_clean_stop
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.durable_mark import read_committed_mark
from ortoo.enode.disk.identity import StoreIdentity, claim_folder, read_identity
from ortoo.enode.disk.log_begin import LogBegin, keep_log_begin
from ortoo.enode.disk.log_summary_file import StoredLogSummary, write_log_summary
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.flushing.disk_work import make_disk_work
from ortoo.enode.log.segment import Segment
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.log.spares import SpareSegments
from ortoo.enode.recovery.only_copy import log_opening
from ortoo.enode.recovery.opening import ReplicaLog, recover_replica
from ortoo.enode.recovery.restored import OPENINGS_GAP, read_openings_gap
from ortoo.enode.replication.replicated_log import ReplicatedLog
from ortoo.enode.store.engine import Engine


@dataclass(frozen=True, slots=True)
class _OpenedFiles:
    """The result of reading the files of a folder at a start."""

    identity: StoreIdentity
    log: ReplicaLog
    stored_end: int
    """The end of the stored log summary."""
    openings_gap: int
    known_committed: int


def _open_files(
    files: SegmentFiles,
    folder: Path,
    expected: StoreIdentity,
    stored: StoredLogSummary,
    begin_under_another_id: Callable[[], object],
    skipped_checkpoints: int,
) -> _OpenedFiles:
    """Recover the log of a locked folder, and prepare its small files for appends. Blocks.

    Errors: as `open_replicated_log`.
    """
    disk = files.disk
    identity = claim_folder(disk, folder, expected, disk.list(folder))
    log = recover_replica(files, folder, stored, skipped_checkpoints=skipped_checkpoints)
    recovered = log.recovered
    if recovered.missing_bytes:
        begin_under_another_id()
        identity = read_identity(disk, folder) or identity
    begin = recovered.begin or LogBegin(log.summary.begin, None)
    if begin.queues is None and (log.is_alone or recovered.begin is None):
        begin = LogBegin(begin.position, recovered.catalog.begin_offsets_without(0))
    keep_log_begin(disk, folder, begin)
    remove_clean_stop(disk, folder)
    if not log.is_alone:
        fill_reserve(disk, folder)
    kept, stored_end = StoredLogSummary.from_summary(log.summary), stored.summary.appended
    # Each start of an enode alone reads the frames behind the stored summary, so a start need not write it again.
    if not log.is_alone or kept.summary.appended < stored_end or kept.summary.begin != stored.summary.begin:
        write_log_summary(disk, folder, kept)
        stored_end = kept.summary.appended
    gap, known = read_openings_gap(disk, folder), read_committed_mark(disk, folder)
    return _OpenedFiles(identity, log, stored_end, gap, known)


async def open_replicated_log(
    folder: Path,
    *,
    identity: StoreIdentity,
    settings: StoreSettings,
    disk: Disk,
    clock: Clock,
    stored: StoredLogSummary,
    begin_under_another_id: Callable[[], object],
    skipped_checkpoints: int = 0,
) -> ReplicatedLog:
    """Lock a replica's folder and continue at the end of its log.

    `begin_under_another_id` gives a log that lost its end, and has no other replica, another id.
    `skipped_checkpoints` is the number of newest checkpoints to skip when the state is folded.

    Errors:
    * Conflict when another process has the folder open, or when the store belongs to another cluster or enode.
    * Unsupported when its format is newer.
    * DataLoss when data that a start needs is damaged, naming file and position.
    * Invalid when the settings cannot work.
    """
    settings.check()
    work = make_disk_work(disk, settings, asyncio.get_running_loop())
    lock, files = ExitStack(), SegmentFiles(disk)
    try:
        lock = disk.lock(folder)
        opened = await work.run(
            _open_files, files, folder, identity, stored, begin_under_another_id, skipped_checkpoints
        )
        log, recovered = opened.log, opened.log.recovered
        spares = SpareSegments(files, folder, work, settings.segment_bytes, settings.headroom_bytes)
        active = await _active(log, spares)
        engine = Engine(folder, settings, disk, clock, work, lock, opened.identity, recovered, spares, active)
    except BaseException:
        work.close()
        files.close()
        lock.close()
        raise
    engine.adopt_segments(recovered, active)
    engine.appender.next_segments.extend(log.next_segments)
    appender = engine.appender
    # Both numbers continue above any that clients have seen.
    raised_by = max(opened.openings_gap, OPENINGS_GAP if log.is_alone and recovered.is_end_lost else 0)
    appender.store_open = recovered.store_open + raised_by
    appender.commit_limit = None if log.is_alone else recovered.end_position
    if log.groups:
        appender.hold_recovered(log.groups)
    engine.housekeeping.is_leading = False
    engine.housekeeping.start()
    log_opening(folder, recovered, log.summary.appended)
    return ReplicatedLog(
        engine,
        folder,
        disk,
        log.summary,
        stored_end=opened.stored_end,
        is_missing_state=log.is_missing_state,
        former_end=log.former_end,
        is_alone=log.is_alone,
        last_epoch=log.last_epoch + raised_by,
        openings_gap=opened.openings_gap,
        known_committed=opened.known_committed,
        skips=recovered.skips,
    )


async def _active(log: ReplicaLog, spares: SpareSegments) -> Segment:
    """The segment for the next frame; a new one if the last segment is ended."""
    last = log.next_segments[-1] if log.next_segments else log.recovered.active
    if last is not None and last.end is None:
        return last
    active = await spares.take_named(log.summary.appended)
    if log.recovered.active is not None:
        log.next_segments.append(active)
    return active
