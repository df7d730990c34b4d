"""One push session: a group member, its queues, its credit and its acknowledgements."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ortoo.common.errors import Fenced
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.grpc.layers.call_memory import call_share
from ortoo.common.logs.logger import get_logger
from ortoo.snode import log_events
from ortoo.snode.cluster.routes import UNACKNOWLEDGED_BYTES_MAX, Queue
from ortoo.snode.enodes.link import FETCH_BYTES_MAX, LockRequest
from ortoo.snode.membership.group_members import CloseReason, Member
from ortoo.snode.pull.offsets import StartFrom, StartRule
from ortoo.snode.push.offset_commits import AckBatcher
from ortoo.snode.push.feeder import FETCH_BYTES_MIN, SESSION_BYTES, Feeder, PushParts
from ortoo.snode.push.flow import Credit, QueueCursor
from ortoo.snode.push.outbox import Assigned, Closed, Delivery, Opened, PushOutbox

LEFT_SHARES = 16
"""A read requests at most this fraction of the remaining memory, so reads get smaller as memory fills."""
FLUSH_TIMEOUT_S = 4.0
"""Time for which a revoked queue is withheld from its next owner while its acknowledgements are being stored."""
_log = get_logger("push")


@dataclass(frozen=True, slots=True)
class PushPlan:
    """A client's request for a push session."""

    group: str
    client_id: str
    """Empty = the id of the session."""
    filters: Mapping[str, MessageFilter | None]
    """The filter of each topic; None = all messages."""
    start: StartRule = StartRule()
    broadcast: bool = False
    """Whether it receives all messages of the topics."""
    member_session_id: str = ""
    """The client session that this push session belongs to; empty = none."""
    heartbeat_interval_ms: int = 30_000
    expiry_ms: int = 120_000
    """Timeout of a silent session."""


class PushSession:
    """One client's open Push call."""

    def __init__(self, parts: PushParts, plan: PushPlan) -> None:
        """Make a session for a plan."""
        self.plan = plan
        self.session_id = parts.randomness.id_text()
        self.group = plan.group
        self.client_id = plan.client_id or self.session_id
        self.member_session_id = plan.member_session_id or self.session_id
        """The session id under which the client is a group member."""
        self.heard_at_s = parts.clock.monotonic_s()
        self.closing = False
        self.call: asyncio.Task[Any] | None = None
        """The task that writes to the client; the caller that opens the session sets it."""
        self.on_end: Callable[[CloseReason, str], object] = lambda reason, message: None
        """Called with the reason when the session has to end."""
        self._parts = parts
        self._feeding = parts.background.scope("push session", failed=lambda _: self.failed())
        self._filters = plan.filters
        self._credit = Credit()
        self.memory = call_share(parts.memory, "Push")
        """The memory that it uses for the client."""
        self.outbox = PushOutbox(self.memory)
        """Events that wait to be sent to the client."""
        self.outbox.opened(Opened(self.session_id, plan.heartbeat_interval_ms, plan.expiry_ms, self.client_id))
        self.feeders: dict[Queue, Feeder] = {}
        """One per queue, each with its positions."""
        self._first_seen: dict[str, frozenset[tuple[int, Queue]]] = {}
        """By topic: the queues, with the topic's id, that existed when the session subscribed to the topic."""
        self._look()
        self._batchers: dict[tuple[str, int], AckBatcher] = {}
        self._granted = asyncio.Event()
        self._suspended: frozenset[Queue] | None = frozenset()
        """The suspended queues; None = none."""

    @property
    def unacknowledged_bytes(self) -> int:
        """Bytes sent and not acknowledged."""
        return sum(feeder.cursor.unacknowledged_bytes for feeder in self.feeders.values())

    @property
    def unacknowledged_bytes_max(self) -> int:
        """Limit of unacknowledged bytes; above it nothing is sent."""
        group = self._parts.directory.group(self.group)
        return group.unacknowledged_bytes_max if group is not None else UNACKNOWLEDGED_BYTES_MAX

    def parting(self, member: Member) -> None:
        """End the client's consumption in its group. A client with its own session stays a group member."""
        membership = self._parts.groups.membership
        if self.plan.member_session_id and member.active:
            membership.join(self.group, dataclasses.replace(member, active=False))
        elif not self.plan.member_session_id:
            membership.leave(self.group, self.client_id, self.session_id)

    def replaced(self) -> None:
        """End, because another session of the client replaces it in the group."""
        self.on_end(
            CloseReason.REPLACED,
            f"another session of client {self.client_id} has replaced it; give each client a unique id",
        )

    def failed(self) -> None:
        """End, because of an internal error."""
        words = "the snode failed to serve the session and logged the details; open another session"
        self.on_end(CloseReason.EXPIRED, words)

    def owing(self) -> Iterator[Feeder]:
        """The feeders of queues with a due acknowledgement, without suspended queues."""
        for queue, feeder in self.feeders.items():
            if feeder.cursor.waiting_since_s is not None and not self._is_suspended(queue):
                yield feeder

    def heard(self) -> None:
        """Restart the timeout: the client sent something."""
        self.heard_at_s = self._parts.clock.monotonic_s()

    def grant(self, messages: int, size_bytes: int) -> None:
        """Add credit granted by the client."""
        self._credit.grant(messages, size_bytes)
        self._granted.set()

    def acknowledge(self, queue: Queue, offset: int, generation: int) -> None:
        """The client has processed a queue up to `offset`. Errors: Invalid if that was never sent."""
        feeder = self.feeders.get(queue)
        if feeder is None:
            _log.emit(log_events.COMMIT_TOO_LATE, queue=str(queue), offset=offset, session=self.session_id)
            return
        if not feeder.cursor.acknowledge(offset, generation, self._parts.clock.monotonic_s()):
            return
        self._granted.set()
        if (traces := self._parts.traffic.traces) is not None:
            traces.acknowledged(self.group, queue, offset)
        if self.plan.broadcast:
            self.outbox.acknowledged(queue, offset, feeder.generation)
            return
        batcher = self._batcher(queue.enode, feeder.topic_id)
        batcher.put(queue, offset, feeder.generation, feeder.fence)
        batcher.wake(self._parts.background, "commit")

    def assign(self, generation: int, queues: list[Queue]) -> None:
        """Take exactly these queues: stop feeding the others, and release them when their offsets are stored."""
        if self.closing:
            return
        wanted = set(queues)
        lost = [queue for queue in self.feeders if queue not in wanted or self._is_stale(queue)]
        for queue in lost:
            self._give_up(queue)
        if not wanted.isdisjoint(lost):  # a topic was recreated: its queues have the names of the old ones
            self._assigned(Assigned(generation, tuple(self.feeders)))
            generation = self._parts.groups.membership.advance(self.group)
        for feeder in self.feeders.values():
            feeder.generation = generation
        self._assigned(Assigned(generation, tuple(queues)))
        for queue in queues:
            if queue not in self.feeders:
                self._take_on(queue, generation)

    def _assigned(self, event: Assigned) -> None:
        """Send an assignment; the credit of dropped deliveries is returned."""
        for delivery in self.outbox.assigned(event):
            self.grant(delivery.messages, delivery.size_bytes)

    def subscribe(self, filters: Mapping[str, MessageFilter | None]) -> None:
        """Change the filters; new and removed topics follow with the next assignment."""
        self._filters = filters
        self._look()
        for queue, feeder in self.feeders.items():
            feeder.wanted = filters.get(queue.topic, feeder.wanted)

    def suspend(self, queues: frozenset[Queue] | None) -> None:
        """Suspend these queues, None = none. Others resume, and their acknowledgement timeout restarts."""
        now_s = self._parts.clock.monotonic_s()
        before, self._suspended = self._suspended, queues
        for queue, feeder in self.feeders.items():
            if (before is None or queue in before) and not self._is_suspended(queue):
                feeder.cursor.wait_anew(now_s)
        self._granted.set()

    def _is_suspended(self, queue: Queue) -> bool:
        return self._suspended is None or queue in self._suspended

    async def may_send(self, queue: Queue) -> None:
        """Wait until there is credit and space in the outbox, and the queue is not suspended."""
        while True:
            await self.outbox.room()
            has_credit = self._credit.open and self.unacknowledged_bytes < self.unacknowledged_bytes_max
            if has_credit and not self._is_suspended(queue):
                return
            self._granted.clear()
            await self._granted.wait()

    def send(self, delivery: Delivery) -> None:
        """Send a delivery and charge the client's credit."""
        self._credit.charge(delivery.messages, delivery.size_bytes)
        if delivery.messages:
            self._parts.traffic.pushed(delivery.queue.topic, self.group, delivery.messages, delivery.size_bytes)
        if (traces := self._parts.traffic.traces) is not None and delivery.batch is not None:
            traces.pushed(self.group, delivery.queue, delivery.first_offset, delivery.next_offset, delivery.batch)
        if delivery.loss is not None:
            self._parts.traffic.lost(delivery.queue.topic, self.group, delivery.next_offset - delivery.first_offset)
        self.outbox.deliver(delivery)

    async def close(self, reason: CloseReason, message: str) -> None:
        """Leave the group; the queues are released when the acknowledged offsets are stored. May be called again."""
        if self.closing:
            return
        self.closing = True
        flushes = [self._give_up(queue) for queue in list(self.feeders)]
        self._parts.groups.leave(self.group, self)
        if flushes:
            await asyncio.wait(flushes)
        self.outbox.close(Closed(reason, message))

    def _is_stale(self, queue: Queue) -> bool:
        """Whether the topic was deleted and recreated since the session took the queue."""
        topic = self._parts.directory.find_topic(queue.topic)
        return topic is None or self.feeders[queue].topic_id != topic.topic_id

    def _take_on(self, queue: Queue, generation: int, *, former: Feeder | None = None) -> None:
        """Start a queue; `former` is the session's previous feeder of it, if any."""
        topic = self._parts.directory.find_topic(queue.topic)
        if topic is None:
            return  # the topic was just deleted; the next assignment is without it
        start, lock = self._start_of(topic.topic_id, queue), None
        if not self.plan.broadcast:
            ids = (self.client_id, self.session_id)
            lock = LockRequest(self.group, topic.topic_id, queue.queue_id, *ids, resume=former is not None)
        if former is not None and former.topic_id == topic.topic_id and former.cursor.acknowledged is not None:
            start = dataclasses.replace(start, offsets={queue: former.cursor.acknowledged})  # of a broadcast
        feeder = Feeder(
            self._parts,
            QueueCursor(queue, generation),
            topic.topic_id,
            self.group,
            self._filters.get(queue.topic),
            self.may_send,
            self.send,
            start,
            lock,
            self._fetch_bytes,
            generation,
            self.memory,
        )
        feeder.task = self._feeding.start(f"feed {queue}", self._feed(feeder))
        self.feeders[queue] = feeder

    def _look(self) -> None:
        """Remember the existing queues of newly subscribed topics."""
        seen = {name: self._first_seen[name] for name in self._filters if name in self._first_seen}
        for name in self._filters:
            if name not in seen and (topic := self._parts.directory.find_topic(name)) is not None:
                seen[name] = frozenset((topic.topic_id, queue) for queue in topic.read_queues())
        self._first_seen = seen

    def _start_of(self, topic_id: int, queue: Queue) -> StartRule:
        """The start rule of a queue. Queues added or recreated during the session start at their first message."""
        start, seen = self.plan.start, self._first_seen.get(queue.topic, frozenset())
        if (topic_id, queue) in seen:
            return start
        start_from = StartFrom.FIRST if start.start_from is StartFrom.LAST else start.start_from
        is_anew = all(seen_id != topic_id for seen_id, _ in seen)  # the client's offsets are those of the old topic
        return dataclasses.replace(start, start_from=start_from, offsets={} if is_anew else start.offsets)

    async def _feed(self, feeder: Feeder) -> None:
        queue, lock = feeder.cursor.queue, feeder.lock
        try:
            if lock is not None:
                await self._parts.groups.hold(self.group, queue, feeder)
            await feeder.run()
        except Fenced as error:
            if lock is not None and lock.resume and not feeder.fence:
                self.replaced()
            else:
                self._fenced(queue, str(error))

    def _refused(self, queue: Queue, fence: int) -> None:
        """An acknowledgement given under this generation of the lock was refused."""
        feeder = self.feeders.get(queue)
        if feeder is not None and feeder.fence == fence:
            self._fenced(queue, "an acknowledgement was refused")

    def _fenced(self, queue: Queue, reason: str) -> None:
        """Restart a queue whose lock has a newer generation, by an operator's order or because the lock expired."""
        feeder = self.feeders.get(queue)
        if feeder is None or self.closing:
            return
        _log.emit(
            log_events.QUEUE_DELIVERY_RESTARTED,
            queue=str(queue),
            group=self.group,
            session=self.session_id,
            reason=reason,
        )
        self._give_up(queue, flush=False)
        if (batcher := self._batchers.get((queue.enode, feeder.topic_id))) is not None:
            batcher.forget(queue)
        rest = tuple(self.feeders)
        advance = self._parts.groups.membership.advance
        self._assigned(Assigned(advance(self.group), rest))
        generation = advance(self.group)
        self._assigned(Assigned(generation, (*rest, queue)))
        self._take_on(queue, generation, former=feeder)

    def _give_up(self, queue: Queue, *, flush: bool = True) -> asyncio.Task[Any]:
        feeder = self.feeders.pop(queue)
        task = feeder.task
        del feeder.task  # its cancellation refers to the feeder and to its read: a reference cycle
        task.cancel()
        return self._parts.background.contained("release", self._release(queue, feeder, task, flush=flush))

    async def _release(self, queue: Queue, feeder: Feeder, task: asyncio.Task[Any], *, flush: bool) -> None:
        """Release a queue to its next owner, when its acknowledgements are stored or cannot be."""
        try:
            if task is not asyncio.current_task():
                await asyncio.wait([task])
            batcher = self._batchers.get((queue.enode, feeder.topic_id))
            if batcher is not None and flush:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FLUSH_TIMEOUT_S):
                        await batcher.settled(queue)
            if batcher is not None and queue not in self.feeders:
                batcher.forget(queue)
        finally:
            if (lock := feeder.lock) is not None and flush:
                self._parts.locks.give_back(queue.enode, dataclasses.replace(lock, resume=False))
            self._parts.groups.release(self.group, queue, feeder)

    def _batcher(self, enode: str, topic_id: int) -> AckBatcher:
        key = (enode, topic_id)
        batcher = self._batchers.get(key)
        if batcher is None:
            batcher = self._batchers[key] = AckBatcher(
                enode,
                topic_id,
                self.group,
                self._parts.links,
                self.outbox.acknowledged,
                self._refused,
                clock=self._parts.clock,
                randomness=self._parts.randomness,
            )
        return batcher

    def _fetch_bytes(self) -> int:
        share = min(SESSION_BYTES // max(1, len(self.feeders)), self._parts.memory.left_bytes // LEFT_SHARES)
        return max(FETCH_BYTES_MIN, min(FETCH_BYTES_MAX, share, self._credit.size_bytes))
