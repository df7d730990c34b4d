"""One push session: a member of a group, its queues, its credit and its acknowledgements."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ortoo.common.errors import Fenced
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.grpc.around.call_memory import call_share
from ortoo.common.logs.logger import get_logger
from ortoo.snode import log_events
from ortoo.snode.cluster.routes import UNACKNOWLEDGED_BYTES_MAX, Queue
from ortoo.snode.enodes.link import FETCH_BYTES_MAX, LockRequest
from ortoo.snode.membership.members import CloseReason, Member
from ortoo.snode.pull.offsets import StartFrom, StartRule
from ortoo.snode.push.acknowledgements import AckBatcher
from ortoo.snode.push.feeder import FETCH_BYTES_MIN, SESSION_BYTES, Feeder, PushParts
from ortoo.snode.push.flow import Credit, QueueCursor
from ortoo.snode.push.outbox import Assigned, Closed, Delivery, Opened, PushOutbox

LEFT_SHARES = 16
"""A read asks for this part of the memory that is left, at most: the fuller it is, the smaller the steps."""
FLUSH_TIMEOUT_S = 4.0
"""How long a queue is kept from its next owner for the sake of acknowledgements that are still being stored."""
_log = get_logger("push")


@dataclass(frozen=True, slots=True)
class PushPlan:
    """What a client asks of its push session."""

    group: str
    client_id: str
    """Empty = the session's id."""
    filters: Mapping[str, MessageFilter | None]
    """Each topic's filter; None = everything."""
    start: StartRule = StartRule()
    broadcast: bool = False
    """Whether it gets all messages by itself."""
    member_session_id: str = ""
    """The session that this push session belongs to; empty = it stands alone."""
    heartbeat_interval_ms: int = 30_000
    expiry_ms: int = 120_000
    """How long it may be silent."""


class PushSession:
    """One client's open Push call."""

    def __init__(self, parts: PushParts, plan: PushPlan) -> None:
        """Make the session as planned."""
        self.plan = plan
        self.session_id = parts.randomness.id_text()
        self.group = plan.group
        self.client_id = plan.client_id or self.session_id
        self.member_session_id = plan.member_session_id or self.session_id
        """The session under which the client is a member of the group."""
        self.heard_at_s = parts.clock.monotonic_s()
        self.closing = False
        self.call: asyncio.Task[Any] | None = None
        """The task that writes to the client; set by who opens the session."""
        self.on_end: Callable[[CloseReason, str], object] = lambda reason, message: None
        """Called when it has to end, and why."""
        self._parts = parts
        self._feeding = parts.background.scope("push session", failed=lambda _: self.failed())
        self._filters = plan.filters
        self._credit = Credit()
        self.memory = call_share(parts.memory, "Push")
        """What it holds for the client."""
        self.outbox = PushOutbox(self.memory)
        """What waits to be told to the client."""
        self.outbox.opened(Opened(self.session_id, plan.heartbeat_interval_ms, plan.expiry_ms, self.client_id))
        self.feeders: dict[Queue, Feeder] = {}
        """Of each queue, which knows how far it is."""
        self._first_seen: dict[str, frozenset[tuple[int, Queue]]] = {}
        """The queues, with their topic's id, that each topic had when the session came to want it."""
        self._look()
        self._batchers: dict[tuple[str, int], AckBatcher] = {}
        self._granted = asyncio.Event()
        self._suspended: frozenset[Queue] | None = frozenset()
        """Queues from which the client takes nothing now; None = from none."""

    @property
    def unacknowledged_bytes(self) -> int:
        """What it was sent and has not acknowledged."""
        return sum(feeder.cursor.unacknowledged_bytes for feeder in self.feeders.values())

    @property
    def unacknowledged_bytes_max(self) -> int:
        """Beyond it nothing is sent."""
        group = self._parts.directory.group(self.group)
        return group.unacknowledged_bytes_max if group is not None else UNACKNOWLEDGED_BYTES_MAX

    def parting(self, member: Member) -> None:
        """Tell the group that the client gets nothing any more; one that has a session of its own stays a member."""
        membership = self._parts.groups.membership
        if self.plan.member_session_id and member.active:
            membership.join(self.group, dataclasses.replace(member, active=False))
        elif not self.plan.member_session_id:
            membership.leave(self.group, self.client_id, self.session_id)

    def replaced(self) -> None:
        """Another session has taken its place in the group."""
        self.on_end(
            CloseReason.REPLACED,
            f"another session of client {self.client_id} has taken its place; give each client an id of its own",
        )

    def failed(self) -> None:
        """Serving it met a failure."""
        words = "serving it met a failure; the snode's log has the details; open another session"
        self.on_end(CloseReason.EXPIRED, words)

    def owing(self) -> Iterator[Feeder]:
        """Those of the queues whose acknowledgement is awaited; not of those that the client has suspended."""
        for queue, feeder in self.feeders.items():
            if feeder.cursor.waiting_since_s is not None and not self._is_suspended(queue):
                yield feeder

    def heard(self) -> None:
        """The client said something."""
        self.heard_at_s = self._parts.clock.monotonic_s()

    def grant(self, messages: int, size_bytes: int) -> None:
        """The client takes more."""
        self._credit.grant(messages, size_bytes)
        self._granted.set()

    def acknowledge(self, queue: Queue, offset: int, generation: int) -> None:
        """The client has processed a queue up to `offset`. Errors: Invalid when that was never sent."""
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
        """Take these queues and no others: stop feeding the rest, hand them over when their offsets are stored."""
        if self.closing:
            return
        wanted = set(queues)
        lost = [queue for queue in self.feeders if queue not in wanted or self._is_stale(queue)]
        for queue in lost:
            self._give_up(queue)
        if not wanted.isdisjoint(lost):  # a topic was made anew: its queues are others, by the names of the old ones
            self._assigned(Assigned(generation, tuple(self.feeders)))
            generation = self._parts.groups.membership.advance(self.group)
        for feeder in self.feeders.values():
            feeder.generation = generation
        self._assigned(Assigned(generation, tuple(queues)))
        for queue in queues:
            if queue not in self.feeders:
                self._take_on(queue, generation)

    def _assigned(self, event: Assigned) -> None:
        """Tell the queues; the credit of what never leaves is for others."""
        for delivery in self.outbox.assigned(event):
            self.grant(delivery.messages, delivery.size_bytes)

    def subscribe(self, filters: Mapping[str, MessageFilter | None]) -> None:
        """Want other messages from now on; new and lost topics follow with the next assignment."""
        self._filters = filters
        self._look()
        for queue, feeder in self.feeders.items():
            feeder.wanted = filters.get(queue.topic, feeder.wanted)

    def suspend(self, queues: frozenset[Queue] | None) -> None:
        """Deliver nothing of these queues, None = of any; those suspended before go on, and are not late yet."""
        now_s = self._parts.clock.monotonic_s()
        before, self._suspended = self._suspended, queues
        for queue, feeder in self.feeders.items():
            if (before is None or queue in before) and not self._is_suspended(queue):
                feeder.cursor.wait_anew(now_s)
        self._granted.set()

    def _is_suspended(self, queue: Queue) -> bool:
        return self._suspended is None or queue in self._suspended

    async def may_send(self, queue: Queue) -> None:
        """Wait until there is credit and room in the outbox, and the client takes something of the queue."""
        while True:
            await self.outbox.room()
            has_credit = self._credit.open and self.unacknowledged_bytes < self.unacknowledged_bytes_max
            if has_credit and not self._is_suspended(queue):
                return
            self._granted.clear()
            await self._granted.wait()

    def send(self, delivery: Delivery) -> None:
        """Deliver, at the expense of the client's credit."""
        self._credit.charge(delivery.messages, delivery.size_bytes)
        if delivery.messages:
            self._parts.traffic.pushed(delivery.queue.topic, self.group, delivery.messages, delivery.size_bytes)
        if (traces := self._parts.traffic.traces) is not None and delivery.batch is not None:
            traces.pushed(self.group, delivery.queue, delivery.first_offset, delivery.next_offset, delivery.batch)
        if delivery.loss is not None:
            self._parts.traffic.lost(delivery.queue.topic, self.group, delivery.next_offset - delivery.first_offset)
        self.outbox.deliver(delivery)

    async def close(self, reason: CloseReason, message: str) -> None:
        """Leave the group: the queues go to others when what was acknowledged is stored. May be called again."""
        if self.closing:
            return
        self.closing = True
        flushes = [self._give_up(queue) for queue in list(self.feeders)]
        self._parts.groups.leave(self.group, self)
        if flushes:
            await asyncio.wait(flushes)
        self.outbox.close(Closed(reason, message))

    def _is_stale(self, queue: Queue) -> bool:
        """Whether the topic was deleted and created anew since the queue was taken on."""
        topic = self._parts.directory.find_topic(queue.topic)
        return topic is None or self.feeders[queue].topic_id != topic.topic_id

    def _take_on(self, queue: Queue, generation: int, *, former: Feeder | None = None) -> None:
        """Begin a queue; with `former` again, which the session had until now."""
        topic = self._parts.directory.find_topic(queue.topic)
        if topic is None:
            return  # it was deleted a moment ago; the next assignment is without it
        start, lock = self._start_of(topic.topic_id, queue), None
        if not self.plan.broadcast:
            ids = (self.client_id, self.session_id)
            lock = LockRequest(self.group, topic.topic_id, queue.queue_id, *ids, resume=former is not None)
        if former is not None and former.topic_id == topic.topic_id and former.cursor.acknowledged is not None:
            start = dataclasses.replace(start, offsets={queue: former.cursor.acknowledged})  # a broadcast's
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
        """Remember what there is of topics that are wanted from now on."""
        seen = {name: self._first_seen[name] for name in self._filters if name in self._first_seen}
        for name in self._filters:
            if name not in seen and (topic := self._parts.directory.find_topic(name)) is not None:
                seen[name] = frozenset((topic.topic_id, queue) for queue in topic.read_queues())
        self._first_seen = seen

    def _start_of(self, topic_id: int, queue: Queue) -> StartRule:
        """What was added or made anew while the session was there is its group's from the first message on."""
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
        """An acknowledgement was refused, which was given under this generation of the lock."""
        feeder = self.feeders.get(queue)
        if feeder is not None and feeder.fence == fence:
            self._fenced(queue, "an acknowledgement was refused")

    def _fenced(self, queue: Queue, reason: str) -> None:
        """Begin a queue anew: its lock has a newer generation, by an operator's order or because it had ended."""
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
        del feeder.task  # how it was cancelled leads to the feeder, and to what was read: they would keep one another
        task.cancel()
        return self._parts.background.contained("release", self._release(queue, feeder, task, flush=flush))

    async def _release(self, queue: Queue, feeder: Feeder, task: asyncio.Task[Any], *, flush: bool) -> None:
        """Let the next owner have the queue, when what this one acknowledged is stored or cannot be."""
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
