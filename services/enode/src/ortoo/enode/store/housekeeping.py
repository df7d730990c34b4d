"""Background work of a store: marks, checkpoints, index files, retention, checks of the disk."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ortoo.common.errors import OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.logs.rate_limit import LogRateLimit
from ortoo.enode import log_events
from ortoo.enode.changes.kinds import ExpiredDropped, StateChange
from ortoo.enode.disk.atomic_files import fill_reserve
from ortoo.enode.disk.clean_stop import write_clean_stop
from ortoo.enode.disk.data_dir import FolderGone
from ortoo.enode.disk.disk import DiskSpace
from ortoo.enode.disk.durable_mark import DurableMark
from ortoo.enode.disk.log_begin import LogBegin, read_log_begin, write_log_begin
from ortoo.enode.index.catalog import SealedSegment
from ortoo.enode.index.index_files import write_index
from ortoo.enode.index.key_process import KeyIndex
from ortoo.enode.index.key_search import LogStretch
from ortoo.enode.log.appender import Appender
from ortoo.enode.log.queue_index import QueueKey, SegmentContents
from ortoo.enode.log.segment import INDEX_SUFFIX, KEYS_SUFFIX, Segment, segment_bases, segment_name
from ortoo.enode.log.settings import RETENTION_SETTINGS, StoreSettings
from ortoo.enode.log.space_trend import SpaceTrend
from ortoo.enode.reading.reader import Reader
from ortoo.enode.recovery.only_copy import make_clean_stop
from ortoo.enode.state.fold import State
from ortoo.enode.store.checkpoints import Checkpoints
from ortoo.enode.store.retention import RetentionClock, expired, is_too_old

Rescue = Callable[[int], Awaitable[int | None]]
"""Stores deferred messages below a place again; the number of bytes, or None when that is not possible yet."""
BUSY_MARK_INTERVAL_S = 1.0
"""Interval at which a replica that is never idle writes its durable mark."""
FORGET_INTERVAL_MS = 60_000
KEY_INDEX_INTERVAL_MS, KEY_INDEX_STEP_BYTES = 200, 4 << 20
INDEX_WARNING_PERCENT = 80

_log = get_logger("store")


@dataclass(kw_only=True, eq=False)
class Housekeeping:
    """The store's own tasks. They run from `start` to `stop`; each continues after an error."""

    appender: Appender
    reader: Reader
    state: State
    keys: KeyIndex
    store: Callable[[Sequence[StateChange]], Awaitable[None]]
    """Stores state changes; returns when they are committed."""
    state_bytes: int
    """Length of the encoded state when the store was opened."""

    def __post_init__(self) -> None:
        """Prepare the tasks, which run only after `start`."""
        appender, reader = self.appender, self.reader
        self.settings, self.clock, self.work = appender.settings, appender.clock, appender.work
        self.disk, self.catalog, self.recent = reader.disk, reader.catalog, reader.recent
        self._durable_mark = DurableMark(self.disk, appender.active.folder)
        self._retention_clock = RetentionClock()
        self._keys_position = 0
        self._keys_due = appender.advanced
        """Set when the log has grown or a segment was sealed."""
        self._keys_due.set()
        catalog = self.catalog
        names = self.disk.list(catalog.active.folder) if catalog.segments else []
        with_keys = set(segment_bases(names, KEYS_SUFFIX))
        self._keys_to_seal = deque(
            LogStretch(one.base, one.end, is_sealed=True)
            for one in catalog.contents.values()
            if one.base not in with_keys
        )
        self.is_leading = True
        """Whether this process writes its own log; a follower gets marks and checkpoints from its leader."""
        self.move_log_begin: Callable[[int], Awaitable[None]] = self.delete_below
        """Deletes the log below a position. With several replicas, a call that makes all of them do so replaces it."""
        self.on_indexed: Callable[[], Awaitable[None]] | None = None
        """Called when index files of sealed segments were written."""
        self._tasks: list[asyncio.Task[None]] = []
        self._log_rate = LogRateLimit()
        self._sealed: deque[SealedSegment] = deque()
        self._sealed_event, self._retention_due = asyncio.Event(), asyncio.Event()
        self.marking = asyncio.Lock()
        """Held while the durable mark is written or the log is truncated; a mark beyond the end claims lost data."""
        self._deleting = asyncio.Lock()
        """Held while segments are counted and deleted: retention and the replication protocol both request it."""
        self._marked_position, self._marked_committed, self._marked_s = -1, -1, 0.0
        self.checkpoints = Checkpoints(
            appender=appender, catalog=catalog, state=self.state, size_bytes=self.state_bytes
        )
        self.deleted_segments = 0
        self.on_deleted: Callable[[Mapping[QueueKey, int]], None] = lambda begins: None
        """Called after segments were deleted, with the begin offsets of all queues before that."""
        self.index_is_nearly_full = False
        self.space = SpaceTrend()
        begin = read_log_begin(self.disk, appender.active.folder)
        self._begin_position = begin.position if begin is not None else 0
        self.rescues: dict[int, Rescue] = {}
        """By system topic: stores the deferred messages below an offset of its queue again."""
        self._rescued_bytes = 0
        """Bytes by which the log may exceed its size after a rescue, until the same amount of new content is stored."""
        self._rescued_at = 0
        """The content of the log at the rescue; checkpoints do not count."""

    def start(self) -> None:
        """Start all tasks. A failed step is retried, and does not end the process."""
        settings, appender = self.settings, self.appender
        for name, work in {
            "mark": self._run_on(appender.flushed, self._mark_when_idle),
            "flush": self._run_on(appender.flush_due, self._flush_later),
            "seal": self._run_on(self._sealed_event, self._index_and_report, self._prepare_spare),
            "checkpoint": self._run_on(self.checkpoints.due, self.checkpoint),
            "interval": self._run_every(settings.retention_interval_ms, self._request_retention),
            "retention": self._run_on(self._retention_due, self.end_old_segment, self.apply_retention),
            "forget": self._run_every(FORGET_INTERVAL_MS, self.expire_producers_and_ids),
            "disk": self._run_every(settings.disk_check_interval_ms, self._check_disk),
            **({"keys": self._run_key_index()} if settings.key_index else {}),
        }.items():
            self._tasks.append(asyncio.get_running_loop().create_task(work, name=f"store:{name}"))

    def use_retention_settings(self, settings: StoreSettings) -> None:
        """Apply the retention settings of `settings` from the next run on; its other settings are ignored."""
        self.settings = replace(self.settings, **{name: getattr(settings, name) for name in RETENTION_SETTINGS})

    async def stop(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._durable_mark.close()

    def on_segment_sealed(self, sealed: SealedSegment) -> None:
        """Request the index file of a full and committed segment, and the next spare segment."""
        self._sealed.append(sealed)
        self._sealed_event.set()

    def committed(self) -> None:
        """Check whether a checkpoint is due, after frames were committed and folded."""
        if self.is_leading:
            self.checkpoints.check_due()

    async def checkpoint(self) -> None:
        """Write a checkpoint, unless another replica leads. Errors: as `Checkpoints.write`."""
        if self.is_leading:
            await self.checkpoints.write()

    async def end_old_segment(self) -> None:
        """End an active segment that is old enough, before a checkpoint or a rescued message makes it younger."""
        now_ms = self._retention_now_ms()
        if self.is_leading and is_too_old(self.catalog.active_since_ms, now_ms=now_ms, settings=self.settings):
            await self.appender.end_active_segment()

    def _retention_now_ms(self) -> int:
        return self._retention_clock.now_ms(self.clock.now_ms(), self.clock.monotonic_s())

    async def apply_retention(self) -> None:
        """Delete expired segments: the new begin is recorded first, then they are forgotten, and removed last.

        A file that cannot be removed is retried in the next run and at the next start; it is no longer read.
        """
        catalog = self.catalog
        if not self.is_leading:
            return
        count, blocked_bytes, is_blocked_by_age = expired(
            catalog.segments,
            now_ms=self._retention_now_ms(),
            log_end=self.appender.appended_position,
            checkpoint_from=self.checkpoints.foldable_from,
            settings=self.settings,
            is_acknowledged=self._is_acknowledged,
            is_size_kept=self.checkpoints.content - self._rescued_at >= self._rescued_bytes,
        )
        self.checkpoints.request_for_retention(blocked_bytes, is_by_age=is_blocked_by_age)
        rescued_bytes = await self._rescue(catalog.segments[:count])
        if rescued_bytes is None:
            count = 0
        elif count:
            self._rescued_bytes, self._rescued_at = rescued_bytes, self.checkpoints.content
        begin = catalog.segments[count].base if count else self._begin_position
        delete = self.move_log_begin if count else self.delete_below
        await delete(begin)

    async def delete_below(self, position: int) -> None:
        """Delete the sealed segments that end at or below a position, and files that an earlier run left."""
        catalog = self.catalog
        async with self._deleting:
            count = sum(one.end is not None and one.end <= position for one in catalog.segments[:-1])
            if count:
                folder, position = catalog.active.folder, catalog.segments[count].base
                begin = LogBegin(position, catalog.begin_offsets_without(count))
                await self.work.run(write_log_begin, self.disk, folder, begin)
                self._begin_position = position
            begins = {key: queue.begin_offset for key, queue in catalog.queues.items()} if count else {}
            indexed = [one for one in catalog.segments[:count] if one.base in catalog.contents]
            for _ in range(count):
                segment = catalog.drop_first_segment()
                self.reader.forget(segment)
                self.recent.drop_below(segment.end or 0)
                segment.retire()
                self.deleted_segments += 1
            if count:
                self.on_deleted(begins)
            has_removed = await self.work.run(self.appender.spares.reuse_or_remove, indexed, self._begin_position)
        if has_removed:
            await self._check_disk()

    async def _rescue(self, segments: Sequence[Segment]) -> int | None:
        """Store deferred messages in expired segments again; the number of bytes, or None when not possible yet."""
        rescued_bytes = 0
        for topic_id, rescue in self.rescues.items():
            queue = self.catalog.queues.get((topic_id, 0))
            ends = [run.entry.end_offset for run in queue.runs if run.segment in segments] if queue is not None else []
            if ends:
                part_bytes = await rescue(max(ends))
                if part_bytes is None:
                    return None
                rescued_bytes += part_bytes
        return rescued_bytes

    async def expire_producers_and_ids(self) -> None:
        """Drop windows of producers that are idle too long or too many, and expired ids, by a change in the log."""
        now_ms, windows = self.clock.now_ms(), self.state.windows
        idle_before_ms = windows.idle_before_ms(now_ms - self.settings.producer_idle_ms, self.settings.producers_max)
        if self.is_leading and (idle_before_ms or self.state.ids.has_expired(now_ms)):
            await self.store([ExpiredDropped(idle_before_ms, now_ms)])

    async def index_sealed(self) -> None:
        """Write the missing index files of sealed segments that are durable. `_check_disk` retries the others."""
        while self._sealed and (self._sealed[0].segment.end or 0) <= self.appender.durable_position:
            sealed = self._sealed[0]
            if not sealed.segment.is_retired:
                contents = await self.work.run(self._write_index, sealed)
                if sealed.segment.is_retired:
                    self.disk.remove(sealed.segment.folder / segment_name(sealed.segment.base, INDEX_SUFFIX))
                else:
                    self.catalog.index_written(sealed, contents)
                    self._keys_to_seal.append(LogStretch(contents.base, contents.end, is_sealed=True))
                    self._keys_due.set()
            self._sealed.popleft()

    async def _index_and_report(self) -> None:
        await self.index_sealed()
        if self.on_indexed is not None:
            await self.on_indexed()

    async def write_clean_stop(self, folder: Path) -> None:
        """Write the marker of a clean stop. Everything is committed, and every sealed segment has its index file."""
        appender = self.appender
        marker = make_clean_stop(
            self.catalog, self.state, appender.committed_position, appender.store_open, appender.stored_at_ms
        )
        await self.work.run(write_clean_stop, self.disk, folder, marker)

    async def update_key_index(self) -> None:
        """Update the key index to the log's end, so that a search has little to add."""
        while self._keys_to_seal:
            stretch = self._keys_to_seal[0]
            if stretch.base in self.catalog.contents:
                await self.keys.update(stretch)
            self._keys_to_seal.popleft()
        position = self.appender.readable_position
        if position - self._keys_position >= KEY_INDEX_STEP_BYTES:
            self._keys_position = position
            base = self.catalog.active.base
            if position > base:
                await self.keys.update(LogStretch(base, position, is_sealed=False))

    def _is_acknowledged(self, segment: Segment) -> bool:
        contents = self.catalog.contents.get(segment.base)
        is_passed, owner_of = self.state.offsets.is_passed_by_all, self.state.topics.retry_owner
        return contents is not None and all(
            is_passed(one.topic_id, one.queue_id, one.end_offset, owner_of(one.topic_id)) for one in contents.queues
        )

    def _write_index(self, sealed: SealedSegment) -> SegmentContents:
        segment = sealed.segment
        end = segment.end if segment.end is not None else segment.limit
        contents = write_index(self.disk, segment, end, segment.last_stored_at_ms, sealed.parts)
        if segment.limit > end:
            segment.writer.truncate(end - segment.base)
            segment.limit = end
        segment.stop_writing()
        return contents

    async def _run_every(self, period_ms: int, *steps: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self.clock.sleep(period_ms / 1000)
            for step in steps:
                await self._run_step(step)

    async def _run_key_index(self) -> None:
        while True:
            await self._keys_due.wait()
            await self.clock.sleep(KEY_INDEX_INTERVAL_MS / 1000)
            self._keys_due.clear()
            if not await self._run_step(self.update_key_index):
                self._keys_due.set()

    async def _run_step(self, step: Callable[[], Awaitable[None]]) -> bool:
        try:
            await step()
        except (OrtooError, OSError) as error:
            if self._log_rate.acquire(step.__name__, self.clock.monotonic_s()):
                _log.emit(log_events.HOUSEKEEPING_POSTPONED, step=step.__name__, reason=str(error))
        except Exception:
            _log.emit(log_events.HOUSEKEEPING_FAILED, exc_info=True, step=step.__name__)
        else:
            return True
        return False

    async def _check_disk(self) -> None:
        try:
            space = await self.work.run(self._examine_disk)
        except FolderGone as gone:
            if not self.appender.failure:
                self.appender.give_up(gone)
            return
        log_bytes = self.appender.appended_position - self.catalog.begin_position
        self.space.record(self.clock.monotonic_s(), space, log_bytes)
        if 0 < self.settings.retention_bytes < log_bytes - self.settings.segment_bytes:
            self._retention_due.set()
        if self._sealed:
            self._sealed_event.set()
        await self._prepare_spare()
        if self.is_leading:
            await self.checkpoints.retry_postponed()
        self._check_index()

    def _examine_disk(self) -> DiskSpace:
        self.appender.guard()
        return self.disk.space(self.catalog.active.folder)

    def _check_index(self) -> None:
        """Log that the memory for the index is nearly used up, once until that ends."""
        used_bytes, limit_bytes = self.catalog.index_bytes, self.settings.index_bytes_max
        is_nearly_full = bool(limit_bytes) and used_bytes * 100 >= limit_bytes * INDEX_WARNING_PERCENT
        if is_nearly_full and not self.index_is_nearly_full:
            _log.emit(
                log_events.INDEX_NEARLY_FULL,
                used_bytes=used_bytes,
                max_bytes=limit_bytes,
                queues=len(self.catalog.queues),
                segments=len(self.catalog.segments),
            )
        self.index_is_nearly_full = is_nearly_full

    async def _prepare_spare(self) -> None:
        appender = self.appender
        if not appender.failure and await appender.spares.prepare():
            if appender.full and appender.commit_limit is not None:
                await self.work.run(fill_reserve, self.disk, self.catalog.active.folder)
            appender.retry()

    async def _request_retention(self) -> None:
        await self.appender.spares.drop_unused()
        self._retention_due.set()

    async def _run_on(self, event: asyncio.Event, *steps: Callable[[], Awaitable[None]]) -> None:
        """Run the steps each time after `event` was set."""
        while True:
            await event.wait()
            event.clear()
            for step in steps:
                await self._run_step(step)

    async def _mark_when_idle(self) -> None:
        appender = self.appender
        await self.clock.sleep(self.settings.idle_mark_ms / 1000)
        position = appender.durable_position
        is_idle = not appender.flushed.is_set()
        if not self.is_leading or (not is_idle and appender.commit_limit is not None):
            # No frame records this disk's acknowledgements to the leader, so a busy follower must write them, too.
            is_due = is_idle or self.clock.monotonic_s() >= self._marked_s + BUSY_MARK_INTERVAL_S
            marked = (self._marked_position, self._marked_committed)
            if is_due and (position, appender.readable_position) != marked:
                await self._write_mark()
            return
        is_idle = is_idle and appender.appended_position == position
        if is_idle and position != self._marked_position and appender.fits(0) and not appender.failure:
            appender.append_mark()
            self._marked_position = appender.appended_position
            await appender.flush()
            await self._write_mark()

    async def _write_mark(self) -> None:
        async with self.marking:
            self._marked_position, self._marked_s = self.appender.durable_position, self.clock.monotonic_s()
            committed = self._marked_committed = self.appender.readable_position
            await self.work.run(self._durable_mark.write, self._marked_position, committed)

    async def _flush_later(self) -> None:
        await self.clock.sleep(self.settings.flush_interval_ms / 1000)
        self.appender.request_flush()
