"""The locks of queues at their enodes: batched requests, waiting, and reliable release.

Locks live while this snode is attached to their enode; the attachment also reports free locks.
"""

import asyncio
import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

from ortoo.common.errors import Fenced, Internal, OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.containment import contain, told_as
from ortoo.common.process.retry import Backoff
from ortoo.snode import log_events
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.serial_batcher import Batcher
from ortoo.snode.enodes.link import EnodeLinks, LockAnswer, LockKey, LockRequest

ASK_AGAIN_S = 1.0
"""Interval for requesting refused locks again, in case the report that they are free got lost."""
LOCKS_MAX = 5_000
"""Maximum of locks in one request."""
_log = get_logger("locks")
_attachments_log = get_logger("attachments")


@dataclass(slots=True, eq=False)
class _LockBatcher(Batcher):
    """Pending requests to one enode: releases first, because a taker may wait for them.

    A lock is not requested before its session's release is answered; a late release would free it again.
    """

    enode: str
    locks: "QueueLocks"
    takes: dict[LockRequest, asyncio.Future[LockAnswer]] = field(default_factory=dict, init=False)
    """A session requests a lock once at a time, because its group gives the queue to one of its feeders."""
    releases: dict[LockRequest, None] = field(default_factory=dict, init=False)

    async def drain(self) -> None:
        """Release and request locks until nothing is pending."""
        backoff, attempt = Backoff(first_s=0.05, max_s=1.0), 0
        while self.releases or self.takes:
            ok = await self._release() if self.releases else True
            ok = await self._ask() and ok
            attempt = 0 if ok else attempt + 1
            if not ok and self.releases:
                await self.locks.runtime.clock.sleep(backoff.delay_s(attempt, self.locks.runtime.randomness))

    def failed(self, error: Exception) -> None:
        """Draining failed unexpectedly: fail the requests, which their callers repeat."""
        takes, self.takes = self.takes, {}
        for future in takes.values():
            if not future.done():
                future.set_exception(Internal("the snode failed to request locks and logged the details"))

    async def _release(self) -> bool:
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

    async def _ask(self) -> bool:
        waiting, self.takes = self.takes, {}
        asked: dict[LockRequest, asyncio.Future[LockAnswer]] = {}
        for request, future in waiting.items():
            if len(asked) >= LOCKS_MAX or self._is_given_back(request):
                self.takes[request] = future
            elif not future.done():
                asked[request] = future
        if not asked:
            return True
        try:
            answers = await self.locks.links.to(self.enode).take_locks(self.locks.runtime.incarnation, list(asked))
        except Exception as error:
            failure = told_as(error, "TakeLocks")
            for future in asked.values():
                if not future.done():
                    future.set_exception(failure)
            return False
        for future, answer in zip(asked.values(), answers, strict=True):
            if not future.done():
                future.set_result(answer)
        return True

    def _is_given_back(self, request: LockRequest) -> bool:
        return (dataclasses.replace(request, resume=False) if request.resume else request) in self.releases


@dataclass(slots=True, eq=False)
class QueueLocks:
    """Locks for the push sessions of this snode, bound to its incarnation."""

    runtime: Runtime
    directory: Directory
    links: EnodeLinks
    wanted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set while a session waits for a lock, or may do so."""
    _batchers: dict[str, _LockBatcher] = field(default_factory=dict, init=False)
    _news: dict[tuple[str, LockKey], asyncio.Event] = field(default_factory=dict, init=False)
    """By requested lock: an event that is set and removed when the lock may be free."""
    _attached: set[str] = field(default_factory=set, init=False)

    async def hold(self, enode: str, request: LockRequest) -> int:
        """Take a lock, however long it takes; returns its generation.

        Errors: Fenced if a newer session of the same client has it, Unavailable if the enode is unreachable.
        """
        key = (enode, (request.group, request.topic_id, request.queue_id))
        while True:
            news = self._news.setdefault(key, asyncio.Event())
            self.wanted.set()
            answer = await self._take(enode, request)
            if answer.generation:
                return answer.generation
            if answer.error is not None:
                raise answer.error
            if answer.owner == request.owner:
                raise Fenced("a newer session of this client has the queue")
            await news.wait()

    def give_back(self, enode: str, request: LockRequest) -> None:
        """Release a lock, held or only requested; retried until the enode has answered."""
        batcher = self._batcher(enode)
        batcher.releases[request] = None
        batcher.wake(self.runtime.background, f"locks {enode}")

    def freed(self, enode: str, keys: Sequence[LockKey]) -> None:
        """An enode reports free locks."""
        for key in keys:
            if (news := self._news.pop((enode, key), None)) is not None:
                news.set()

    async def ask_again(self) -> None:
        """Make all waiting sessions request again; to be called every `ASK_AGAIN_S` while `wanted` is set."""
        news, self._news = self._news, {}
        if news:
            self.wanted.set()
        for one in news.values():
            one.set()

    async def _take(self, enode: str, request: LockRequest) -> LockAnswer:
        batcher = self._batcher(enode)
        answer: asyncio.Future[LockAnswer] = asyncio.get_running_loop().create_future()
        batcher.takes[request] = answer
        batcher.wake(self.runtime.background, f"locks {enode}")
        return await answer

    def _batcher(self, enode: str) -> _LockBatcher:
        batcher = self._batchers.get(enode)
        if batcher is None:
            batcher = self._batchers[enode] = _LockBatcher(enode, self)
        return batcher

    async def look(self) -> None:
        """Attach to new enodes; to be called whenever the directory has changed."""
        for entry in self.directory.enodes():
            if entry.name not in self._attached:
                self._attached.add(entry.name)
                self.runtime.background.contained("attach", self._stay(entry.name))

    async def _stay(self, enode: str) -> None:
        clock, backoff, attempt = self.runtime.clock, Backoff(first_s=0.05, max_s=0.5), 0
        while True:
            began_s = clock.monotonic_s()
            try:
                freed = functools.partial(self.freed, enode)
                await self.links.to(enode).attach(self.runtime.settings.name, self.runtime.incarnation, freed)
            except OrtooError as error:
                if attempt == 0:
                    _attachments_log.emit(log_events.ENODE_ATTACH_FAILED_RETRYING, enode=enode, reason=str(error))
            except Exception as error:
                contain("attach", error)
            attempt = 0 if clock.monotonic_s() - began_s > 1.0 else attempt + 1
            await clock.sleep(backoff.delay_s(attempt, self.runtime.randomness))
