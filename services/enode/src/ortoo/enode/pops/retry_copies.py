"""Redelivery by copies: messages that a group nacks by offset, and dead letters that are replayed."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ortoo.common.errors import Conflict, NotFound, OutOfRange, Overloaded
from ortoo.common.groups.failure_rule import FailureRule, Park, Retry
from ortoo.common.groups.group_topics import REPLAY_PREFIX, group_of_topic
from ortoo.common.groups.pop import ReplayRequest, RetryRequest, merge_ranges
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.records.message import Message
from ortoo.common.records.text_rules import RECONSUME_TIMES, whole_number
from ortoo.enode.appends.router import AppendRouter
from ortoo.enode.changes.groups import RetryCopiesStored
from ortoo.enode.changes.pops import PopFinished
from ortoo.enode.pops.copies import Origin, batch_copies, message_with_id, origin_of
from ortoo.enode.pops.interruptions import Interruptions
from ortoo.enode.pops.parking import ParkedMessage, make_parked_copies
from ortoo.enode.pops.reading import BatchCache, CachedBatch
from ortoo.enode.state.interval_map import IntervalMap
from ortoo.enode.state.tables.pops import FinishReason
from ortoo.enode.state.tables.sent_back import RetryMark, RetryPlace
from ortoo.enode.store.batch_write import BatchWrite
from ortoo.enode.store.store import Store

MARKS_MAX = 10_000
"""The number of messages of a queue that a group may nack without committing an offset behind them."""
ORDERED_FAILURES_MAX = 10_000
"""The number of queues whose last failed attempt in order is kept in memory."""
FAILURE_WINDOW_MS = 3_600_000
GROUPS_REMEMBERED = 1_000
"""The number of groups whose last failed attempt is kept in memory."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The last failed attempt of a group that commits offsets."""

    attempt: int = 0
    """The largest number of a failed attempt, as long as attempts fail more often than every FAILURE_WINDOW_MS."""
    consumer: str = ""
    error: str = ""
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class OrderedFailure:
    """A failed attempt of a consumer that keeps the order and retries on its own: the rest of the queue waits."""

    offset: int
    attempt: int
    retry_at_ms: int
    consumer: str
    error: str


@dataclass(frozen=True, slots=True)
class _FailedMessage:
    """A message that a group nacked."""

    batch: CachedBatch
    message: Message
    verdict: Retry | Park
    mark: RetryMark


class RetryCopies:
    """Makes retry copies, dead letters and replayed copies within one store."""

    def __init__(
        self, store: Store, opened: BatchCache, appends: AppendRouter, clock: Clock, background: Background
    ) -> None:
        """Read from `store` through `opened`; write through `appends`, which delays copies with a back-off."""
        self.parked_totals: Counter[tuple[int, str]] = Counter()
        """(topic id, group) to the number of dead letters."""
        self.failures: OrderedDict[str, FailedAttempt] = OrderedDict()
        """The last failed attempt of each group since the store was opened."""
        self.ordered_failures: OrderedDict[RetryPlace, OrderedFailure] = OrderedDict()
        """The last failed attempt in each queue that waits for one message."""
        self.interruptions = Interruptions()
        """The deliveries that ended with the session of their consumer."""
        self._background = background
        self._store = store
        self._appends = appends
        self._clock = clock
        self._batches = opened
        self._replaying = asyncio.Lock()
        self._in_flight: dict[tuple[RetryPlace, RetryMark], asyncio.Future[None]] = {}
        """Copies that are not durable yet."""

    async def retry(self, request: RetryRequest) -> list[str]:
        """Store a retry copy or a dead letter of each nacked message; returns the message ids when all are durable.

        A retry copy is due after its back-off. A refused request stores no copy. Copies and their marks are one write.
        Therefore a repeated request stores no second copy until the group's offset passes the message.
        Errors: NotFound, OutOfRange, Overloaded, Unavailable, Invalid (the copies together are too large). With
        `unfinished_only`, Conflict if the group has finished one of the messages.
        """
        place = (request.topic_id, request.group, request.queue_id)
        failed = {offset: await self._failed_message(request, offset) for offset in request.offsets}
        while copying := [
            self._in_flight[key] for one in failed.values() if (key := (place, one.mark)) in self._in_flight
        ]:
            await asyncio.wait(copying)
        sent_back = self._store.engine.state.sent_back
        new = [one for one in failed.values() if not sent_back.has(place, one.mark)]
        if new and sent_back.count(place) + len(new) > MARKS_MAX:
            raise Overloaded(
                f"group {request.group} nacked {MARKS_MAX} messages of queue {request.queue_id} and committed no "
                "offset after them: commit an offset",
                field="offsets",
            )
        if request.counts and failed:
            self._record_failure(request, [one.verdict.attempt for one in failed.values()])
        if new:
            done = asyncio.get_running_loop().create_future()
            self._in_flight.update(((place, one.mark), done) for one in new)
            # It continues when the caller is cancelled, so that a repeated request finds its result.
            await self._background.run_shielded("send back", self._store_copies(request, new, done))
        return [failed[offset].message.message_id or "" for offset in request.offsets]

    def _record_failure(self, request: RetryRequest, attempts: Sequence[int]) -> None:
        now_ms, last = self._clock.now_ms(), self.failures.get(request.group)
        if last is not None and now_ms - last.at_ms < FAILURE_WINDOW_MS:
            attempts = (*attempts, last.attempt)
        self.failures[request.group] = FailedAttempt(max(attempts), request.consumer, request.error, now_ms)
        self.failures.move_to_end(request.group)
        if len(self.failures) > GROUPS_REMEMBERED:
            self.failures.popitem(last=False)

    def record_ordered_failure(self, place: RetryPlace, failure: OrderedFailure) -> None:
        """Remember a failed attempt of a consumer that keeps the order, until the group's offset passes the message."""
        self.ordered_failures[place] = failure
        self.ordered_failures.move_to_end(place)
        if len(self.ordered_failures) > ORDERED_FAILURES_MAX:
            self.ordered_failures.popitem(last=False)

    def ordered_failure(self, place: RetryPlace) -> OrderedFailure | None:
        """The message that a queue of a group waits for; None if its last attempt did not fail."""
        failure = self.ordered_failures.get(place)
        if failure is None:
            return None
        committed = self._store.engine.state.offsets.of(place[0], place[1], (place[2],)).get(place[2], 0)
        if failure.offset < committed:
            del self.ordered_failures[place]
            return None
        return failure

    async def _failed_message(self, request: RetryRequest, offset: int) -> _FailedMessage:
        opened = await self._batches.get(request.topic_id, request.queue_id, offset)
        message = message_with_id(opened, self._store, (request.topic_id, request.group, request.queue_id), offset)
        # In another topic the property may come from a forwarded message, which has other consumers' attempts.
        times = message.properties.get(RECONSUME_TIMES, "") if request.topic_id == request.retry_topic_id else ""
        attempt = max(request.attempt, (whole_number(times) or 0) + 1)
        rule = FailureRule(request.rules.attempts_max, request.delays_ms)
        verdict = rule.after_attempt(attempt, counts=request.counts, park=request.park)
        mark = (offset, int(isinstance(verdict, Park)))
        return _FailedMessage(opened, message, verdict, mark)

    async def _store_copies(
        self, request: RetryRequest, failed: Sequence[_FailedMessage], done: asyncio.Future[None]
    ) -> None:
        place = (request.topic_id, request.group, request.queue_id)
        try:
            writes = [*self._park_writes(request, failed), *self._retry_writes(request, failed)]
            await self._store.append_all(writes, partial(self._check_unfinished, request))
            if parked := sum(one.mark[1] for one in failed):
                self.parked_totals[request.topic_id, request.group] += parked
        finally:
            for one in failed:
                self._in_flight.pop((place, one.mark))
            done.set_result(None)

    def _check_unfinished(self, request: RetryRequest) -> None:
        """Refuse messages that the group has finished since the caller saw them. Errors: Conflict."""
        committed = self._store.offsets.newest(request.topic_id, request.group, request.queue_id)
        if request.unfinished_only and (finished := [one for one in request.offsets if one < committed]):
            raise Conflict(
                f"group {request.group} has finished the message at offset {min(finished)} meanwhile, and continues at "
                f"offset {committed}; look at its messages again",
                field="offsets",
            )

    def _retry_writes(self, request: RetryRequest, failed: Sequence[_FailedMessage]) -> Iterator[BatchWrite]:
        """The batches of copies for the retry topic: copies due at once, and delayed copies."""
        now_ms = self._clock.now_ms()
        by_delay: dict[bool, list[tuple[RetryMark, Message]]] = {}
        for one in failed:
            if isinstance(one.verdict, Retry):
                copy, delay_ms = self._make_retry_copy(request, one, one.verdict.attempt), one.verdict.delay_ms
                if delay_ms > 0:
                    copy = copy.replace(deliver_at_ms=now_ms + delay_ms)
                by_delay.setdefault(delay_ms > 0, []).append((one.mark, copy))
        for is_delayed, copies in by_delay.items():
            for batch, marks in batch_copies(copies, now_ms):
                marked = RetryCopiesStored(request.topic_id, request.group, request.queue_id, tuple(marks))
                if is_delayed:
                    yield self._appends.delays.make_write(
                        request.retry_topic_id, 0, batch, lambda *_, one=marked: (one,)
                    )
                else:
                    yield BatchWrite(request.retry_topic_id, 0, batch, (marked,))

    def _park_writes(self, request: RetryRequest, failed: Sequence[_FailedMessage]) -> Iterator[BatchWrite]:
        """The batches of copies for the dead-letter topic."""
        place = (request.topic_id, request.group, request.queue_id)
        for one in failed:
            if isinstance(one.verdict, Park):
                verdict = one.verdict
                letter = ParkedMessage(one.mark[0], verdict.attempt, verdict.reason, request.consumer, request.error)
                for batch, _ in make_parked_copies(one.batch, self._store, place, [letter], self._clock.now_ms()):
                    yield BatchWrite(
                        request.rules.dead_letter_topic_id, 0, batch, (RetryCopiesStored(*place, (one.mark,)),)
                    )

    async def replay(self, request: ReplayRequest) -> list[tuple[int, int]]:
        """Replay dead letters, each once: all copies and their marks are one write.

        Returns the ranges that this call replayed. With `dry_run`, nothing is stored, and the result has the
        ranges that the call would replay.
        Errors: NotFound, Overloaded, Unavailable, Invalid (the copies together are too large).
        """
        name = self._store.topic_name(request.target_topic_id)
        if self._store.queue_range(request.target_topic_id, 0).end_offset < 0:
            raise NotFound(f"topic {name} has no queue here", field="to_topic")
        async with self._replaying:
            intervals = self._replayed_intervals(request)
            unsent = [
                (piece.first, piece.end - piece.first)
                for first, count in request.ranges
                for piece in intervals.unfinished(first, first + count)
            ]
            if not request.dry_run:
                writes = [
                    one for first, count in unsent async for one in self._replay_writes(request, first, first + count)
                ]
                await self._store.append_all(writes)
        return unsent

    async def _replay_writes(self, request: ReplayRequest, first: int, end: int) -> AsyncIterator[BatchWrite]:
        """The batches of one range of dead letters."""
        keeps_origin = group_of_topic(self._store.topic_name(request.target_topic_id)) is not None
        at = first
        while at < end:
            try:
                opened = await self._batches.get(request.dead_letter_topic_id, 0, at)
            except OutOfRange as error:
                at = max(at + 1, error.begin_offset)  # retention took it
                continue
            stop = min(end, opened.end_offset)
            by_queue: dict[int, list[tuple[int, Message]]] = {}
            for offset in range(at, stop):
                copy = _make_replay_copy(opened.view.message(offset - opened.first_offset), keeps_origin=keeps_origin)
                by_queue.setdefault(self._target_queue(request.target_topic_id, copy, offset), []).append(
                    (offset, copy)
                )
            place = (request.dead_letter_topic_id, REPLAY_PREFIX + request.group, 0)
            for queue_id, letters in by_queue.items():
                for batch, offsets in batch_copies(letters, self._clock.now_ms()):
                    sent = tuple(merge_ranges((offset, 1) for offset in offsets))
                    marked = PopFinished(*place, FinishReason.REPLAYED, sent)
                    yield BatchWrite(request.target_topic_id, queue_id, batch, (marked,))
            at = stop

    def _replayed_intervals(self, request: ReplayRequest) -> IntervalMap:
        stored_queue = self._store.engine.state.pops.get(
            (request.dead_letter_topic_id, REPLAY_PREFIX + request.group, 0)
        )
        return stored_queue.intervals if stored_queue is not None else IntervalMap(0)

    def _target_queue(self, topic_id: int, message: Message, offset: int) -> int:
        count = len(self._store.describe_queues(topic_id))
        group = message.message_group
        return (sum(group.encode()) if group else offset) % count

    def _make_retry_copy(self, request: RetryRequest, failed: _FailedMessage, attempts: int) -> Message:
        message, place = failed.message, (request.topic_id, request.group, request.queue_id)
        origin = origin_of(message, failed.batch, self._store, place, failed.mark[0])
        properties = {**message.properties, **origin.properties(), RECONSUME_TIMES: str(attempts)}
        return message.replace(properties=properties, deliver_at_ms=None, priority=None)


def _make_replay_copy(letter: Message, *, keeps_origin: bool) -> Message:
    """The original message; with `keeps_origin`, for a retry topic, it has the properties of its origin."""
    message = letter.without_system_properties()
    if not keeps_origin:
        return message
    return message.replace(properties={**message.properties, **Origin.of_dead_letter(letter).properties()})
