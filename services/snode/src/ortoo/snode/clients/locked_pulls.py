"""Pulls from queues that a client session has locked, so that a message that ends its consumers is found.

A session that ends without an answer records the messages that its client had. Later pulls return them in small
numbers, and the next ones only when these are committed. See `push.redelivery`.
"""

import asyncio
import dataclasses
from collections.abc import Sequence

from ortoo.common.process.background import pause
from ortoo.snode.clients.session import ClientSession, PulledQueue
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes import EnodeComponents
from ortoo.snode.enodes.link import Interruption
from ortoo.snode.pull.offsets import GroupOffset
from ortoo.snode.pull.processor import MESSAGES_DEFAULT, PullProcessor, PullRequest, QueuePullResult
from ortoo.snode.push.feeder import Park
from ortoo.snode.push.flow import QueueCursor
from ortoo.snode.push.interruptions import interruption_of, record_interruptions, unacknowledged_messages

STALL_CHECK_S = 1.0
LockedQueue = tuple[str, Queue]
"""(group, queue)."""


class LockedPulls:
    """The sessions that have locked queues, and their pulls."""

    def __init__(
        self, runtime: Runtime, watch: DirectoryWatch, enodes: EnodeComponents, processor: PullProcessor, park: Park
    ) -> None:
        self._background = runtime.background
        self._clock = runtime.clock
        self._watch = watch
        self._links = enodes.links
        self._locks = enodes.locks
        self._processor = processor
        self._park = park
        self._sessions: dict[LockedQueue, ClientSession] = {}

    def on_locked(self, session: ClientSession, group: str, queue: Queue) -> None:
        """Record that a session has the lock of a queue."""
        self._sessions[group, queue] = session

    def on_released(self, session: ClientSession, group: str, queue: Queue) -> None:
        """Record that a session has released the lock of a queue."""
        if self._sessions.get((group, queue)) is session:
            del self._sessions[group, queue]
        self._forget(session, (group, queue))

    async def pull(self, request: PullRequest) -> QueuePullResult:
        """Pull. Errors: those of `PullProcessor.pull`."""
        key = (request.group, request.queue)
        session = self._sessions.get(key)
        if session is None or session.is_closing or not request.generation:
            return await self._processor.pull(request)
        pulled = await self._pulled_queue(session, request)
        messages_max = await self._wait_until_sendable(session, request)
        if messages_max == 0:
            end_offset = max(request.offset, pulled.cursor.end_offset)
            return QueuePullResult(pulled.topic_id, request.offset, end_offset, commit_soon=True)
        result = await self._processor.pull(_bounded(request, pulled.parked_offset, messages_max))
        if session.pulled.get(key) is pulled:
            _record_result(pulled.cursor, result, self._clock.monotonic_s())
        return dataclasses.replace(result, commit_soon=messages_max is not None)

    def on_committed(self, group: str, offsets: Sequence[GroupOffset]) -> None:
        """Record committed offsets."""
        for one in offsets:
            session = self._sessions.get((group, one.queue))
            pulled = session.pulled.get((group, one.queue)) if session is not None else None
            if session is None or pulled is None:
                continue
            now_s, offset = self._clock.monotonic_s(), min(one.offset, pulled.cursor.sent_offset)
            if pulled.cursor.commit(offset, one.generation, now_s):
                session.redelivery.on_committed((group, one.queue), offset, now_s)
                session.may_pull.set()

    def end_session(self, session: ClientSession, *, is_interrupted: bool) -> None:
        """Release the locks of a session that ends.

        `is_interrupted`: a message may have crashed the client. Its uncommitted messages are recorded first.
        """
        found = self._interruptions(session) if is_interrupted else {}
        for group, queue in list(session.pulled):
            self.on_released(session, group, queue)
        locks = list(session.locks)

        async def release() -> None:
            await asyncio.gather(
                *(
                    record_interruptions(self._links, enode, topic_id, group, session.client_id, rows)
                    for (enode, topic_id, group), rows in found.items()
                )
            )
            for enode, request in locks:
                self._locks.release(enode, request)

        if found:
            self._background.run_contained("interruptions", release())
        else:
            for enode, request in locks:
                self._locks.release(enode, request)

    async def _pulled_queue(self, session: ClientSession, request: PullRequest) -> PulledQueue:
        """The position of a pull. At another offset than the expected one it begins again."""
        key = (request.group, request.queue)
        pulled = session.pulled.get(key)
        is_new = pulled is None or pulled.cursor.since_generation != request.generation
        if pulled is not None and not is_new and request.offset == pulled.cursor.next_offset:
            return pulled
        cursor = QueueCursor(request.queue, request.generation)
        cursor.start(request.offset, is_committed=True)
        if pulled is not None and not is_new:
            started = dataclasses.replace(pulled, cursor=cursor)
        else:
            started = PulledQueue(cursor, (await self._watch.topic(request.queue.topic)).topic_id)
            await self._start(session, key, started)
        session.pulled[key] = started
        return started

    async def _start(self, session: ClientSession, key: LockedQueue, pulled: PulledQueue) -> None:
        """Park the first message if it has used its attempts; otherwise limit its redelivery."""
        group, queue = key
        self._forget(session, key)
        starts = await self._links.to(queue.enode).query_starts(pulled.topic_id, group, (queue.queue_id,))
        stored = starts.get(queue.queue_id)
        interruption = stored.interruption if stored is not None else None
        if interruption is None:
            return
        if interruption.attempts and await self._park(group, queue, interruption):
            pulled.parked_offset = interruption.offset
        else:
            now_s = self._clock.monotonic_s()
            session.redelivery.add(key, interruption, pulled.cursor.next_offset, now_s)

    async def _wait_until_sendable(self, session: ClientSession, request: PullRequest) -> int | None:
        """Wait until messages of a queue may be returned; returns their number, 0 after the time of the request."""
        key, deadline_s = (request.group, request.queue), self._clock.monotonic_s() + request.wait_ms / 1000
        while True:
            messages_max = session.redelivery.messages_max(
                key, lambda: unacknowledged_messages(one.cursor for one in session.pulled.values())
            )
            now_s = self._clock.monotonic_s()
            if messages_max != 0 or session.is_closing or now_s >= deadline_s:
                return messages_max
            session.may_pull.clear()
            await pause(min(STALL_CHECK_S, deadline_s - now_s), session.may_pull, self._clock)
            session.redelivery.end_if_stalled(self._clock.monotonic_s())

    def _interruptions(self, session: ClientSession) -> dict[tuple[str, int, str], list[Interruption]]:
        """The interruptions of a session by enode, topic id and group."""
        is_only = unacknowledged_messages(one.cursor for one in session.pulled.values()) == 1
        found: dict[tuple[str, int, str], list[Interruption]] = {}
        for (group, queue), pulled in session.pulled.items():
            one = interruption_of(pulled.cursor, is_only=is_only)
            if session.redelivery.is_worth_recording((group, queue), one):
                found.setdefault((queue.enode, pulled.topic_id, group), []).append(one)
        return found

    def _forget(self, session: ClientSession, key: LockedQueue) -> None:
        session.pulled.pop(key, None)
        session.redelivery.discard(key)
        session.may_pull.set()


def _bounded(request: PullRequest, parked_offset: int, messages_max: int | None) -> PullRequest:
    """The request without a parked message, and with at most `messages_max` messages; None = as requested."""
    if request.offset == parked_offset:
        request = dataclasses.replace(request, offset=parked_offset + 1)
    elif request.offset < parked_offset:
        request = dataclasses.replace(request, to_offset=parked_offset)
    if messages_max is None:
        return request
    return dataclasses.replace(request, messages_max=min(request.messages_max or MESSAGES_DEFAULT, messages_max))


def _record_result(cursor: QueueCursor, result: QueuePullResult, now_s: float) -> None:
    """Record the messages of a pull."""
    cursor.end_offset = result.end_offset
    for part in result.parts:
        assert part.batch is not None, "a part has messages"
        last_row = int.from_bytes(part.rows[-4:], "little") if part.rows else part.messages - 1
        last_offset = part.first_offset + last_row
        cursor.on_sent(part.next_offset, now_s, len(part.batch.records), part.messages, last_offset)
    cursor.advance(result.next_offset)
