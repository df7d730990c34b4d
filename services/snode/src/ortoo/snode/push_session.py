"""One push session: a member of a group, its queues, its credit and its acknowledgements."""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from ortoo.common.background import Background
from ortoo.common.clock import Clock
from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.logs import get_logger
from ortoo.common.randomness import Randomness
from ortoo.snode.ack_lane import AckLane
from ortoo.snode.close_reason import CloseReason
from ortoo.snode.consumer_groups import ConsumerGroups
from ortoo.snode.directory import Directory
from ortoo.snode.enode_links import EnodeLinks
from ortoo.snode.feeder import FETCH_BYTES_MAX, FETCH_BYTES_MIN, SESSION_BYTES, Feeder
from ortoo.snode.message_filter import MessageFilter
from ortoo.snode.offsets import Offsets
from ortoo.snode.push_flow import Credit, QueueCursor
from ortoo.snode.push_outbox import Assigned, Closed, Delivery, Event, Opened, PushOutbox
from ortoo.snode.routes import Queue
from ortoo.snode.traffic import Traffic

FLUSH_TIMEOUT_S = 4.0
"""How long a queue is kept from its next owner for the sake of acknowledgements that are still being stored."""
_log = get_logger("push")


@dataclass(frozen=True, slots=True)
class PushParts:
    """What every push session stands on."""

    directory: Directory
    links: EnodeLinks
    offsets: Offsets
    groups: ConsumerGroups
    background: Background
    clock: Clock
    randomness: Randomness
    traffic: Traffic = field(default_factory=Traffic)


@dataclass(slots=True)
class _Line:
    """One queue of the session."""

    feeder: Feeder
    task: asyncio.Task[Any]


class PushSession:
    """One client's open Push call."""

    def __init__(
        self,
        parts: PushParts,
        *,
        group: str,
        client_id: str,
        filters: Mapping[str, MessageFilter | None],
        from_first: bool,
        heartbeat_interval_ms: int,
    ) -> None:
        """`filters` maps each topic to its filter; None = everything."""
        # Members sort by this, so a client keeps its place; the rest of it makes it nobody else's.
        self.session_id = f"{client_id}@{parts.randomness.id_text()}"
        self.group = group
        self.client_id = client_id
        self.heard_at_s = parts.clock.monotonic_s()
        self.closing = False
        self.call: asyncio.Task[Any] | None = None
        """The task that writes to the client; set by who opens the session."""
        self._parts = parts
        self._filters = filters
        self._from_first = from_first
        self._credit = Credit()
        self._outbox = PushOutbox()
        self._outbox.opened(Opened(self.session_id, heartbeat_interval_ms))
        self._lines: dict[Queue, _Line] = {}
        self._lanes: dict[tuple[str, int], AckLane] = {}
        self._granted = asyncio.Event()

    @property
    def topics(self) -> frozenset[str]:
        """The topics it wants."""
        return frozenset(self._filters)

    def cursors(self) -> list[tuple[QueueCursor, int]]:
        """How far each queue is, with the topic's id."""
        return [(line.feeder.cursor, line.feeder.topic_id) for line in self._lines.values()]

    def next_event(self) -> Coroutine[Any, Any, Event]:
        """The next thing to tell the client."""
        return self._outbox.next()

    def heard(self) -> None:
        """The client said something."""
        self.heard_at_s = self._parts.clock.monotonic_s()

    def grant(self, messages: int, size_bytes: int) -> None:
        """The client takes more."""
        self._credit.grant(messages, size_bytes)
        self._granted.set()

    def acknowledge(self, queue: Queue, offset: int, generation: int) -> None:
        """The client has processed a queue up to `offset`. Errors: Invalid when that was never sent."""
        line = self._lines.get(queue)
        if line is None:
            _log.debug("an acknowledgement came too late", queue=str(queue), offset=offset, session=self.session_id)
            return
        feeder = line.feeder
        if not feeder.cursor.acknowledge(offset, generation, self._parts.clock.monotonic_s()):
            return
        lane = self._lane(queue.enode, feeder.topic_id)
        lane.put(queue, offset, feeder.generation)
        if not lane.draining:
            lane.draining = True
            self._parts.background.spawn(f"commit {self.session_id}", self._drain(lane))

    def assign(self, generation: int, queues: list[Queue]) -> None:
        """Take these queues and no others: stop feeding the rest, hand them over when their offsets are stored."""
        if self.closing:
            return
        wanted = set(queues)
        for queue in [queue for queue in self._lines if queue not in wanted or self._is_stale(queue)]:
            self._give_up(queue)
        for line in self._lines.values():
            line.feeder.generation = generation
        for delivery in self._outbox.assigned(Assigned(generation, tuple(queues))):
            self._credit.grant(delivery.messages, delivery.size_bytes)
            self._granted.set()
        for queue in queues:
            if queue not in self._lines:
                self._take_on(queue, generation)

    async def may_send(self) -> None:
        """Wait until there is credit and room in the outbox."""
        while True:
            await self._outbox.room()
            if self._credit.open:
                return
            self._granted.clear()
            await self._granted.wait()

    def send(self, delivery: Delivery) -> None:
        """Deliver, at the expense of the client's credit."""
        self._credit.charge(delivery.messages, delivery.size_bytes)
        if delivery.messages:
            self._parts.traffic.pushed(delivery.queue.topic, self.group, delivery.messages, delivery.size_bytes)
        if delivery.loss is not None:
            self._parts.traffic.lost(delivery.queue.topic, self.group, delivery.next_offset - delivery.first_offset)
        self._outbox.deliver(delivery)

    async def close(self, reason: CloseReason, message: str) -> None:
        """Leave the group: the queues go to others when what was acknowledged is stored. May be called again."""
        if self.closing:
            return
        self.closing = True
        flushes = [self._give_up(queue) for queue in list(self._lines)]
        await self._parts.groups.leave(self.group, self.session_id)
        if flushes:
            await asyncio.wait(flushes)
        self._outbox.close(Closed(reason, message))

    def _is_stale(self, queue: Queue) -> bool:
        """Whether the topic was deleted and created anew since the queue was taken on."""
        return self._lines[queue].feeder.topic_id != self._parts.directory.topic(queue.topic).topic_id

    def _take_on(self, queue: Queue, generation: int) -> None:
        topic = self._parts.directory.topic(queue.topic)
        feeder = Feeder(
            QueueCursor(queue, generation),
            topic.topic_id,
            self.group,
            self._filters.get(queue.topic),
            self,
            self._parts.links,
            self._parts.offsets,
            from_first=self._from_first,
            fetch_bytes=self._fetch_bytes,
            clock=self._parts.clock,
            randomness=self._parts.randomness,
        )
        task = self._parts.background.spawn(f"feed {queue}", self._feed(feeder))
        self._lines[queue] = _Line(feeder, task)

    async def _feed(self, feeder: Feeder) -> None:
        queue = feeder.cursor.queue
        try:
            await feeder.run(self._parts.groups.hold(self.group, queue, feeder))
        except OrtooError as error:
            _log.error("a queue is not fed any more", queue=str(queue), group=self.group, reason=str(error))
        except Exception:
            _log.exception("feeding a queue met a defect", queue=str(queue), group=self.group)

    def _give_up(self, queue: Queue) -> asyncio.Task[Any]:
        line = self._lines.pop(queue)
        line.task.cancel()
        return self._parts.background.spawn(f"release {queue}", self._release(queue, line))

    async def _release(self, queue: Queue, line: _Line) -> None:
        """Let the next owner have the queue, when what this one acknowledged is stored or cannot be."""
        try:
            await asyncio.wait([line.task])
            lane = self._lanes.get((queue.enode, line.feeder.topic_id))
            if lane is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FLUSH_TIMEOUT_S):
                        await lane.settled(queue)
                lane.forget(queue)
        finally:
            self._parts.groups.release(self.group, queue, line.feeder)

    async def _drain(self, lane: AckLane) -> None:
        try:
            await lane.drain()
        except Exception:
            _log.exception("storing offsets met a defect", group=self.group)
        finally:
            lane.draining = False

    def _lane(self, enode: str, topic_id: int) -> AckLane:
        key = (enode, topic_id)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = AckLane(
                enode,
                topic_id,
                self.group,
                self._parts.offsets,
                self._outbox.acknowledged,
                clock=self._parts.clock,
                randomness=self._parts.randomness,
            )
        return lane

    def _fetch_bytes(self) -> int:
        share = SESSION_BYTES // max(1, len(self._lines))
        return max(FETCH_BYTES_MIN, min(FETCH_BYTES_MAX, share, self._credit.size_bytes))


def check_subscriptions(topics: list[str]) -> None:
    """Refuse a session that wants nothing, or one topic twice. Errors: Invalid."""
    if not topics:
        raise Invalid("no subscription; name at least one topic", field="open.subscriptions")
    if len(set(topics)) != len(topics):
        raise Invalid("a topic is named twice; give each one subscription", field="open.subscriptions")
