"""Sends a few messages with one call: chooses queues, checks each message, shares batches with other callers.

Messages with a dedup id are retried until they are known to be stored.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ortoo.common.directory.topic import MessageType
from ortoo.common.errors import NOT_ACCEPTED_FIELD, Invalid, OrtooError, Unavailable
from ortoo.common.groups.handle_seal import HandleSeals
from ortoo.common.groups.queue_choice import queue_of_group
from ortoo.common.groups.requests import RequestOptions
from ortoo.common.process.memory_budget import MemoryShare
from ortoo.common.process.retry import Backoff
from ortoo.common.records.batch import batch_bytes_bound, encode
from ortoo.common.records.message import Message
from ortoo.common.records.message_id import message_id_text
from ortoo.common.records.sealed_batch import MESSAGES_MAX, RECORDS_BYTES_MAX
from ortoo.common.records.text_rules import REQUEST_LIMITS
from ortoo.snode.cluster.directory import DirectoryCache, resolve_write_queues
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks, explain_error
from ortoo.snode.send.ambiguous_outcome import AmbiguousOutcome
from ortoo.snode.send.delayed import delayed_message_id, make_recall_handle
from ortoo.snode.send.publish_batcher import PublishBatcher, QueueChoice
from ortoo.snode.send.queue_choice import (
    DEDUP_ID,
    ID_BYTES_MAX,
    PLAIN,
    BatchKind,
    Destination,
    group_by_destination,
    kind_of,
    queue_of_level,
)
from ortoo.snode.topics.creation import ProducerTopics


class PublishReceipt(NamedTuple):
    """The location of a stored message."""

    message_id: str
    queue: Queue
    offset: int
    """The offset; for a delayed message, its timer number."""
    recall_handle: str = ""
    """Set for a delayed message."""
    duplicate: bool = False
    """Whether the message was stored before."""


def make_receipt(
    topic: Topic, queue: Queue, message: Message, offset: int, *, seals: HandleSeals, duplicate: bool = False
) -> PublishReceipt:
    """The receipt of a stored message."""
    if message.deliver_at_ms is not None:
        made = delayed_message_id(queue.enode, offset)
        handle = make_recall_handle(seals, queue, topic.topic_id, offset, message.deliver_at_ms)
        return PublishReceipt(message.message_id or made, queue, offset, handle, duplicate)
    message_id = message.message_id or message_id_text(topic.topic_id, queue.enode, queue.queue_id, offset)
    return PublishReceipt(message_id, queue, offset, duplicate=duplicate)


BATCHERS_MAX = 20_000
CHOICES_MAX = 10_000


@dataclass(slots=True, eq=False)
class Publisher:
    """Stores the single messages that clients send to this snode, each within the timeout of an enode."""

    runtime: Runtime
    directory: DirectoryCache
    topics: ProducerTopics
    links: EnodeLinks
    memory: MemoryShare
    _batchers: OrderedDict[tuple[int, Queue, BatchKind], PublishBatcher] = field(
        default_factory=OrderedDict, init=False
    )
    _choices: OrderedDict[int, QueueChoice] = field(default_factory=OrderedDict, init=False)
    """By the id of the topic."""

    async def publish(
        self,
        topic_name: str,
        messages: Sequence[Message],
        queue: Queue | None,
        requests: Sequence[RequestOptions] = (),
    ) -> list[PublishReceipt]:
        """Store messages in `queue`, or in queues of the topic; returns a receipt for each when all are durable.

        With `requests`, each message is a request with these options.

        Errors: NotFound, Invalid, Overloaded (nothing was stored), Unavailable (some messages may have been stored).
        """
        topic = await self.topics.topic(topic_name)
        if not 1 <= len(messages) <= MESSAGES_MAX:
            raise Invalid(f"{len(messages)} messages; send 1 to {MESSAGES_MAX} at once", field="messages")
        for row, message in enumerate(messages):
            message.check(f"messages[{row}]")
        return await self.store(topic, _as_requests(messages, requests) if requests else messages, queue)

    async def store(
        self, topic: Topic, messages: Sequence[Message], queue: Queue | None, refused_by: Collection[str] = ()
    ) -> list[PublishReceipt]:
        """Like `publish`, for messages whose number and content are already checked.

        Without `queue`, enodes that have just refused the messages (`refused_by`) are used last.
        """
        _check_batch(messages)
        receipts: dict[int, PublishReceipt] = {}
        refusing_enodes = set(refused_by)
        while rows := [row for row in range(len(messages)) if row not in receipts]:
            remaining = [messages[row] for row in rows] if receipts else messages
            placed = self._place(topic, remaining, queue, refusing_enodes)
            stored = [
                self._store(topic, place, [remaining[at] for at in among], queue) for place, among in placed.items()
            ]
            answers = await _gather(stored)
            for ((to, sort), among), answer in zip(placed.items(), answers, strict=True):
                if isinstance(answer, BaseException):
                    may_move = _may_reroute(sort, [remaining[at] for at in among], queue)
                    if not (may_move and self._can_reroute(topic, to, refusing_enodes, answer)):
                        raise _combined_error(answer, answers, is_stored_in_part=bool(receipts))
                    refusing_enodes.add(to.enode)
                    continue
                if not sort[1]:
                    seals, first = self.directory.seals, answer
                    answer = [
                        make_receipt(topic, to, remaining[at], first + n, seals=seals) for n, at in enumerate(among)
                    ]
                receipts.update(zip((rows[at] for at in among), answer, strict=True))
        return [receipts[row] for row in range(len(messages))]

    def store_one(self, topic: Topic, message: Message, done: Callable[[PublishReceipt | Exception], None]) -> None:
        """Like `store` in any queue, for a message without a dedup id; `done` gets the receipt, or the error.

        Errors: those of `store`, if the message was not sent. `done` is then not called.
        """
        may_reroute, kind = not message.message_group, kind_of(message)
        batcher = self._joined_batcher(topic) if may_reroute and kind == PLAIN else None
        if batcher is not None:
            queue = batcher.queue
        else:
            queues = resolve_write_queues(topic, None)
            unkeyed = self._choose_queue(topic, queues, ()) if may_reroute else queues[0]
            queue = _queue_of(topic, queues, message, unkeyed)

        def stored(offset: int | OrtooError) -> None:
            if isinstance(offset, int):
                done(make_receipt(topic, queue, message, offset, seals=self.directory.seals))
            elif may_reroute and self._can_reroute(topic, queue, (), offset):
                self.runtime.background.run_contained("publish", store_elsewhere())
            else:
                done(offset)

        async def store_elsewhere() -> None:
            try:
                done((await self.store(topic, [message], None, (queue.enode,)))[0])
            except Exception as error:
                done(error)

        if batcher is not None:
            self._put_into(batcher, (message,), stored, may_reroute=may_reroute)
        else:
            self._put(topic, queue, (message,), kind, stored, may_reroute=may_reroute)

    def _joined_batcher(self, topic: Topic) -> PublishBatcher | None:
        """The batcher that the next message joins: with an append in flight, and without a change of topic or enodes.

        Nothing has to be decided again for such a message. If the enode refuses it, it moves to another queue.
        """
        choice = self._choices.get(topic.topic_id)
        if choice is None or choice.topic is not topic or choice.enodes_version != self.directory.enodes_version:
            return None
        return choice.batcher if choice.is_joined and topic.message_type is not MessageType.PRIORITY else None

    def _can_reroute(self, topic: Topic, to: Queue, refusing_enodes: Collection[str], error: BaseException) -> bool:
        """Whether the enode stored nothing, and another enode has not refused the messages yet."""
        if not isinstance(error, OrtooError) or error.field != NOT_ACCEPTED_FIELD:
            return False
        others = self.directory.available_queues(topic.write_queues())
        return any(one.enode not in refusing_enodes and one.enode != to.enode for one in others)

    def _store(
        self, topic: Topic, place: Destination, messages: Sequence[Message], queue: Queue | None
    ) -> "asyncio.Future[Any]":
        """Start to store messages of one sort; the future returns the offset of the first message, or the receipts."""
        to, sort = place
        if sort[1]:
            return self.runtime.background.start_future(f"publish {to}", self._store_deduplicated(topic, to, messages))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def stored(offset: int | OrtooError) -> None:
            if future.done():
                return
            if isinstance(offset, int):
                future.set_result(offset)
            else:
                future.set_exception(offset)

        try:
            self._put(topic, to, messages, sort, stored, may_reroute=_may_reroute(sort, messages, queue))
        except OrtooError as error:  # messages of other sorts may be in flight
            stored(error)
        return future

    async def _store_deduplicated(
        self, topic: Topic, queue: Queue, messages: Sequence[Message]
    ) -> list[PublishReceipt]:
        """Store messages whose ids the enode deduplicates, so that retries are harmless.

        Errors: those of the enode, Unavailable if the outcome is unknown.
        """
        batch = encode(messages, now_ms=self.runtime.clock.now_ms(), limits=REQUEST_LIMITS)
        ids = [message.properties[DEDUP_ID] for message in messages]
        deadline_s = self.runtime.clock.monotonic_s() + self.runtime.enode_timeout_s
        outcome, backoff, attempt = AmbiguousOutcome(), Backoff(first_s=0.02, max_s=0.5), 0
        while True:
            try:
                link = self.links.to(queue.enode)
                places = await link.append_deduplicated(topic.topic_id, queue.queue_id, batch, ids)
            except OrtooError as error:
                reason = explain_error(error)
                delay_s = backoff.delay_s(attempt, self.runtime.randomness)
                if not reason.retriable or self.runtime.clock.monotonic_s() + delay_s >= deadline_s:
                    raise outcome.error_for_sender(reason) from None
                outcome.add_attempt(error)
                await self.runtime.clock.sleep(delay_s)
                attempt += 1
            else:
                return [
                    make_receipt(
                        topic,
                        queue._replace(queue_id=place.queue_id),
                        message,
                        place.offset,
                        seals=self.directory.seals,
                        duplicate=place.duplicate,
                    )
                    for message, place in zip(messages, places, strict=True)
                ]

    def _place(
        self, topic: Topic, messages: Sequence[Message], queue: Queue | None, refusing_enodes: Collection[str]
    ) -> dict[Destination, list[int]]:
        """Group the rows of messages by queue and sort. Messages of different sorts share no batch."""
        if queue is not None and queue.topic not in ("", topic.name):
            raise Invalid(f"the queue is in topic {queue.topic}, the request is for {topic.name}", field="queue.topic")
        queues = resolve_write_queues(topic, queue)
        if queue is not None:
            return group_by_destination(messages, lambda _: queues[0])
        keyless = any(not message.message_group for message in messages)
        unkeyed = self._choose_queue(topic, queues, refusing_enodes) if keyless else queues[0]
        return group_by_destination(messages, lambda message: _queue_of(topic, queues, message, unkeyed))

    def _choose_queue(self, topic: Topic, queues: Sequence[Queue], refusing_enodes: Collection[str]) -> Queue:
        """Choose a queue in turn. The choice stays on a queue while messages can still join a batch there."""
        alive = self.directory.available_queues(queues) or queues
        if refusing_enodes:
            alive = [queue for queue in alive if queue.enode not in refusing_enodes] or alive
        entry = self._choices.get(topic.topic_id)
        if entry is None:
            at = self.runtime.randomness.below(1024)  # so that snodes do not move in step
            if len(self._choices) >= CHOICES_MAX:
                self._choices.popitem(last=False)
        else:
            at = entry.at
            if entry.is_joined:
                return alive[at % len(alive)]
            at += 1
            self._choices[topic.topic_id] = entry._replace(at=at)  # the turn changes also if no batcher can be made
        to = alive[at % len(alive)]
        chosen = self._batcher(topic, to)
        cut, enodes_version = chosen.batches_taken + int(chosen.is_idle), self.directory.enodes_version
        self._choices[topic.topic_id] = QueueChoice(topic, at, chosen, cut, enodes_version)
        return to

    def _put(
        self,
        topic: Topic,
        queue: Queue,
        messages: Sequence[Message],
        sort: BatchKind,
        stored: Callable[[int | OrtooError], None],
        *,
        may_reroute: bool,
    ) -> None:
        self.links.to(queue.enode)  # fails at once if the enode is known to be unreachable
        self._put_into(self._batcher(topic, queue, sort), messages, stored, may_reroute=may_reroute)

    def _put_into(
        self,
        batcher: PublishBatcher,
        messages: Sequence[Message],
        stored: Callable[[int | OrtooError], None],
        *,
        may_reroute: bool,
    ) -> None:
        batcher.put(messages, stored, may_reroute=may_reroute)
        if not batcher.is_draining:
            batcher.wake(self.runtime.background, f"publish {batcher.queue}")

    def _batcher(self, topic: Topic, queue: Queue, sort: BatchKind = PLAIN) -> PublishBatcher:
        key = (topic.topic_id, queue, sort)
        batcher = self._batchers.get(key)
        if batcher is None:
            self._drop_idle_batchers()
            own = (self.runtime.clock, self.runtime.randomness, self.runtime.enode_timeout_s)
            batcher = self._batchers[key] = PublishBatcher(queue, topic.topic_id, self.links, self.memory, *own)
        self._batchers.move_to_end(key)
        return batcher

    def _drop_idle_batchers(self) -> None:
        while len(self._batchers) >= BATCHERS_MAX:
            key = next((key for key, batcher in self._batchers.items() if batcher.is_idle), None)
            if key is None:
                raise Unavailable(f"messages for {BATCHERS_MAX} queues are on their way; retry", retry_after_ms=100)
            del self._batchers[key]


def _queue_of(topic: Topic, queues: Sequence[Queue], message: Message, unkeyed: Queue) -> Queue:
    """The queue of a message among `queues`; `unkeyed` for a message that may go to any of them."""
    if message.message_group:
        return queue_of_group(message.message_group, queues)
    chosen = message.properties.get(DEDUP_ID)
    queue = queue_of_group(chosen, queues) if chosen else unkeyed  # a retry goes to the same queue
    if topic.message_type is MessageType.PRIORITY:
        return queue_of_level(topic, queue, message.priority or 0)
    return queue


def _as_requests(messages: Sequence[Message], requests: Sequence[RequestOptions]) -> list[Message]:
    """The messages with the properties of requests. Errors: Invalid."""
    if len(requests) != len(messages):
        raise Invalid(f"{len(requests)} for {len(messages)} messages; give one for each or none", field="requests")
    for row, options in enumerate(requests):
        options.check(f"requests[{row}]")
    return [
        message.replace(properties={**message.properties, **options.properties()})
        for message, options in zip(messages, requests, strict=True)
    ]


async def _gather(futures: Sequence[asyncio.Future[Any]]) -> list[Any]:
    """The result or the exception of each future."""
    if len(futures) > 1:
        return await asyncio.gather(*futures, return_exceptions=True)
    try:
        return [await futures[0]]
    except Exception as error:
        return [error]


def _combined_error(error: BaseException, outcomes: Sequence[Any], *, is_stored_in_part: bool) -> BaseException:
    """The error for the sender when one part failed with `error`. `outcomes` has the results of all parts."""
    if not isinstance(error, OrtooError):
        return error
    outcome = AmbiguousOutcome()
    outcome.is_ambiguous = is_stored_in_part
    for answer in outcomes:
        if answer is not error:
            outcome.add_attempt(answer if isinstance(answer, BaseException) else None)
    return outcome.error_for_sender(error)


def _may_reroute(sort: BatchKind, messages: Sequence[Message], queue: Queue | None) -> bool:
    """Whether the messages may go to any queue: without a given queue, dedup ids and message groups."""
    return queue is None and not sort[1] and not any(one.message_group for one in messages)


def _check_batch(messages: Sequence[Message]) -> None:
    """Refuse a request that cannot be stored as a whole. Errors: Invalid, naming the message."""
    for row, message in enumerate(messages):
        if (chosen := message.properties.get(DEDUP_ID)) is not None and not 1 <= len(chosen.encode()) <= ID_BYTES_MAX:
            raise Invalid(f"give 1 to {ID_BYTES_MAX} bytes", field=f"messages[{row}].properties['{DEDUP_ID}']")
    if len(messages) > 1 and (size := batch_bytes_bound(messages)) > RECORDS_BYTES_MAX:
        raise Invalid(
            f"{len(messages)} messages with up to {size} bytes in all; send at most {RECORDS_BYTES_MAX} bytes at once",
            field="messages",
        )
