"""The log of one replica: executes the protocol's actions on an open engine."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ortoo.common.errors import Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.enode import log_events
from ortoo.enode.changes.kinds import DigestDue, OffsetsSkipped, StateDigest
from ortoo.enode.changes.pops import OPENING_SHIFT
from ortoo.enode.disk.atomic_files import fill_reserve
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.log_begin import LogBegin, write_log_begin
from ortoo.enode.disk.log_summary_file import StoredLogSummary, write_log_summary
from ortoo.enode.log.copies.frame_copies import FrameCopy, append_copies
from ortoo.enode.log.copies.protocol_frames import configuration_payload
from ortoo.enode.log.copies.truncated_frames import TruncatedFrames
from ortoo.enode.log.flushing.flush_group import FlushGroup
from ortoo.enode.log.frame import HEADER_BYTES, FrameFlag, FrameKind, frame_bytes
from ortoo.enode.log.segment import remove_below
from ortoo.enode.recovery.restored import invalidation_changes, remove_restored_mark
from ortoo.enode.recovery.segment_changes import truncate_files
from ortoo.enode.replication.log_bytes import PART_BYTES, LogBytes
from ortoo.enode.replication.protocol.identity import Configuration
from ortoo.enode.replication.protocol.log_summary import LogSummary, ProtocolFrame
from ortoo.enode.store.engine import Engine

NOT_LEADING = "this replica does not lead"
UNSUMMARIZED_BYTES_MAX = 1 << 20
"""Maximum of the log behind the stored summary after a clean stop; the next start reads the headers there."""
CHANGES_PER_WRITE_MAX = 512
"""Maximum of changes that are stored together."""
_log = get_logger("replication")


@dataclass(eq=False)
class ReplicatedLog:
    """An open, replicated log. `on_appended` and `on_flushed` report appends and flushes of this disk.

    Concurrency: all methods belong to the event loop that opened the log. The driver awaits one action on the log
    before it starts the next one; `commit`, `pause` and `resume` never wait.
    Durability: `truncate`, `reset`, `store_summary` and `delete_below` are durable when they return. Written frames are
    durable when `on_flushed` has reported their end.
    Errors: as each method says. After an OSError the log must be opened again.
    """

    engine: Engine
    folder: Path
    disk: Disk
    summary: LogSummary
    """The log summary at the opening."""
    stored_end: int
    """The end of the stored log summary."""
    is_missing_state: bool
    former_end: int
    is_alone: bool
    """Whether no other replica had the log at the opening."""
    last_epoch: int
    """If `is_alone`, an epoch that is not below any epoch of the log, or of a lost end of it."""
    openings_gap: int = 0
    """The number by which this start raised the number of openings; 0 when the clients' state is in the log."""
    known_committed: int = 0
    """The position up to which an earlier start knew the log to be committed."""
    skips: Sequence[OffsetsSkipped] = ()
    """The offsets that damaged places may have held, if no other replica has them. They are stored before any other
    change."""
    is_suspect: bool = False
    """Whether the folded state differs from other replicas'; then no start may use it."""
    on_appended: Callable[[int, tuple[ProtocolFrame, ...]], object] = lambda end, marks: None
    on_flushed: Callable[[int], object] = lambda position: None
    on_checkpoint_complete: Callable[[], object] = lambda: None
    """Called when a log that could not be folded has received a whole checkpoint."""
    on_truncated: Callable[[TruncatedFrames], object] = lambda frames: None
    """Called with the frames that a truncation removes, if they have messages."""

    def __post_init__(self) -> None:
        """Start as a follower."""
        self.bytes = LogBytes(self.engine)
        self.current_summary: Callable[[], LogSummary] = lambda: self.summary
        """Returns the log summary of the protocol."""
        self._storing_summary = asyncio.Lock()
        self.engine.housekeeping.on_indexed = self._store_summary_alone
        self._is_emptied = False
        self._new_from = self.summary.appended
        """The end of the frames that the opening has read. If the log has no state, they hold no usable checkpoint."""
        self.may_read: Callable[[], bool] = lambda: True
        """Returns whether the committed data here is complete, while other replicas may commit."""
        appender = self.engine.appender
        appender.on_submitted = self._on_submitted
        appender.on_durable = self._on_durable
        self._unreported_appended = self._unreported_flushed = 0
        self.engine.housekeeping.checkpoints.compare_states = self._compare_states
        self.follow()
        if self.is_missing_state:
            appender.on_committed = self._look_for_checkpoint

    def _look_for_checkpoint(self, group: FlushGroup) -> None:
        slices = [entry.slice_at for entry in group.entries if entry.slice_at is not None]
        if any(one.total and one.position >= self._new_from for one in slices):
            self.on_checkpoint_complete()

    # leading

    def follow(self, reason: str = NOT_LEADING) -> None:
        """Refuse writes of clients. Waiting ones get an unknown outcome; frames not yet on their way are dropped."""
        engine, appender = self.engine, self.engine.appender
        engine.housekeeping.is_leading = appender.may_place = False
        engine.may_read = self._may_read
        appender.refusal = reason
        appender.drop_unsubmitted(reason)

    def start_epoch(self, epoch: int) -> None:
        """Write frames of this epoch from now on; the first one must be an EPOCH frame."""
        appender = self.engine.appender
        appender.epoch, appender.store_open = epoch, appender.store_open + 1
        appender.may_place = True
        # No frame of an epoch lies before its EPOCH frame, so no mark may end the segment there. A copied frame may
        # fill a segment to its end, and then there is no room for a mark either.
        needed = appender.appended_position + frame_bytes(0) + HEADER_BYTES
        appender.active.limit = max(appender.active.limit, needed)

    async def append_protocol_frame(self, kind: FrameKind, payload: bytes = b"") -> None:
        """Append a frame of the replication protocol. Errors: Overloaded, Unavailable."""
        appender = self.engine.appender
        epoch = appender.epoch
        if not appender.fits(len(payload)):
            await appender.reserve_space(len(payload), is_state=True)
        if not appender.may_place or appender.epoch != epoch:
            raise Unavailable(NOT_LEADING)
        appender.seal_changes()
        appender.append_protocol_frame(kind, payload)
        appender.request_flush()

    async def append_configuration(self, configuration: Configuration) -> None:
        """Append a CONFIGURATION frame. Errors: as `append_protocol_frame`, and OSError."""
        await self.store_summary()  # behind damage, a start must not take this replica for the only one
        await self.engine.work.run(fill_reserve, self.disk, self.folder)  # an enode alone had none
        appender = self.engine.appender
        if len(configuration.voters) > 1 and appender.commit_limit is None:
            appender.commit_limit = appender.committed_position  # from now on, frames wait for the other disks
            self.engine.may_read = self._may_read
        await self.append_protocol_frame(FrameKind.CONFIGURATION, configuration_payload(configuration))

    def start_serving(self) -> None:
        """Start to serve: everything committed is folded. Accept writes and do the housekeeping."""
        engine = self.engine
        for queue in engine.catalog.queues.values():
            queue.next_offset = queue.end_at_opening = queue.end_offset
        # Another leader, or this disk, may have lost acknowledged batches, and a lost end can look like a torn one.
        engine.committer.reset_in_flight(engine.appender.stored_at_ms)
        if engine.appender.commit_limit is None:
            engine.may_read = None
        engine.housekeeping.is_leading = True
        engine.appender.refusal = ""

    def _may_read(self) -> bool:
        return self.may_read()

    async def invalidate_lost_state(self) -> None:
        """Before a replica that lost data without a copy serves, skip lost offsets and invalidate the clients' state.

        Errors: Overloaded, Unavailable. Then the call must be repeated.
        """
        engine = self.engine
        if self.skips:
            await engine.store(self.skips)
            self.skips = ()
            engine.housekeeping.checkpoints.due.set()
        if self.openings_gap:
            appender = engine.appender
            first_lease = appender.store_open << OPENING_SHIFT
            changes = invalidation_changes(engine.state, self.openings_gap, first_lease, appender.stored_at_ms)
            for start in range(0, len(changes), CHANGES_PER_WRITE_MAX):
                await engine.store(changes[start : start + CHANGES_PER_WRITE_MAX])
            await engine.work.run(remove_restored_mark, self.disk, self.folder)
            self.openings_gap = 0

    def pause(self, reason: str) -> None:
        """Refuse writes for now; accepted ones continue."""
        self.engine.appender.refusal = reason

    def resume(self) -> None:
        """Accept writes again."""
        self.engine.appender.refusal = ""

    async def _compare_states(self) -> None:
        """Make all replicas compare their state at this position. Errors: Overloaded, Unavailable."""
        engine, number = self.engine, self.engine.appender.appended_position
        if not self.bytes.has_followers:
            return
        await engine.store([DigestDue(number, engine.state.comparable_tables())])
        if engine.committer.digests[0] == number:
            await engine.store([StateDigest(*engine.committer.digests)])

    # following

    def commit(self, position: int) -> None:
        """Commit the frames below `position`: fold them, show them to readers, answer their waiters."""
        appender = self.engine.appender
        if appender.commit_limit is not None:
            appender.commit_limit = max(appender.commit_limit, position)
            appender.release_committed()

    async def write(self, begin: int, frames: Sequence[FrameCopy]) -> None:
        """Append a leader's frames. Errors: Overloaded, OSError."""
        appender = self.engine.appender
        assert begin == appender.appended_position, (
            f"frames at {begin} do not follow the log's end at {appender.appended_position}"
        )
        await append_copies(appender, frames)

    async def truncate(self, summary: LogSummary) -> None:
        """Truncate the log permanently to the end of `summary`. Errors: OSError.

        Invariant: the new end is durable in the stored summary before the first byte behind it changes. A start after
        a crash truncates again.
        """
        appender, position = self.engine.appender, summary.appended
        async with self.engine.housekeeping.marking, self._storing_summary:
            await appender.wait_idle()
            self.bytes.clear_cache()
            await self._keep_truncated(position)
            kept = StoredLogSummary.from_summary(summary, pending_truncation=position)
            await self.engine.work.run(write_log_summary, self.disk, self.folder, kept)
            appender.truncate_to(position, self.engine.catalog.active)
            self._new_from = min(self._new_from, position)
            await self.engine.work.run(truncate_files, self.disk, self.folder, position)
            await self.engine.work.run(
                write_log_summary, self.disk, self.folder, StoredLogSummary.from_summary(summary)
            )

    async def _keep_truncated(self, position: int) -> None:
        """Log the frames that a truncation removes, and keep them in a file. Errors: OSError."""
        parts, at = [], position
        while at < self.engine.appender.durable_position:
            part = await self.bytes.read_disk(at, PART_BYTES)
            if not part:
                break
            parts.append(part)
            at += len(part)
        frames = TruncatedFrames.of(position, b"".join(parts))
        if not frames.messages:
            return
        self.on_truncated(frames)
        file = await self.engine.work.run(frames.write_file, self.disk, self.folder)
        topics = [(one.topic_id, one.name) for one in self.engine.state.topics.all()]
        _log.emit(
            log_events.LOG_TRUNCATED,
            messages=frames.messages,
            epoch=frames.epoch,
            position=position,
            file=file,
            offsets=frames.describe_offsets(topics),
        )

    async def reset(self, summary: LogSummary) -> bool:
        """Empty the log, so that it begins as `summary` does. Returns whether it must be opened again.

        Errors: OSError.
        """
        appender = self.engine.appender
        await appender.wait_idle()
        stored = StoredLogSummary.from_summary(summary)
        async with self._storing_summary:
            if appender.appended_position == summary.begin == self.engine.catalog.begin_position:
                await self.engine.work.run(write_log_summary, self.disk, self.folder, stored)
                return False
            await self.engine.housekeeping.stop()
            self._is_emptied = True
            await self.engine.work.run(empty_log, self.disk, self.folder, stored)
            return True

    async def store_summary(self) -> None:
        """Store the log summary, so that the next start need not read the log before its end. Errors: OSError."""
        async with self._storing_summary:
            self.report_progress()
            summary = self.current_summary()
            if len(summary.configuration.replicas) == 1:  # without other replicas, a start takes its end for durable
                summary = summary.truncated(summary.flushed)
            stored = StoredLogSummary.from_summary(summary)
            await self.engine.work.run(write_log_summary, self.disk, self.folder, stored)
            self.stored_end = stored.summary.appended

    async def _store_summary_alone(self) -> None:
        """As `store_summary`, unless there are other replicas.

        With other replicas, a start reads the log from its previous start on. So it detects damage, and fetches the
        damaged part from the others.
        """
        if len(self.current_summary().configuration.replicas) == 1:
            await self.store_summary()

    async def delete_below(self, begin: int) -> None:
        """Delete the segments that lie wholly below `begin`. Errors: OSError."""
        await self.store_summary()
        await self.engine.housekeeping.delete_below(begin)

    def _on_submitted(self, group: FlushGroup) -> None:
        """Report a group that goes to the disk. From now on it can only be removed by a truncation."""
        if group.is_copy:
            return  # the protocol itself sent it here
        is_needed = self.bytes.has_followers or group.has_protocol_frames
        if is_needed or self.engine.appender.commit_limit is not None or not self.engine.housekeeping.is_leading:
            self.on_appended(group.end_position, self.bytes.cache_group(group))
        else:
            self._unreported_appended = group.end_position

    def _on_durable(self, group: FlushGroup) -> None:
        if self._unreported_appended >= group.end_position:
            self._unreported_flushed = group.end_position
        else:
            self.on_flushed(group.end_position)

    def report_progress(self) -> None:
        """Report appends and flushes of an enode alone, which change no decision. Called before each other event."""
        appended, flushed = self._unreported_appended, self._unreported_flushed
        self._unreported_appended = self._unreported_flushed = 0
        if appended:
            self.on_appended(appended, ())
        if flushed:
            self.on_flushed(flushed)

    async def close(self) -> None:
        """Close the log and unlock the folder."""

        async def ending() -> None:
            appender, housekeeping = self.engine.appender, self.engine.housekeeping
            if appender.may_place and appender.commit_limit is None:
                if appender.fits(HEADER_BYTES):
                    appender.append_mark(FrameFlag.CLOSED)
                await appender.flush()  # other replicas would have got everything with the leadership
            self.follow("the store is closed")
            await appender.wait_idle()
            await housekeeping.stop()
            if self._is_emptied:
                return  # its files are deleted, or will be
            await housekeeping.index_sealed()
            is_whole = not self.is_missing_state and not self.is_suspect
            if is_whole and appender.readable_position == appender.appended_position:  # the disk may have failed
                if appender.appended_position - self.stored_end > UNSUMMARIZED_BYTES_MAX:
                    await self._store_summary_alone()
                await housekeeping.write_clean_stop(self.folder)

        await self.engine.close(ending)


def empty_log(disk: Disk, folder: Path, stored: StoredLogSummary) -> None:
    """Delete a log except the record of its begin. Errors: OSError."""
    position = stored.summary.begin
    write_log_summary(disk, folder, stored)
    write_log_begin(disk, folder, LogBegin(position, None))
    remove_below(disk, folder, 1 << 63)
    truncate_files(disk, folder, position)
