"""Failed messages, on all enodes: copies for a retry, listing of dead letters, and replay of dead letters."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from ortoo.common.errors import Conflict, Forbidden, OrtooError
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.filters.selection import SelectedRows
from ortoo.common.groups.delay_levels import delay_ms_of_level
from ortoo.common.groups.failure_rule import FailureRule, Retry
from ortoo.common.groups.group_topics import group_of_topic
from ortoo.common.groups.pop import PopRequest, PopRules, ReplayRequest, RetryRequest, ranges_of
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.common.records.view import open_batch
from ortoo.snode import log_events
from ortoo.snode.cluster.directory import check_readable
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import EnodeLinks, Interruption
from ortoo.snode.pull.queue_reader import PlacedMessage, QueueReader, message_id_of, messages_of, offsets_of
from ortoo.snode.pull.read_sizes import ANSWER_BYTES_MAX, count_fitting
from ortoo.snode.topics.creation import GroupTopics, dead_letter_topic, retry_topic
from ortoo.snode.topics.group_settings import GroupSettings

REPLAY_STEP_MESSAGES = 512
"""Maximum of dead letters in one replay request."""
CHUNK_ROWS, CHUNK_BYTES = 64, 1 << 20
"""The dead letters whose replays are queried in one call: a chunk is complete with either number."""
LETTER_BYTES, READ_BYTES_MIN = 1 << 10, 64 << 10
"""The usual size of a dead letter, and the smallest read."""
PAGE_MAX = 1_024
"""A larger number of expected dead letters is read like all of them."""


@dataclass(frozen=True, slots=True)
class DeadLetter(PlacedMessage):
    """One dead letter, and whether it was replayed."""

    replayed: bool


@dataclass(slots=True)
class ReplayState:
    """The progress of a replay of dead letters; all counts are messages."""

    replayed_messages: int = 0
    scanned_messages: int = 0
    skipped_messages: int = 0


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of a request to replay dead letters."""

    group: str
    message_filter: MessageFilter | None = None
    to_topic: str = ""
    messages_per_s: int = 0
    messages_max: int = 0
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class PeekedMessage(PlacedMessage):
    """A message that a pop would return, with the number of its attempts."""

    attempts: int


@dataclass(slots=True, eq=False)
class DeadLetters:
    """Lists and replays dead letters. It is stateless: enodes record in their logs which dead letters were replayed."""

    watch: DirectoryWatch
    links: EnodeLinks
    group_topics: GroupTopics
    reader: QueueReader
    clock: Clock

    async def list_dead_letters(
        self,
        group: str,
        message_filter: MessageFilter | None,
        *,
        include_replayed: bool,
        after: tuple[Queue, int] | None = None,
        newest: int | None = None,
        expected: int = 0,
    ) -> AsyncIterator[DeadLetter]:
        """Yield the dead letters of a group: enode by enode, the oldest first. `after` is the place of the last known.

        `newest` leaves out all but this number of the newest dead letters of each queue. `expected` is the number that
        the caller takes, so that enodes read few more; 0 = all.

        Errors: Unavailable if an enode is unreachable.
        """
        topic = await self.group_topics.find(dead_letter_topic(group))
        if topic is None:
            return
        is_page = 0 < expected <= PAGE_MAX and message_filter is None
        bytes_max = max(expected * LETTER_BYTES, READ_BYTES_MIN) if is_page else 0
        async for queue, parts in _chunks(self._parts(topic, message_filter, after, newest, bytes_max)):
            offsets = [offset for part in parts for offset in offsets_of(part)]
            pending = await self._not_replayed(topic, group, queue, offsets)
            for part in parts:
                for offset, message in messages_of(part, None if include_replayed else pending):
                    message_id = message_id_of(message, topic.topic_id, queue, offset)
                    yield DeadLetter(message_id, queue, offset, part.stored_at_ms, message, offset not in pending)

    async def replay(self, replay: ReplayOptions) -> AsyncIterator[ReplayState]:
        """Send dead letters again in several steps; yields the updated progress after each step.

        Dead letters that were sent before an error stay sent; another call continues after them. Errors: Forbidden
        (`to_topic` belongs to a group), NotFound (`to_topic`), Conflict (`to_topic` has no queue on an enode with dead
        letters), Unavailable.
        """
        if group_of_topic(replay.to_topic) is not None:
            raise Forbidden(
                f"only the servers write to {replay.to_topic}; leave to_topic empty for the group's own retry topic, "
                "or name an ordinary topic",
                field="to_topic",
            )
        progress = ReplayState()
        topic = await self.group_topics.find(dead_letter_topic(replay.group))
        if topic is None:
            return
        began_s = self.clock.monotonic_s()
        async for queue, part in self._parts(topic, replay.message_filter):
            target_id = await self._target_topic_id(replay, topic, queue.enode)
            offsets = offsets_of(part)
            step = (
                REPLAY_STEP_MESSAGES
                if not replay.messages_per_s
                else max(1, min(REPLAY_STEP_MESSAGES, replay.messages_per_s // 8))
            )
            for start in range(0, len(offsets), step):
                some = offsets[start : start + step]
                if replay.messages_max:
                    some = await self._limit_to_remaining(topic, replay, queue, some, progress)
                if not some:
                    continue
                sent = await self.links.to(queue.enode).replay(
                    ReplayRequest(topic.topic_id, replay.group, ranges_of(some), target_id, replay.dry_run)
                )
                count = sum(one for _, one in sent)
                progress.scanned_messages += len(some)
                progress.replayed_messages += count
                progress.skipped_messages += len(some) - count
                yield progress
                if replay.messages_max and progress.replayed_messages >= replay.messages_max:
                    return
                if replay.messages_per_s and not replay.dry_run:
                    due_s = began_s + progress.replayed_messages / replay.messages_per_s
                    await self.clock.sleep(max(0.0, due_s - self.clock.monotonic_s()))

    async def peek(
        self, topic_name: str, group: str, messages_max: int, skip: int = 0
    ) -> tuple[list[PeekedMessage], bool]:
        """The messages that a pop would return, without the first `skip`, and whether the answer left some out.

        The call leases nothing. Errors: NotFound, Unavailable.
        """
        topic = await self.watch.topic(topic_name)
        found: list[PeekedMessage] = []
        more = False
        for placement in sorted(topic.placements, key=lambda one: one.enode):
            room = messages_max - len(found)
            if room <= 0 or more or not placement.read_queue_count:
                break
            queue_ids = tuple(range(placement.read_queue_count))
            request = PopRequest(topic.topic_id, group, queue_ids, room, 0, ANSWER_BYTES_MAX, 0, skip=skip)
            popped = await self.links.to(placement.enode).peek(request)
            skip, more = skip - popped.skipped_messages, popped.more
            for one in popped.batches:
                queue = Queue(topic.name, placement.enode, one.queue_id)
                for message, offset, attempt in zip(open_batch(one.batch), one.offsets, one.attempts, strict=True):
                    message_id = message_id_of(message, topic.topic_id, queue, offset)
                    found.append(PeekedMessage(message_id, queue, offset, one.stored_at_ms, message, attempt))
        fits = count_fitting(one.message for one in found)
        return found[:fits], more or fits < len(found)

    async def _parts(
        self,
        topic: Topic,
        message_filter: MessageFilter | None,
        after: tuple[Queue, int] | None = None,
        newest: int | None = None,
        bytes_max: int = 0,
    ) -> AsyncIterator[tuple[Queue, SelectedRows]]:
        ranges = await self.reader.all_queue_ranges(topic, f"it may have dead letters of {topic.name}")
        for queue, range_ in sorted(ranges.items()):
            begin = range_.begin_offset if newest is None else max(range_.begin_offset, range_.end_offset - newest)
            if after is not None and queue[1:] <= after[0][1:]:
                if queue[1:] < after[0][1:]:
                    continue
                begin = max(begin, after[1] + 1)
            if begin < range_.end_offset:
                parts = self.reader.fetch(
                    queue, begin, range_.end_offset, follow=False, bytes_max=bytes_max, message_filter=message_filter
                )
                async for _, part in parts:
                    if part.batch is not None:
                        yield queue, part

    async def _target_topic_id(self, replay: ReplayOptions, dead_letter_topic: Topic, enode: str) -> int:
        """The id of the target topic, which must have a queue on this enode, because one write stores copy and mark."""
        if not replay.to_topic:
            if replay.dry_run:
                return self.group_topics.topic_id(retry_topic(replay.group), enode) or dead_letter_topic.topic_id
            return await self.group_topics.ensure(retry_topic(replay.group), enode)
        target = await self.watch.topic(replay.to_topic)
        if target.placement(enode) is None:
            raise Conflict(
                f"topic {target.name} has no queues on enode {enode}, which has dead letters; add queues with "
                "AdminService/UpdateTopic",
                field="to_topic",
            )
        return target.topic_id

    async def _not_replayed(self, topic: Topic, group: str, queue: Queue, offsets: list[int]) -> set[int]:
        """The `offsets` of dead letters that were not replayed."""
        if not offsets:
            return set()
        request = ReplayRequest(topic.topic_id, group, ranges_of(offsets), topic.topic_id, dry_run=True)
        found = await self.links.to(queue.enode).replay(request)
        return {offset for first, count in found for offset in range(first, first + count)}

    async def _limit_to_remaining(
        self, topic: Topic, replay: ReplayOptions, queue: Queue, offsets: list[int], progress: ReplayState
    ) -> list[int]:
        """The first dead letters of `offsets` that were not replayed, at most as many as the replay may still send."""
        pending = await self._not_replayed(topic, replay.group, queue, offsets)
        remaining = sorted(pending)[: replay.messages_max - progress.replayed_messages]
        progress.scanned_messages += len(offsets) - len(pending)
        progress.skipped_messages += len(offsets) - len(pending)
        return remaining


async def _chunks(
    parts: AsyncIterator[tuple[Queue, SelectedRows]],
) -> AsyncIterator[tuple[Queue, list[SelectedRows]]]:
    """Parts of the same queue together. A dead letter is usually a part of its own, and each chunk costs a call."""
    held: list[SelectedRows] = []
    held_queue: Queue | None = None
    rows = size = 0
    async for queue, part in parts:
        if held_queue is not None and (queue != held_queue or rows >= CHUNK_ROWS or size >= CHUNK_BYTES):
            yield held_queue, held
            held, rows, size = [], 0, 0
        held_queue = queue
        held.append(part)
        rows += part.messages
        size += len(part.batch.records) if part.batch is not None else 0
    if held_queue is not None:
        yield held_queue, held


PARK_LEVEL = -1
INTERRUPTED = "the session of each consumer ended while it had this message"
INTERRUPTIONS_MIN = 2
"""No message is parked after a single interruption, which may have another cause."""
_log = get_logger("dead letters")


@dataclass(frozen=True, slots=True)
class NackMessagesRequest:
    """A request to nack messages by offset."""

    group: str
    queue: Queue
    offsets: Sequence[int]
    delay_level: int
    """0 = the delay follows from the number of deliveries, -1 = park."""
    attempts_max: int
    """0 = the setting of the group."""
    consumer: str = ""
    error: str = ""
    counts: bool = True
    """Whether this delivery counts as an attempt."""
    delay_ms: int | None = None
    """The delay, instead of a level."""
    attempt_in_order: int = 0
    """In ordered consumption: the number of attempts by the consumer, which retries on its own. 0 = unordered."""


@dataclass(frozen=True, slots=True)
class NackMessagesResult:
    """The result of nacking messages by offset."""

    message_ids: Sequence[str] = ()
    """The ids of the copies."""
    delay_ms: int = 0
    """In ordered consumption: the delay before the consumer retries."""
    parked: bool = False
    """In ordered consumption: whether the group has finished the messages."""


@dataclass(slots=True, eq=False)
class NackProcessor:
    """Nacks messages by offset: enodes copy them to the group's retry topic or dead-letter topic."""

    watch: DirectoryWatch
    links: EnodeLinks
    settings: GroupSettings
    group_topics: GroupTopics

    async def nack(self, request: NackMessagesRequest) -> NackMessagesResult:
        """Nack messages; returns when their copies are durable.

        In ordered consumption, messages are copied only after their last attempt. Errors: Invalid, NotFound,
        Unavailable.
        """
        topic = await self.watch.topic(request.queue.topic)
        check_readable(topic, request.queue)
        park = request.delay_level == PARK_LEVEL
        settings = self.settings.get(request.group)
        delays_ms = settings.retry.delays_ms
        if request.delay_ms is not None:
            delays_ms = (request.delay_ms,)
        elif request.delay_level > 0:
            delays_ms = (delay_ms_of_level(request.delay_level),)
        attempts_max = request.attempts_max or settings.attempts_max
        if request.attempt_in_order:
            verdict = FailureRule(attempts_max, delays_ms).after_attempt(
                request.attempt_in_order, counts=request.counts, park=park
            )
            if isinstance(verdict, Retry):
                await self._record_failure(request, topic, verdict)
                return NackMessagesResult(delay_ms=verdict.delay_ms)
        enode = request.queue.enode
        retry_topic_id = await self.group_topics.ensure(retry_topic(request.group), enode)
        dead_letter_topic_id = await self.group_topics.ensure(dead_letter_topic(request.group), enode)
        rules = PopRules(attempts_max=attempts_max, dead_letter_topic_id=dead_letter_topic_id)
        retry_request = RetryRequest(
            request.group,
            topic.topic_id,
            request.queue.queue_id,
            tuple(request.offsets),
            retry_topic_id,
            delays_ms,
            park,
            rules,
            request.counts,
            request.attempt_in_order,
            request.consumer,
            request.error,
        )
        return NackMessagesResult(
            await self.links.to(enode).retry_messages(retry_request), parked=bool(request.attempt_in_order)
        )

    async def park_interrupted(self, group: str, queue: Queue, interruption: Interruption) -> bool:
        """Park a message that has used its attempts by ending its consumers; returns whether it is parked.

        Errors: retriable ones. After another error, such as a message that was deleted, it is not parked.
        """
        is_last = FailureRule(self.settings.get(group).attempts_max).is_last(interruption.attempts)
        if not is_last or interruption.attempts < INTERRUPTIONS_MIN:
            return False
        request = NackMessagesRequest(
            group,
            queue,
            [interruption.offset],
            delay_level=0,
            attempts_max=0,
            error=INTERRUPTED,
            attempt_in_order=interruption.attempts,
        )
        try:
            result = await self.nack(request)
        except OrtooError as error:
            if error.retriable:
                raise
            _log.emit(log_events.PARK_FAILED, group=group, queue=str(queue), reason=str(error))
            return False
        if result.parked:
            _log.emit(
                log_events.INTERRUPTING_MESSAGE_PARKED,
                group=group,
                queue=str(queue),
                offset=interruption.offset,
                attempts=interruption.attempts,
            )
        return result.parked

    async def _record_failure(self, request: NackMessagesRequest, topic: Topic, verdict: Retry) -> None:
        """Let operators see the message for which a queue waits. The consumer retries it in any case."""
        with contextlib.suppress(OrtooError):
            await self.links.to(request.queue.enode).record_failed_attempt(
                request.group,
                topic.topic_id,
                request.queue.queue_id,
                min(request.offsets),
                attempt=verdict.attempt,
                delay_ms=verdict.delay_ms,
                consumer=request.consumer,
                error=request.error,
            )
