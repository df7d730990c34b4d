"""The locks of queues at their enodes: batched requests, waiting, and reliable release.

Locks end when this snode detaches from their enode. The attachment also reports locks that have become free.
"""

import asyncio
import dataclasses
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ortoo.common.errors import Fenced, Internal, OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.containment import as_ortoo_error, record_contained
from ortoo.common.process.retry import Backoff
from ortoo.snode import log_events
from ortoo.snode.cluster.routes import EnodeEntry
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks, LockKey, LockRequest, LockResult
from ortoo.snode.enodes.serial_batcher import SerialBatcher

LOCK_RETRY_S = 1.0
"""Interval for requesting refused locks again, in case the report of a free lock got lost."""
LOCKS_MAX = 5_000
"""Maximum of locks in one request."""
_log = get_logger("locks")
_attachments_log = get_logger("attachments")


@dataclass(slots=True, eq=False)
class _LockBatcher(SerialBatcher):
    """Pending lock requests to one enode. Releases are sent first, because another session may wait for the lock.

    A session's request waits for the answer to its earlier release; otherwise a late release would free the lock.
    """

    enode: str
    locks: "SessionQueueLocks"
    takes: dict[LockRequest, asyncio.Future[LockResult]] = field(default_factory=dict, init=False)
    """A session has at most one request for a lock at a time, because one of its feeders has the queue."""
    releases: dict[LockRequest, None] = field(default_factory=dict, init=False)

    async def drain(self) -> None:
        """Send releases and requests of locks until none is pending."""
        backoff, attempt = Backoff(first_s=0.05, max_s=1.0), 0
        while self.releases or self.takes:
            ok = await self._send_releases() if self.releases else True
            ok = await self._send_takes() and ok
            attempt = 0 if ok else attempt + 1
            if not ok and self.releases:
                await self.locks.runtime.clock.sleep(backoff.delay_s(attempt, self.locks.runtime.randomness))

    def on_defect(self, error: Exception) -> None:
        """Fail the pending requests, because `drain` raised an unexpected error. The callers retry."""
        takes, self.takes = self.takes, {}
        for future in takes.values():
            if not future.done():
                future.set_exception(Internal("the snode failed to request locks and logged the details"))

    async def _send_releases(self) -> bool:
        requests = list(self.releases)[:LOCKS_MAX]
        try:
            await self.locks.links.to(self.enode).release_locks(requests)
        except OrtooError as error:
            if error.retriable:
                return False
            _log.emit(log_events.QUEUE_LOCK_RELEASE_FAILED, enode=self.enode, reason=str(error))
        for request in requests:
            self.releases.pop(request, None)
        return True

    async def _send_takes(self) -> bool:
        waiting, self.takes = self.takes, {}
        sent: dict[LockRequest, asyncio.Future[LockResult]] = {}
        for request, future in waiting.items():
            if len(sent) >= LOCKS_MAX or self._is_being_released(request):
                self.takes[request] = future
            elif not future.done():
                sent[request] = future
        if not sent:
            return True
        try:
            results = await self.locks.links.to(self.enode).take_locks(self.locks.runtime.incarnation, list(sent))
        except Exception as error:
            failure = as_ortoo_error(error, "TakeLocks")
            for future in sent.values():
                if not future.done():
                    future.set_exception(failure)
            return False
        for future, answer in zip(sent.values(), results, strict=True):
            if not future.done():
                future.set_result(answer)
        return True

    def _is_being_released(self, request: LockRequest) -> bool:
        return (dataclasses.replace(request, resume=False) if request.resume else request) in self.releases


@dataclass(slots=True, eq=False)
class SessionQueueLocks:
    """The locks of queues for this snode's push sessions. At the enodes they end with the snode's incarnation."""

    runtime: Runtime
    links: EnodeLinks
    has_waiters: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set while a session waits for a lock, or may do so."""
    _batchers: dict[str, _LockBatcher] = field(default_factory=dict, init=False)
    _freed_events: dict[tuple[str, LockKey], asyncio.Event] = field(default_factory=dict, init=False)
    """By requested lock: an event, which is set and removed when the lock may be free."""
    _attached: set[str] = field(default_factory=set, init=False)

    async def acquire(self, enode: str, request: LockRequest) -> int:
        """Wait until a lock is free, and take it; returns its generation.

        Errors: Fenced if a newer session of the same client has the lock, Unavailable if the enode is unreachable.
        """
        key = (enode, (request.group, request.topic_id, request.queue_id))
        while True:
            freed = self._freed_events.setdefault(key, asyncio.Event())
            self.has_waiters.set()
            result = await self._request_lock(enode, request)
            if result.generation:
                return result.generation
            if result.error is not None:
                raise result.error
            if result.owner == request.owner:
                raise Fenced("a newer session of this client has the queue")
            await freed.wait()

    def release(self, enode: str, request: LockRequest) -> None:
        """Release a lock that is held or requested. The release is retried until the enode has answered."""
        batcher = self._batcher(enode)
        batcher.releases[request] = None
        batcher.wake(self.runtime.background, f"locks {enode}")

    def on_freed(self, enode: str, keys: Sequence[LockKey]) -> None:
        """Let waiting sessions request the locks that an enode reported as free."""
        for key in keys:
            if (event := self._freed_events.pop((enode, key), None)) is not None:
                event.set()

    async def retry_refused(self) -> None:
        """Make all waiting sessions request their locks again.

        Called every `LOCK_RETRY_S` while `has_waiters` is set.
        """
        freed_events, self._freed_events = self._freed_events, {}
        if freed_events:
            self.has_waiters.set()
        for one in freed_events.values():
            one.set()

    async def _request_lock(self, enode: str, request: LockRequest) -> LockResult:
        batcher = self._batcher(enode)
        result: asyncio.Future[LockResult] = asyncio.get_running_loop().create_future()
        batcher.takes[request] = result
        batcher.wake(self.runtime.background, f"locks {enode}")
        return await result

    def _batcher(self, enode: str) -> _LockBatcher:
        batcher = self._batchers.get(enode)
        if batcher is None:
            batcher = self._batchers[enode] = _LockBatcher(enode, self)
        return batcher

    async def attach_new_enodes(self, changed: Iterable[EnodeEntry]) -> None:
        """Attach to those of these enodes that are new."""
        for entry in changed:
            if entry.name not in self._attached:
                self._attached.add(entry.name)
                self.runtime.background.run_contained("attach", self._stay_attached(entry.name))

    async def _stay_attached(self, enode: str) -> None:
        clock, backoff, attempt = self.runtime.clock, Backoff(first_s=0.05, max_s=0.5), 0
        while True:
            began_s = clock.monotonic_s()
            try:
                freed = functools.partial(self.on_freed, enode)
                await self.links.to(enode).attach(self.runtime.settings.name, self.runtime.incarnation, freed)
            except OrtooError as error:
                if attempt == 0:
                    _attachments_log.emit(log_events.ENODE_ATTACH_FAILED_RETRYING, enode=enode, reason=str(error))
            except Exception as error:
                record_contained("attach", error)
            attempt = 0 if clock.monotonic_s() - began_s > 1.0 else attempt + 1
            await clock.sleep(backoff.delay_s(attempt, self.runtime.randomness))
