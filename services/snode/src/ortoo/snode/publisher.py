"""Sending a few messages with one call: choose queues, check each message, share batches with other callers."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ortoo.common.background import Background
from ortoo.common.clock import Clock
from ortoo.common.errors import Invalid, Unavailable
from ortoo.common.message import Message
from ortoo.common.message_id import message_id_text
from ortoo.common.queue_choice import level_of_priority, queue_of_group
from ortoo.common.randomness import Randomness
from ortoo.common.record_batch import encoded_bytes_bound
from ortoo.common.sealed_batch import MESSAGES_MAX, RECORDS_BYTES_MAX
from ortoo.snode.delayed import delayed_message_id, recall_handle
from ortoo.snode.directory import Directory, check_writable
from ortoo.snode.enode_links import EnodeLinks
from ortoo.snode.publish_lane import BATCH_BYTES, LaneLimits, PublishLane
from ortoo.snode.queue_choice import StickyChoice
from ortoo.snode.routes import MessageType, Queue, Topic
from ortoo.snode.sendable_topics import TopicSource

Place = tuple[Queue, bool]
"""A queue, and whether messages are delivered there later."""
LANES_MAX = 20_000
CHOICES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a message was stored."""

    message_id: str
    queue: Queue
    offset: int
    """Of a delayed message its number among those that wait."""
    recall_handle: str = ""
    """Of a delayed message."""


class Publisher:
    """All single messages of this snode."""

    def __init__(
        self,
        directory: Directory,
        topics: TopicSource,
        links: EnodeLinks,
        background: Background,
        limits: LaneLimits,
        *,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        self._directory = directory
        self._topics = topics
        self._links = links
        self._background = background
        self._limits = limits
        self._clock = clock
        self._randomness = randomness
        self._lanes: OrderedDict[tuple[int, Queue, bool], PublishLane] = OrderedDict()
        self._choices: OrderedDict[int, tuple[StickyChoice, PublishLane | None, int]] = OrderedDict()

    async def publish(self, topic_name: str, messages: Sequence[Message], queue: Queue | None) -> list[Receipt]:
        """Store messages; returns one receipt each when they are durable.

        Errors: NotFound, Invalid (nothing was stored); Unavailable, Overloaded (some may have been).
        """
        topic = await self._topics.topic(topic_name)
        _check(messages)
        placed = self._placed(topic, messages, queue)
        offsets = [
            self._put(topic, to, [messages[row] for row in rows], delayed=delayed)
            for (to, delayed), rows in placed.items()
        ]
        firsts = await asyncio.gather(*offsets, return_exceptions=True)
        receipts: list[Receipt | None] = [None] * len(messages)
        for ((to, _), rows), first in zip(placed.items(), firsts, strict=True):
            if isinstance(first, BaseException):
                raise first
            for number, row in enumerate(rows):
                receipts[row] = _receipt(topic, to, messages[row], first + number)
        return [receipt for receipt in receipts if receipt is not None]

    def _placed(self, topic: Topic, messages: Sequence[Message], queue: Queue | None) -> dict[Place, list[int]]:
        """Rows by the queue they go to and by whether they are delayed: those share no batch with others."""
        if queue is not None:
            if queue.topic not in ("", topic.name):
                raise Invalid(f"the queue is of topic {queue.topic}, the request of {topic.name}", field="queue.topic")
            queue = queue._replace(topic=topic.name)
            check_writable(topic, queue)
            return _sorted_out(messages, lambda _: queue)
        queues = topic.write_queues()
        if not topic.writable or not queues:
            raise Invalid(f"topic {topic.name} takes no messages: {topic.permission.name}", field="topic")
        keyless = any(not message.message_group for message in messages)
        unkeyed = self._unkeyed(topic, queues) if keyless else queues[0]
        has_levels = topic.message_type is MessageType.PRIORITY

        def queue_of(message: Message) -> Queue:
            if message.message_group:
                return queue_of_group(message.message_group, queues)
            if has_levels and message.priority is not None:
                return _level(topic, unkeyed, message.priority)
            return unkeyed

        return _sorted_out(messages, queue_of)

    def _unkeyed(self, topic: Topic, queues: Sequence[Queue]) -> Queue:
        alive = self._directory.alive(queues) or queues
        entry = self._choices.get(topic.topic_id)
        if entry is None:
            choice = StickyChoice(self._randomness.below(1024))
            if len(self._choices) >= CHOICES_MAX:
                self._choices.popitem(last=False)
        else:
            choice, lane, cut = entry
            if lane is None or lane.idle or lane.batches_cut != cut:
                choice.advance()
            else:
                return choice.queue(alive)
        to = choice.queue(alive)
        chosen = self._lane(topic, to)
        self._choices[topic.topic_id] = (choice, chosen, chosen.batches_cut + (1 if chosen.idle else 0))
        return to

    def _put(self, topic: Topic, queue: Queue, messages: Sequence[Message], *, delayed: bool) -> asyncio.Future[int]:
        self._links.to(queue.enode)  # an enode that is known to be away is told at once
        lane = self._lane(topic, queue, delayed=delayed)
        future = lane.put(messages)
        if not lane.draining:
            lane.draining = True
            self._background.spawn(f"publish {queue}", self._drain(lane))
        return future

    async def _drain(self, lane: PublishLane) -> None:
        try:
            await lane.drain()
        finally:
            lane.draining = False

    def _lane(self, topic: Topic, queue: Queue, *, delayed: bool = False) -> PublishLane:
        key = (topic.topic_id, queue, delayed)
        lane = self._lanes.get(key)
        if lane is None:
            self._drop_idle_lanes()
            lane = self._lanes[key] = PublishLane(
                queue, topic.topic_id, self._links, self._limits, clock=self._clock, randomness=self._randomness
            )
        self._lanes.move_to_end(key)
        return lane

    def _drop_idle_lanes(self) -> None:
        while len(self._lanes) >= LANES_MAX:
            key = next((key for key, lane in self._lanes.items() if lane.idle), None)
            if key is None:
                raise Unavailable(f"messages for {LANES_MAX} queues are on their way; retry", retry_after_ms=100)
            del self._lanes[key]


def _level(topic: Topic, unkeyed: Queue, priority: int) -> Queue:
    placement = topic.placement(unkeyed.enode)
    assert placement is not None
    return unkeyed._replace(queue_id=level_of_priority(priority, placement.write_queue_count))


def _sorted_out(messages: Sequence[Message], queue_of: Callable[[Message], Queue]) -> dict[Place, list[int]]:
    placed: dict[Place, list[int]] = {}
    for row, message in enumerate(messages):
        placed.setdefault((queue_of(message), message.deliver_at_ms is not None), []).append(row)
    return placed


def _receipt(topic: Topic, queue: Queue, message: Message, offset: int) -> Receipt:
    if message.deliver_at_ms is not None:
        made = delayed_message_id(queue.enode, offset)
        handle = recall_handle(queue, topic.topic_id, offset, message.deliver_at_ms)
        return Receipt(message.message_id or made, queue, offset, handle)
    made = message_id_text(topic.topic_id, queue.enode, queue.queue_id, offset)
    return Receipt(message.message_id or made, queue, offset)


def _check(messages: Sequence[Message]) -> None:
    """Refuse a request that cannot be stored as a whole. Errors: Invalid, naming the message."""
    if not 1 <= len(messages) <= MESSAGES_MAX:
        raise Invalid(f"{len(messages)} messages; send 1 to {MESSAGES_MAX} at once", field="messages")
    for row, message in enumerate(messages):
        message.check(f"messages[{row}]")
    size = BATCH_BYTES + sum(map(encoded_bytes_bound, messages))
    if len(messages) > 1 and size > RECORDS_BYTES_MAX:
        raise Invalid(
            f"{len(messages)} messages of up to {size} bytes; send at most {RECORDS_BYTES_MAX} bytes at once",
            field="messages",
        )
