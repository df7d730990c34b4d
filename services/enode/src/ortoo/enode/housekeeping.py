"""What a store does by itself: marks, checkpoints, index files, retention, watching the disk."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from ortoo.common.clock import Clock
from ortoo.common.errors import OrtooError
from ortoo.common.logs import get_logger
from ortoo.enode.disk import Disk
from ortoo.enode.key_process import Keys
from ortoo.enode.log.appender import Appender
from ortoo.enode.log.catalog import Catalog, Sealed
from ortoo.enode.log.checkpoint import SLICE_HEAD_BYTES, Slice, complete_checkpoints, cut_slices
from ortoo.enode.log.clean_stop import FILE_NAME as CLEAN_NAME
from ortoo.enode.log.clean_stop import CleanStop
from ortoo.enode.log.disk_work import DiskWork
from ortoo.enode.log.frame import HEADER_BYTES, Flag
from ortoo.enode.log.identity import write_whole
from ortoo.enode.log.key_search import Stretch
from ortoo.enode.log.queue_index import Contents, encode_index
from ortoo.enode.log.reader import Reader
from ortoo.enode.log.recent import Recent
from ortoo.enode.log.retention import expired_count
from ortoo.enode.log.segment import KEYS_SUFFIX, Segment, bases, index_name, keys_name
from ortoo.enode.log.spares import Spares
from ortoo.enode.log.tide_mark import TideMark
from ortoo.enode.state.changes import encode_changes
from ortoo.enode.state.fold import State
from ortoo.enode.store_settings import StoreSettings

Rescue = Callable[[int], Awaitable[bool]]
CHECKPOINTS_KEPT = 2
"""Segments go only before so many whole checkpoints: damage to the newest one does not cost the state."""
FORGET_INTERVAL_MS = 300_000
KEYS_INTERVAL_MS = 200
KEYS_STEP_BYTES = 4 << 20

_log = get_logger("store")


class Housekeeping:
    """The store's own tasks. They start with `start` and end with `stop`; each goes on after an error."""

    def __init__(
        self,
        *,
        settings: StoreSettings,
        clock: Clock,
        disk: Disk,
        work: DiskWork,
        appender: Appender,
        catalog: Catalog,
        state: State,
        reader: Reader,
        recent: Recent,
        spares: Spares,
        keys: Keys,
    ) -> None:
        """Look after these parts of one store."""
        self._settings = settings
        self._clock = clock
        self._disk = disk
        self._work = work
        self._appender = appender
        self._catalog = catalog
        self._state = state
        self._reader = reader
        self._recent = recent
        self._spares = spares
        self._keys = keys
        self._tide_mark = TideMark(disk, appender.active.folder)
        self._keys_advanced = 0
        self._keys_due = asyncio.Event()
        self._keys_due.set()
        """Set when the log has grown or a segment was sealed."""
        with_keys = set(bases(disk.list(catalog.active.folder), KEYS_SUFFIX)) if catalog.segments else set()
        self._keys_to_seal = deque(
            Stretch(one.base, one.end, is_sealed=True) for one in catalog.contents.values() if one.base not in with_keys
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._sealed: deque[Sealed] = deque()
        self._sealed_event = asyncio.Event()
        self._marked_position = -1
        slices = [one for contents in catalog.contents.values() for one in contents.slices]
        complete = complete_checkpoints([*slices, *catalog.active_contents()[1]])
        self.checkpoints = deque(
            (parts[-1].fold_from for parts in reversed(complete[:CHECKPOINTS_KEPT])), CHECKPOINTS_KEPT
        )
        """Where the newest whole checkpoints fold from, the older first."""
        self.changes = 0
        """State changes since the last checkpoint was begun."""
        self.frames = 0
        """Frames with messages or state since then."""
        self.checkpoint_due = asyncio.Event()
        self._checkpoint_is_due = False
        self.deleted_segments = 0
        self.rescues: dict[int, Rescue] = {}
        """By system topic: who stores again what waits below an offset of its queue; False = not yet."""

    def start(self) -> None:
        """Start all tasks."""
        settings = self._settings
        self._spawn("mark", self._mark_when_idle())
        self._spawn("flush", self._flush_later())
        self._spawn("seal", self._index_sealed())
        self._spawn("checkpoint", self._checkpoint_when_due())
        self._spawn("retention", self._every(settings.retention_interval_ms, self.retain))
        self._spawn("producers", self._every(FORGET_INTERVAL_MS, self.forget_producers))
        if settings.key_index:
            self._appender.advanced[self._keys_due] = None
            self._spawn("keys", self._follow_with_keys())
        self._spawn("disk", self._every(settings.disk_check_interval_ms, self._look_at_disk))

    async def stop(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tide_mark.close()

    def sealed(self, sealed: Sealed) -> None:
        """A segment is full and durable: write its index file and a checkpoint, and have the next spare ready."""
        self._sealed.append(sealed)
        self._sealed_event.set()
        if self.frames:
            self.checkpoint_due.set()

    def count_changes(self, count: int) -> None:
        """A frame with so many state changes became durable."""
        self.frames += 1
        self.changes += count
        if self.changes >= self._settings.checkpoint_records:
            self.checkpoint_due.set()

    async def checkpoint(self) -> None:
        """Write the whole state into the log, slice by slice, each as of the moment it is written."""
        appender = self._appender
        fold_from = appender.durable_position
        checkpoint_id = appender.appended_position
        self.changes = self.frames = 0
        self._checkpoint_is_due = True
        slices = cut_slices(self._state.checkpoint(), self._settings.checkpoint_slice_bytes)
        for number, (changes, is_last) in enumerate(slices):
            total = number + 1 if is_last else 0
            part = Slice(checkpoint_id, number, total, fold_from, appender.durable_position, changes)
            length = SLICE_HEAD_BYTES + len(changes)
            if not appender.fits(length):
                await appender.make_room(length, is_state=True)
            appender.append_slice(part)
            await appender.flush()
        self.checkpoints.append(fold_from)
        self._checkpoint_is_due = False

    async def retain(self) -> None:
        """Delete segments that retention lets go, oldest first, each durably before the next."""
        catalog = self._catalog
        count = expired_count(
            catalog.segments,
            now_ms=self._clock.now_ms(),
            log_end=self._appender.appended_position,
            checkpoint_from=self.checkpoints[0] if len(self.checkpoints) == CHECKPOINTS_KEPT else 0,
            settings=self._settings,
            is_acknowledged=self._is_acknowledged,
        )
        if not await self._rescue(catalog.segments[:count]):
            return
        for _ in range(count):
            segment = catalog.drop_first_segment()
            self._reader.forget(segment)
            self._recent.drop_below(segment.end or 0)
            segment.retire()
            await self._work.run(self._delete, segment)
            self.deleted_segments += 1
        if count:
            await self._look_at_disk()

    async def _rescue(self, segments: Sequence[Segment]) -> bool:
        """Have what waits in segments that are to go stored again; False when it cannot be yet."""
        for topic_id, rescue in self.rescues.items():
            queue = self._catalog.queues.get((topic_id, 0))
            ends = [run.end_offset for run in queue.runs if run.segment in segments] if queue is not None else []
            if ends and not await rescue(max(ends)):
                return False
        return True

    async def forget_producers(self) -> None:
        """Drop the windows of producers that are idle for too long, or too many."""
        before_ms = self._clock.now_ms() - self._settings.producer_idle_ms
        self._state.windows.forget(used_before_ms=before_ms, keep_max=self._settings.producers_max)

    async def index_sealed(self) -> None:
        """Write the index files of all sealed segments that have none yet."""
        while self._sealed:
            sealed = self._sealed[0]
            if not sealed.segment.retired:
                contents = await self._work.run(self._write_index, sealed)
                if sealed.segment.retired:
                    self._disk.remove(sealed.segment.folder / index_name(sealed.segment.base))
                else:
                    self._catalog.indexed(sealed, contents)
                    self._keys_to_seal.append(Stretch(contents.base, contents.end, is_sealed=True))
                    self._keys_due.set()
            self._sealed.popleft()

    async def leave_marker(self, folder: Path) -> None:
        """Write the marker of a clean stop; everything is durable and every sealed segment has its index file."""
        appender = self._appender
        rows, slices, holes = self._catalog.active_contents()
        position, stored_at_ms = appender.durable_position, appender.stored_at_ms
        _, index = encode_index(self._catalog.active.base, position, stored_at_ms, rows, slices, holes)
        state = encode_changes(tuple(self._state.checkpoint()))
        marker = CleanStop(position, appender.store_open, stored_at_ms, state, index)
        await self._work.run(write_whole, self._disk, folder / CLEAN_NAME, marker.encoded())

    async def index_keys(self) -> None:
        """Let the key index follow the log, so that a search has little to catch up with."""
        while self._keys_to_seal:
            stretch = self._keys_to_seal[0]
            if stretch.base in self._catalog.contents:
                await self._keys.seal(stretch)
            self._keys_to_seal.popleft()
        position = self._appender.durable_position
        if position - self._keys_advanced >= KEYS_STEP_BYTES:
            self._keys_advanced = position
            base = self._catalog.active.base
            if position > base:
                await self._keys.advance(Stretch(base, position, is_sealed=False))

    def _delete(self, segment: Segment) -> None:
        self._disk.remove(segment.path)
        names = self._disk.list(segment.folder)
        for name in (index_name(segment.base), keys_name(segment.base)):
            if name in names:
                self._disk.remove(segment.folder / name)
        self._disk.sync_directory(segment.folder)

    def _is_acknowledged(self, segment: Segment) -> bool:
        contents = self._catalog.contents.get(segment.base)
        if contents is None:
            return False
        lowest = self._state.offsets.lowest()
        return all(
            one.end_offset <= lowest.get((one.topic_id, one.queue_id), one.end_offset) for one in contents.queues
        )

    def _write_index(self, sealed: Sealed) -> Contents:
        segment = sealed.segment
        end = segment.end if segment.end is not None else segment.limit
        contents, data = encode_index(
            segment.base, end, segment.last_stored_at_ms, sealed.rows_by_queue, sealed.slices, sealed.holes
        )
        write_whole(self._disk, segment.folder / index_name(segment.base), data)
        if segment.limit > end:
            segment.file.truncate(end - segment.base)
            segment.limit = end
        return contents

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=f"store:{name}"))

    async def _every(self, period_ms: int, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._clock.sleep(period_ms / 1000)
            await self._try(step)

    async def _follow_with_keys(self) -> None:
        while True:
            await self._keys_due.wait()
            await self._clock.sleep(KEYS_INTERVAL_MS / 1000)
            self._keys_due.clear()
            if not await self._try(self.index_keys):
                self._keys_due.set()

    async def _try(self, step: Callable[[], Awaitable[None]]) -> bool:
        try:
            await step()
        except (OrtooError, OSError) as error:
            _log.warning("housekeeping postponed", step=step.__name__, reason=str(error))
        except Exception:
            _log.exception("housekeeping failed", step=step.__name__)
        else:
            return True
        return False

    async def _look_at_disk(self) -> None:
        if self._sealed:
            self._sealed_event.set()
        await self._prepare_spare()

    async def _prepare_spare(self) -> None:
        appender = self._appender
        if appender.failure:
            return
        if await self._spares.prepare():
            appender.full = ""
            appender.try_again()
            if self._checkpoint_is_due:
                self.checkpoint_due.set()

    async def _mark_when_idle(self) -> None:
        appender = self._appender
        while True:
            await appender.flushed.wait()
            appender.flushed.clear()
            await self._clock.sleep(self._settings.idle_mark_ms / 1000)
            position = appender.durable_position
            is_idle = not appender.flushed.is_set() and appender.appended_position == position
            if is_idle and position != self._marked_position and appender.fits(0) and not appender.failure:
                await self._try(self._mark)

    async def _mark(self) -> None:
        self._appender.append_mark()
        self._marked_position = position = self._appender.appended_position
        await self._appender.flush()
        await self._work.run(self._tide_mark.write, position)

    async def _flush_later(self) -> None:
        while True:
            await self._appender.flush_due.wait()
            self._appender.flush_due.clear()
            await self._clock.sleep(self._settings.flush_interval_ms / 1000)
            self._appender.want_flush()

    async def _index_sealed(self) -> None:
        while True:
            await self._sealed_event.wait()
            self._sealed_event.clear()
            await self._try(self.index_sealed)
            await self._try(self._prepare_spare)

    async def _checkpoint_when_due(self) -> None:
        while True:
            await self.checkpoint_due.wait()
            self.checkpoint_due.clear()
            await self._try(self.checkpoint)


def close_mark(appender: Appender) -> None:
    """Say in the log that everything before is durable, if there is room for it."""
    if appender.fits(HEADER_BYTES):
        appender.append_mark(Flag.CLOSED)
