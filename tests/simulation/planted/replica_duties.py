"""Planted: duties of a replica's driver, its disk and its log that are left out in the real driver."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from ortoo.enode.disk import hard_state_file, log_summary_file
from ortoo.enode.disk.clean_stop import write_clean_stop
from ortoo.enode.disk.log_summary_file import StoredLogSummary, read_log_summary, write_log_summary
from ortoo.enode.leadership import open_log
from ortoo.enode.log.flushing.flusher import Flusher
from ortoo.enode.recovery import opening, segment_changes
from ortoo.enode.recovery.only_copy import make_clean_stop
from ortoo.enode.recovery.segment_changes import truncate_files
from ortoo.enode.replication import driver as driver_module
from ortoo.enode.replication import log_bytes, membership, replicated_log
from ortoo.enode.replication.driver import Driver
from ortoo.enode.replication.protocol.events import HardStateSaved, SaveHardState
from ortoo.enode.replication.protocol.log_summary import LogSummary
from ortoo.enode.replication.protocol.messages import Frames
from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.protocol.rules import Rules
from ortoo.enode.replication.replicated_log import ReplicatedLog
from ortoo.enode.rpc.leader_only import LeaderOnlyService

recovery: Any = opening
"""Names that these modules imported are replaced there."""
cutting: Any = segment_changes
shipping: Any = driver_module
repairing: Any = log_bytes
starting: Any = open_log
closing_log: Any = replicated_log
rules: Any = Rules
serials: Any = hard_state_file
summaries: Any = log_summary_file


def vote_sent_before_its_sync() -> None:
    """Vote on disk: a vote is sent at once, and written later."""
    perform = Driver._perform

    def early(self: Any, action: Any) -> None:
        perform(self, action)
        if isinstance(action, SaveHardState):
            self.post(HardStateSaved(action.hard_state))

    Driver._perform = early  # type: ignore[method-assign]


def own_vote_is_deferred() -> None:
    """Vote on disk: a candidate's vote for itself is never written."""
    defer = membership.ReplicaMembership.may_defer

    def always(self: Any, reign: Any, configuration: Any) -> bool:
        return defer(self, reign, configuration) or reign.leader == self.stored.identity

    membership.ReplicaMembership.may_defer = always  # type: ignore[method-assign]


def log_reopened_under_the_same_start() -> None:
    """Start ids: a process that opens its log again keeps the number of its start."""
    begin = membership.ReplicaMembership.next_incarnation

    def same(self: Any) -> Any:
        if getattr(self, "has_begun", False):
            return self.stored, read_log_summary(self.disk, self.folder) or StoredLogSummary()
        self.has_begun = True
        return begin(self)

    membership.ReplicaMembership.next_incarnation = same  # type: ignore[method-assign]


def start_is_not_stored() -> None:
    """Start ids: a replica sends messages as a start that its disk does not have."""
    begin = starting._begin_start

    def unsaved(kept: Any, *start: Any, **options: Any) -> None:
        real, kept.write = kept.write, lambda stored: None
        try:
            begin(kept, *start, **options)
        finally:
            kept.write = real

    starting._begin_start = unsaved


def start_is_reported_before_it_is_stored() -> None:
    """Start ids: a process that ends while it opens its log names a start that its disk does not have."""
    begin = membership.ReplicaMembership.next_incarnation

    def known_at_once(self: Any) -> Any:
        started, summary = begin(self)
        self.stored = started
        return started, summary

    membership.ReplicaMembership.next_incarnation = known_at_once  # type: ignore[method-assign]


def deposed_leader_answers_reads() -> None:
    """Linearizable reads: a leader without its followers answers reads until it learns that another one leads."""

    async def at_once(self: Any, service: Any) -> None:
        """Confirm nothing."""

    def always(self: Any, now_s: float) -> bool:
        return True

    def all_others(self: Any, configuration: Any, now_s: float) -> Any:
        return tuple(one for one in configuration.voters if one != self.identity.replica)

    LeaderOnlyService._confirm = at_once  # type: ignore[method-assign]
    Replica.may_read = always  # type: ignore[method-assign]
    Replica.responding_voters = all_others  # type: ignore[method-assign]


def uncommitted_changes_are_shown() -> None:
    """Linearizable reads: reads of locks and deliveries show changes that are only in memory."""

    async def at_once(self: Any) -> None:
        """Wait for nothing."""

    Flusher.wait_committed = at_once  # type: ignore[method-assign]


def appended_is_called_committed() -> None:
    """Committed: shipped frames call everything committed that the leader has appended."""

    def frames(*head: Any) -> Frames:
        epoch, to, stream, begin, end, protocol_frames, _, content = head
        return Frames(epoch, to, stream, begin, end, protocol_frames, end, content)

    shipping.Frames = frames


def followers_flush_in_memory() -> None:
    """Flushed: a follower acknowledges frames when it has received them."""
    write = ReplicatedLog.write

    async def early(self: Any, begin: int, frames: Sequence[Any]) -> None:
        await write(self, begin, frames)
        self.on_flushed(self.engine.appender.appended_position)

    ReplicatedLog.write = early  # type: ignore[method-assign]


def followers_show_everything() -> None:
    """Committed: a follower folds and shows frames that are not committed."""
    commit = ReplicatedLog.commit

    def all_of_it(self: Any, position: int) -> None:
        commit(self, max(position, self.engine.appender.durable_position))

    ReplicatedLog.commit = all_of_it  # type: ignore[method-assign]


def cut_not_recorded_first() -> None:
    """Truncation: the log is cut before the cut is recorded."""

    async def unrecorded(self: Any, summary: LogSummary) -> None:
        appender, position = self.engine.appender, summary.appended
        async with self.engine.housekeeping.marking, self._storing_summary:
            await appender.wait_idle()
            self.bytes.clear_cache()
            appender.truncate_to(position, self.engine.catalog.active)
            await self.engine.work.run(truncate_files, self.disk, self.folder, position)
            kept = StoredLogSummary.from_summary(summary)
            await self.engine.work.run(write_log_summary, self.disk, self.folder, kept)

    ReplicatedLog.truncate = unrecorded  # type: ignore[method-assign]


def cut_in_memory_only() -> None:
    """Truncation: the files keep the frames that a truncation removes."""

    def keep(*_: Any) -> None:
        """Keep all."""

    closing_log.truncate_files = keep


def durable_mark_not_lowered() -> None:
    """Truncation: the durable mark stays beyond the end of a truncated log."""
    cutting.read_durable_mark = lambda disk, folder: 0


def no_rewrite_after_a_failed_sync() -> None:
    """Flushed: a starting replica syncs frames that its page cache has, and does not write them again."""
    recovery.rewrite_unsynced = lambda segment, position, end: None


def opened_frames_are_not_synced() -> None:
    """Flushed: a starting replica neither writes nor syncs frames that no flush covers."""
    recovery._make_durable = lambda disk, folder, segments, flushed, end: truncate_files(disk, folder, end)


def repaired_frame_not_synced() -> None:
    """Flushed: a frame from another replica's copy is written and never synced."""

    def rewrite(segment: Any, position: int, frame: bytes) -> None:
        with closing(segment.files.disk.open(segment.path)) as file:
            file.write(position - segment.base, [frame])

    repairing._rewrite_frame = rewrite


def one_disk_is_enough() -> None:
    """Committed: a leader commits what its own disk has."""
    rules.commit_position = lambda self, log, leader, own: log.flushed


def clean_marker_beyond_committed() -> None:
    """Clean stop: the marker of a clean stop has frames that are not committed."""
    close = ReplicatedLog.close

    async def marked(self: Any) -> None:
        engine, end_engine = self.engine, self.engine.close
        appender = engine.appender

        async def then_mark(ending: Any) -> None:
            async def ended() -> None:
                await ending()
                if not self._is_emptied and appender.readable_position != appender.appended_position:
                    numbers = (appender.appended_position, appender.store_open, appender.stored_at_ms)
                    marker = make_clean_stop(engine.catalog, engine.state, *numbers)
                    await engine.work.run(write_clean_stop, self.disk, self.folder, marker)

            await end_engine(ended)

        engine.close = then_mark
        await close(self)

    ReplicatedLog.close = marked  # type: ignore[method-assign]


def an_older_file_is_believed() -> None:
    """Files: an older copy of the hard state is taken for the latest one."""
    serials.read_serial = lambda disk, folder: (0, 0)
    summaries.read_serial = lambda disk, folder: 0
