"""The engine: the parts of an open store, from opening to closing."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import TypeVar

from ortoo.common.errors import NotLeader, OrtooError, Unavailable
from ortoo.common.groups.system_topics import SYSTEM_TOPIC_IDS
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.enode import log_events
from ortoo.enode.changes.groups import GroupUse
from ortoo.enode.changes.kinds import StateChange, TopicDeleted
from ortoo.enode.disk.data_dir import OpenFolder
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.disk.identity import StoreIdentity
from ortoo.enode.index.key_process import KeyIndex, KeyIndexProcess, LocalKeyIndex
from ortoo.enode.log.appender import Appender
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.enode.log.segment import Segment
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.log.spares import SpareSegments
from ortoo.enode.reading.reader import Reader
from ortoo.enode.reading.recent import RecentBatches
from ortoo.enode.reading.waiting import Waiters
from ortoo.enode.recovery.only_copy import Recovered
from ortoo.enode.store.committer import Committer
from ortoo.enode.store.housekeeping import Housekeeping

Changes = TypeVar("Changes", bound=Sequence[StateChange])
_log = get_logger("store")


@dataclass(eq=False)
class Engine:
    """The parts of one open store. It belongs to the event loop that opened it with `open`."""

    folder: Path
    settings: StoreSettings
    disk: Disk
    clock: Clock
    work: DiskWork
    lock: ExitStack
    """The lock of the folder."""
    identity: StoreIdentity
    recovered: InitVar[Recovered]
    spares: SpareSegments
    active: InitVar[Segment]
    closed: bool = False
    may_read: Callable[[], bool] | None = None
    """Whether the committed data here is complete; None = always, because no other replica can commit."""

    def __post_init__(self, recovered: Recovered, active: Segment) -> None:
        """Create the parts."""
        settings, disk, clock, work, spares = self.settings, self.disk, self.clock, self.work, self.spares
        self._loop = asyncio.get_running_loop()
        self.catalog = recovered.catalog
        self.state = recovered.state
        self.recently_used: set[tuple[int, str]] = set()
        """(topic id, group) of changes accepted since the last look of `GroupRetention`; they may not be folded yet."""
        self.recently_read: set[tuple[int, str]] = set()
        """The same for requests without a change."""
        self.reader = Reader(self.catalog, disk, work, RecentBatches(settings.recent_bytes), settings.index_bytes)
        self.waiting = Waiters(clock, waiters_max=settings.waiters_max, plural="fetches")
        """The readers that wait at the ends of queues."""
        self.appender = Appender(
            active=active,
            appended_position=recovered.end_position,
            store_open=recovered.store_open + 1,
            stored_at_ms=recovered.stored_at_ms,
            settings=settings,
            clock=clock,
            work=work,
            spares=spares,
            log_mark=self.identity.log_mark,
            guard=OpenFolder.taken(disk, self.folder).check,
            on_committed=lambda group: self.committer.commit(group),
        )
        is_apart = settings.threads and isinstance(disk, RealDisk)
        self.reader.recent.durable_position = lambda: self.appender.durable_position
        self.keys: KeyIndex = KeyIndexProcess(self.folder) if is_apart else LocalKeyIndex(disk, self.folder, work)
        self.housekeeping = Housekeeping(
            appender=self.appender,
            reader=self.reader,
            state=self.state,
            keys=self.keys,
            store=self.store,
            state_bytes=recovered.state_bytes,
        )
        self.committer = Committer(self.housekeeping)

    async def store(self, changes: Sequence[StateChange], check: Callable[[], object] | None = None) -> None:
        """Store state changes, all or none; return when they are durable. `check` runs right before.

        Errors: Overloaded, Unavailable, and those of `check`. Then none of the changes is stored.
        """
        waiter = await self._accept(changes, check)
        self.appender.request_flush()
        await waiter

    async def store_without_waiting(self, changes: Sequence[StateChange]) -> None:
        """Store state changes, all or none, without waiting until they are durable. A crash may lose them.

        Errors: as `store`.
        """
        await self._accept(changes)
        self.appender.flush_due.set()

    async def _accept(
        self, changes: Sequence[StateChange], check: Callable[[], object] | None = None
    ) -> asyncio.Future[None]:
        """Reserve room for all changes, then append all; the future is done when they are durable.

        Changes cannot be appended partly, so a refused request has stored nothing.
        """
        appender = self.appender
        if self.closed:
            raise Unavailable("the store is closed")
        if appender.refusal:
            raise NotLeader(appender.refusal)
        appender.check_barred()
        appender.check_disk()
        encoded = [change.encoded() for change in changes]
        length = appender.changes_length(encoded)
        if encoded and not appender.fits(length):
            await appender.reserve_space(length, is_state=True)
        if check is not None:
            check()
        self.record_use(changes)
        waiter = self._loop.create_future()
        if encoded:
            appender.append_changes(changes, encoded, waiter)
        else:
            waiter.set_result(None)
        return waiter

    def check_open(self) -> None:
        """Refuse work if the store is closed, another store may be registered, or another replica may have newer data.

        Errors: Unavailable.
        """
        if self.closed:
            raise Unavailable("the store is closed")
        self.appender.check_barred()
        if self.may_read is not None and not self.may_read():
            raise Unavailable("this replica cannot confirm that it still leads: retry")

    def record_use(self, changes: Changes) -> Changes:
        """Record the use of topics by groups in accepted changes; returns the changes."""
        for change in changes:
            if isinstance(change, GroupUse):
                self.recently_used.add((change.topic_id, change.group))
        return changes

    def record_read(self, topic_id: int, group: str) -> None:
        """Record the use of a topic by a known group without a change."""
        if self.state.groups.last_used_ms(topic_id, group) is not None:
            self.recently_read.add((topic_id, group))

    async def close(self, ending: Callable[[], Awaitable[None]]) -> None:
        """Run `ending` while all parts still work, then unlock the folder. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        await self.waiting.close()
        appender = self.appender
        try:
            if not appender.failure and not appender.is_stuck:
                await ending()
        except (OSError, OrtooError) as error:
            _log.emit(log_events.STORE_CLOSE_FAILED, reason=str(error))
        finally:
            await self.housekeeping.stop()
            await self.keys.close()
            appender.failure = appender.failure or "the store is closed"
            appender.fail_waiters()
            self.work.close()
            self.spares.close()
            self.catalog.close()
            self.lock.close()

    def adopt_segments(self, recovered: Recovered, active: Segment) -> None:
        """Continue in `active` if the log does not end in a segment with room; nothing is written.

        Queues of deleted topics, which index files still list, are forgotten.
        """
        catalog = self.catalog
        if not catalog.damages:
            topic_ids = {copy.topic_id for copy in self.state.topics.all()}
            for topic_id in {key[0] for key in catalog.queues} - topic_ids - SYSTEM_TOPIC_IDS:
                catalog.forget_topic(topic_id)
                self.state.apply(TopicDeleted(topic_id))
        if recovered.active is None:
            if catalog.segments and catalog.active.base not in catalog.contents:
                self.housekeeping.on_segment_sealed(catalog.seal_active(catalog.segments[-1]))
            catalog.segments.append(active)
