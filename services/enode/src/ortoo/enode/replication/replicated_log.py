"""The log of one replica: executes the protocol's actions on an open engine."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ortoo.common.errors import Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.enode import log_events
from ortoo.enode.changes.kinds import DigestDue, StateDigest
from ortoo.enode.replication.log_bytes import PART_BYTES, LogBytes
from ortoo.enode.disk.clean_stop import forget_clean_stop
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import Identity, claim
from ortoo.enode.disk.log_begin import LogBegin, keep_log_begin, write_log_begin
from ortoo.enode.disk.log_summary_file import KeptOutline, write_outline
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.disk.durable_mark import read_committed_mark
from ortoo.enode.log.copies.frame_copies import Frame, append_copies
from ortoo.enode.log.copies.truncated_frames import CutFrames
from ortoo.enode.log.flushing.disk_work import disk_work
from ortoo.enode.log.flushing.flush_group import Group
from ortoo.enode.log.frame import Kind, frame_bytes
from ortoo.enode.log.segment import Segment, remove_below
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.log.spares import Spares
from ortoo.enode.replication.protocol.log_summary import LogOutline, Mark
from ortoo.enode.recovery.replica_opening import MemberLog, cut_files, recover_member
from ortoo.enode.recovery.restored import begin_anew, forget_restored, read_apart
from ortoo.enode.store.engine import Engine

NOBODY_LEADS = "this replica does not lead"
CHANGES_MAX = 512
"""Maximum of changes that are stored together."""
_log = get_logger("members")


@dataclass(eq=False)
class SharedLog:
    """An open, replicated log. `on_appended` and `on_flushed` report appends and flushes of this disk."""

    engine: Engine
    folder: Path
    disk: Disk
    outline: LogOutline
    """The log summary at the opening."""
    is_cold: bool
    lost: int
    known_committed: int = 0
    """The position up to which an earlier start knew the log to be committed."""
    is_doubtful: bool = False
    """Whether the folded state differs from other replicas'; then no start may use it."""
    on_appended: Callable[[int, tuple[Mark, ...]], object] = lambda end, marks: None
    on_flushed: Callable[[int], object] = lambda position: None
    on_warm: Callable[[], object] = lambda: None
    """Called when a log that could not be folded has received a whole checkpoint."""
    on_cut: Callable[[CutFrames], object] = lambda frames: None
    """Called with the frames that a truncation removes, if they have messages."""

    def __post_init__(self) -> None:
        """Start as a follower."""
        self.bytes = LogBytes(self.engine)
        self._is_emptied = False
        appender = self.engine.appender
        appender.on_handed_over = self._handed_over
        appender.on_durable = lambda group: self.on_flushed(group.end_position)
        self.engine.housekeeping.checkpoints.compare = self._compare_states
        self.follow()
        if self.is_cold:
            appender.on_committed = self._look_for_checkpoint

    def _look_for_checkpoint(self, group: Group) -> None:
        if any(entry.slice_at is not None and entry.slice_at.total for entry in group.entries):
            self.on_warm()

    # leading

    def follow(self, reason: str = NOBODY_LEADS) -> None:
        """Refuse writes of clients. Waiting ones get an unknown outcome; frames not yet on their way are dropped."""
        engine, appender = self.engine, self.engine.appender
        engine.housekeeping.leads = appender.may_write = False
        appender.alone = reason
        appender.take_back(reason)

    def begin_reign(self, epoch: int) -> None:
        """Write frames of this epoch from now on; the first one must be an EPOCH frame."""
        appender = self.engine.appender
        appender.epoch, appender.store_open = epoch, appender.store_open + 1
        appender.may_write = True
        if not appender.fits(0):
            # No frame of an epoch lies before its EPOCH frame, so no mark may end the segment there.
            appender.active.limit += frame_bytes(0)

    async def append_word(self, kind: Kind, payload: bytes = b"") -> None:
        """Append a frame of the replication protocol. Errors: Overloaded, Unavailable."""
        appender = self.engine.appender
        epoch = appender.epoch
        if not appender.fits(len(payload)):
            await appender.make_room(len(payload), is_state=True)
        if not appender.may_write or appender.epoch != epoch:
            raise Unavailable(NOBODY_LEADS)
        appender.close_changes()
        appender.append_word(kind, payload)
        appender.want_flush()

    def serve(self) -> None:
        """Start to serve: everything committed is folded. Accept writes and do the housekeeping."""
        engine = self.engine
        for queue in engine.catalog.queues.values():
            queue.next_offset = queue.end_offset
        engine.committer.forget_the_way(engine.appender.stored_at_ms)
        engine.housekeeping.leads = True
        engine.appender.alone = ""

    async def begin_anew(self) -> None:
        """Invalidate the clients' state of lost data, before a disk that continues alone serves.

        Errors: Overloaded, Unavailable. Then the call must be repeated.
        """
        engine = self.engine
        if apart := await engine.work.run(read_apart, self.disk, self.folder):
            changes = begin_anew(engine.state, apart, engine.appender.stored_at_ms)
            for start in range(0, len(changes), CHANGES_MAX):
                await engine.store(changes[start : start + CHANGES_MAX])
            await engine.work.run(forget_restored, self.disk, self.folder)

    def hold_back(self, reason: str) -> None:
        """Refuse writes for now; accepted ones continue."""
        self.engine.appender.alone = reason

    def take_again(self) -> None:
        """Accept writes again."""
        self.engine.appender.alone = ""

    async def _compare_states(self) -> None:
        """Make all replicas compare their state at this position. Errors: Overloaded, Unavailable."""
        engine, number = self.engine, self.engine.appender.appended_position
        await engine.store([DigestDue(number, engine.state.comparable())])
        if engine.committer.own[0] == number:
            await engine.store([StateDigest(*engine.committer.own)])

    # following

    def commit(self, position: int) -> None:
        """Commit the frames below `position`: fold them, show them to readers, answer their waiters."""
        appender = self.engine.appender
        appender.commit_limit = max(appender.commit_limit or 0, position)
        appender.release()

    async def write(self, begin: int, frames: Sequence[Frame]) -> None:
        """Append a leader's frames. Errors: Overloaded, OSError."""
        appender = self.engine.appender
        assert begin == appender.appended_position, (
            f"frames at {begin} do not follow the log's end at {appender.appended_position}"
        )
        await append_copies(appender, frames)

    async def cut(self, outline: LogOutline) -> None:
        """Truncate the log permanently to the end of `outline`. Errors: OSError."""
        appender, position = self.engine.appender, outline.appended
        async with self.engine.housekeeping.marking:
            await appender.quiet()
            self.bytes.forget_newest()
            await self._keep_cut(position)
            kept = KeptOutline.of(outline, cut=position)
            await self.engine.work.run(write_outline, self.disk, self.folder, kept)
            appender.end_at(position, self.engine.catalog.active)
            await self.engine.work.run(cut_files, self.disk, self.folder, position)
            await self.engine.work.run(write_outline, self.disk, self.folder, KeptOutline.of(outline))

    async def _keep_cut(self, position: int) -> None:
        """Log the frames that a truncation removes, and keep them in a file. Errors: OSError."""
        parts, at = [], position
        while at < self.engine.appender.durable_position:
            part = await self.bytes.from_disk(at, PART_BYTES)
            if not part:
                break
            parts.append(part)
            at += len(part)
        frames = CutFrames.of(position, b"".join(parts))
        if not frames.messages:
            return
        self.on_cut(frames)
        file = await self.engine.work.run(frames.keep, self.disk, self.folder)
        topics = [(one.topic_id, one.name) for one in self.engine.state.topics.all()]
        _log.emit(
            log_events.LOG_TRUNCATED,
            messages=frames.messages,
            epoch=frames.epoch,
            position=position,
            file=file,
            offsets=frames.told(topics),
        )

    async def restart(self, outline: LogOutline) -> bool:
        """Empty the log, so that it begins as `outline` does. Returns whether it must be opened again.

        Errors: OSError.
        """
        appender = self.engine.appender
        await appender.quiet()
        kept = KeptOutline.of(outline)
        if appender.appended_position == outline.begin == self.engine.catalog.begin_position:
            await self.engine.work.run(write_outline, self.disk, self.folder, kept)
            return False
        await self.engine.housekeeping.stop()
        self._is_emptied = True
        await self.engine.work.run(empty_log, self.disk, self.folder, kept)
        return True

    async def keep(self, outline: LogOutline) -> None:
        """Store the log summary, so that the next start need not read the log before its end. Errors: OSError."""
        await self.engine.work.run(write_outline, self.disk, self.folder, KeptOutline.of(outline))

    async def delete_below(self, begin: int, outline: LogOutline) -> None:
        """Delete the segments that lie wholly below `begin`. Errors: OSError."""
        await self.keep(outline)
        segments = self.engine.catalog.segments
        count = sum(one.end is not None and one.end <= begin for one in segments[:-1])
        await self.engine.housekeeping.delete(count)

    def _handed_over(self, group: Group) -> None:
        """Report a group that goes to the disk. From now on it can only be removed by a truncation."""
        if group.is_copy:
            return  # the protocol itself sent it here
        self.on_appended(group.end_position, self.bytes.add_newest(group))

    async def close(self) -> None:
        """Close the log and unlock the folder."""

        async def ending() -> None:
            self.follow("the store is closed")
            appender, housekeeping = self.engine.appender, self.engine.housekeeping
            await appender.quiet()
            await housekeeping.stop()
            if self._is_emptied:
                return  # its files are deleted, or will be
            await housekeeping.index_sealed()
            is_whole = not self.is_cold and not self.is_doubtful
            if is_whole and appender.committed_position == appender.appended_position:
                await housekeeping.leave_marker(self.folder)

        await self.engine.close(ending)


def empty_log(disk: Disk, folder: Path, kept: KeptOutline) -> None:
    """Delete a log except the record of its begin. Errors: OSError."""
    position = kept.outline.begin
    write_outline(disk, folder, kept)
    write_log_begin(disk, folder, LogBegin(position, None))
    remove_below(disk, folder, 1 << 63)
    cut_files(disk, folder, position)


async def open_shared_log(
    folder: Path,
    *,
    identity: Identity,
    settings: StoreSettings,
    disk: Disk,
    clock: Clock,
    kept: KeptOutline,
    doubts: int = 0,
) -> SharedLog:
    """Lock a replica's folder and continue at the end of its log. Errors: as `Store.open`.

    `doubts` is the number of newest checkpoints to skip when the state is folded.
    """
    settings.check()
    work = disk_work(disk, settings, asyncio.get_running_loop())
    lock, files = ExitStack(), SegmentFiles(disk)
    try:
        lock = disk.lock(folder)
        found = await work.run(claim, disk, folder, identity, disk.list(folder))
        log = await work.run(recover_member, files, folder, kept, doubts=doubts)
        recovered = log.recovered
        if recovered.begin is None:
            begins = recovered.catalog.begins_without(0)
            await work.run(write_log_begin, disk, folder, LogBegin(log.outline.begin, begins))
        else:
            await work.run(keep_log_begin, disk, folder, recovered.begin)
        await work.run(forget_clean_stop, disk, folder)
        await work.run(write_outline, disk, folder, KeptOutline.of(log.outline))
        spares = Spares(files, folder, work, settings.segment_bytes, settings.headroom_bytes)
        active = await _active(log, spares)
        apart = await work.run(read_apart, disk, folder)
        known = await work.run(read_committed_mark, disk, folder)
        engine = Engine(folder, settings, disk, clock, work, lock, found, recovered, spares, active)
    except BaseException:
        work.close()
        files.close()
        lock.close()
        raise
    engine.take_over(recovered, active)
    engine.appender.next_segments.extend(log.next_segments)
    appender = engine.appender
    appender.store_open = recovered.store_open + apart
    appender.commit_limit = recovered.end_position
    if log.groups:
        appender.hold(log.groups)
    engine.housekeeping.leads = False
    engine.housekeeping.start()
    return SharedLog(engine, folder, disk, log.outline, log.is_cold, log.lost, known)


async def _active(log: MemberLog, spares: Spares) -> Segment:
    """The segment for the next frame; a new one if the last segment is ended."""
    last = log.next_segments[-1] if log.next_segments else log.recovered.active
    if last is not None and last.end is None:
        return last
    active = await spares.begun(log.outline.appended)
    if log.recovered.active is not None:
        log.next_segments.append(active)
    return active
