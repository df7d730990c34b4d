"""Redelivery by copies: messages that a group nacks by offset, and dead letters that are replayed."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from ortoo.common.errors import NotFound, OutOfRange, Overloaded
from ortoo.common.groups.failure_rule import Again, FailureRule, Park
from ortoo.common.groups.pop import ReplayWish, SendBackWish, merged
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.records.message import Message
from ortoo.common.records.text_rules import whole_number
from ortoo.enode.changes.groups import SentBack
from ortoo.enode.changes.pops import PopFinished
from ortoo.enode.appends.router import Intake
from ortoo.enode.pops.copies import Origin, identified, in_batches, origin_of
from ortoo.enode.pops.parking import DeadLetter, parked_copies
from ortoo.enode.pops.reading import OpenedBatch, OpenedBatches
from ortoo.enode.state.interval_map import IntervalMap
from ortoo.enode.state.tables.pops import REPLAY_PREFIX, FinishReason
from ortoo.enode.state.tables.sent_back import Mark, Place
from ortoo.enode.store.batch_write import Write
from ortoo.enode.store.store import Store

DELIVERIES = "RECONSUME_TIMES"
MARKS_MAX = 10_000
"""The number of messages of a queue that a group may nack without committing an offset behind them."""


@dataclass(frozen=True, slots=True)
class _GivenBack:
    """A message that a group nacked."""

    opened: OpenedBatch
    message: Message
    verdict: Again | Park
    mark: Mark


class SendingBack:
    """Makes retry copies, dead letters and replayed copies within one store."""

    def __init__(
        self, store: Store, opened: OpenedBatches, intake: Intake, clock: Clock, background: Background
    ) -> None:
        """Read from `store` through `opened`; write through `intake`, which delays copies with a back-off."""
        self.parked_totals: Counter[tuple[int, str]] = Counter()
        """(topic id, group) to the number of dead letters."""
        self._background = background
        self._store = store
        self._intake = intake
        self._clock = clock
        self._opened = opened
        self._replaying = asyncio.Lock()
        self._copying: dict[tuple[Place, Mark], asyncio.Future[None]] = {}
        """Copies that are not durable yet."""

    async def send_back(self, wish: SendBackWish) -> list[str]:
        """Store a retry copy, due after its back-off, or a dead letter of each message; returns the ids when durable.

        All or none: a refused request stores no copy. The copy and the mark that it was made are one write. Therefore a
        repeated request stores nothing for a message that the group has not passed yet.
        Errors: NotFound, OutOfRange, Overloaded, Unavailable, Invalid (the copies together are too large).
        """
        place = (wish.topic_id, wish.group, wish.queue_id)
        given = {offset: await self._given_back(wish, offset) for offset in wish.offsets}
        while copying := [self._copying[key] for one in given.values() if (key := (place, one.mark)) in self._copying]:
            await asyncio.wait(copying)
        sent_back = self._store.engine.state.sent_back
        new = [one for one in given.values() if not sent_back.has(place, one.mark)]
        if new and sent_back.count(place) + len(new) > MARKS_MAX:
            raise Overloaded(
                f"group {wish.group} nacked {MARKS_MAX} messages of queue {wish.queue_id} and committed no offset "
                "behind them: commit one",
                field="offsets",
            )
        if new:
            done = asyncio.get_running_loop().create_future()
            self._copying.update(((place, one.mark), done) for one in new)
            # It continues when the caller is cancelled, so that a repeated request finds its result.
            await self._background.kept("send back", self._copy(wish, new, done))
        return [given[offset].message.message_id or "" for offset in wish.offsets]

    async def _given_back(self, wish: SendBackWish, offset: int) -> _GivenBack:
        opened = await self._opened.holding(wish.topic_id, wish.queue_id, offset)
        message = identified(opened, self._store, (wish.topic_id, wish.group, wish.queue_id), offset)
        # In another topic the property may come from a forwarded message, which has other consumers' attempts.
        times = message.properties.get(DELIVERIES, "") if wish.topic_id == wish.retry_topic_id else ""
        attempt = max(wish.attempt, (whole_number(times) or 0) + 1)
        rule = FailureRule(wish.rules.attempts_max, wish.delays_ms)
        verdict = rule.after(attempt, counts=wish.counts, park=wish.park)
        mark = (offset, int(isinstance(verdict, Park)))
        return _GivenBack(opened, message, verdict, mark)

    async def _copy(self, wish: SendBackWish, given: Sequence[_GivenBack], done: asyncio.Future[None]) -> None:
        place = (wish.topic_id, wish.group, wish.queue_id)
        try:
            writes = [*self._parked(wish, given), *self._sent_again(wish, given)]
            await self._store.append_together(writes)
            if parked := sum(one.mark[1] for one in given):
                self.parked_totals[wish.topic_id, wish.group] += parked
        finally:
            for one in given:
                self._copying.pop((place, one.mark))
            done.set_result(None)

    def _sent_again(self, wish: SendBackWish, given: Sequence[_GivenBack]) -> Iterator[Write]:
        """The batches of copies for the retry topic: those due at once, and delayed ones."""
        now_ms = self._clock.now_ms()
        by_sort: dict[bool, list[tuple[Mark, Message]]] = {}
        for one in given:
            if isinstance(one.verdict, Again):
                copy, delay_ms = self._again(wish, one, one.verdict.attempt), one.verdict.delay_ms
                if delay_ms > 0:
                    copy = copy.replace(deliver_at_ms=now_ms + delay_ms)
                by_sort.setdefault(delay_ms > 0, []).append((one.mark, copy))
        for is_delayed, copies in by_sort.items():
            for batch, marks in in_batches(copies, now_ms):
                marked = SentBack(wish.topic_id, wish.group, wish.queue_id, tuple(marks))
                if is_delayed:
                    yield self._intake.delays.write(wish.retry_topic_id, 0, batch, lambda *_, one=marked: (one,))
                else:
                    yield Write(wish.retry_topic_id, 0, batch, (marked,))

    def _parked(self, wish: SendBackWish, given: Sequence[_GivenBack]) -> Iterator[Write]:
        """The batches of copies for the dead-letter topic."""
        place = (wish.topic_id, wish.group, wish.queue_id)
        for one in given:
            if isinstance(one.verdict, Park):
                verdict = one.verdict
                letter = DeadLetter(one.mark[0], verdict.attempt, verdict.reason, wish.consumer, wish.error)
                for batch, _ in parked_copies(one.opened, self._store, place, [letter], self._clock.now_ms()):
                    yield Write(wish.rules.dead_letter_topic_id, 0, batch, (SentBack(*place, (one.mark,)),))

    async def replay(self, wish: ReplayWish) -> list[tuple[int, int]]:
        """Replay dead letters, each once: the copy and the mark that it was sent are one write. All or none.

        Returns the ranges that were sent now, or with `dry_run` would be. Errors: NotFound, Overloaded, Unavailable,
        Invalid (the copies together are too large).
        """
        name = self._store.topic_name(wish.target_topic_id)
        if self._store.queue_range(wish.target_topic_id, 0).end_offset < 0:
            raise NotFound(f"topic {name} has no queue here", field="to_topic")
        async with self._replaying:
            intervals = self._sent(wish)
            open_ones = [
                (piece.first, piece.end - piece.first)
                for first, count in wish.ranges
                for piece in intervals.unfinished(first, first + count)
            ]
            if not wish.dry_run:
                writes = [one for first, count in open_ones async for one in self._range(wish, first, first + count)]
                await self._store.append_together(writes)
        return open_ones

    async def _range(self, wish: ReplayWish, first: int, end: int) -> AsyncIterator[Write]:
        """The batches of one range of dead letters."""
        at = first
        while at < end:
            try:
                opened = await self._opened.holding(wish.dead_letter_topic_id, 0, at)
            except OutOfRange as error:
                at = max(at + 1, error.begin_offset)  # retention took it
                continue
            stop = min(end, opened.end_offset)
            by_queue: dict[int, list[tuple[int, Message]]] = {}
            for offset in range(at, stop):
                copy = _replayed(opened.view.message(offset - opened.first_offset))
                by_queue.setdefault(self._queue(wish.target_topic_id, copy, offset), []).append((offset, copy))
            place = (wish.dead_letter_topic_id, REPLAY_PREFIX + wish.group, 0)
            for queue_id, letters in by_queue.items():
                for batch, offsets in in_batches(letters, self._clock.now_ms()):
                    sent = tuple(merged((offset, 1) for offset in offsets))
                    marked = PopFinished(*place, FinishReason.REPLAYED, sent)
                    yield Write(wish.target_topic_id, queue_id, batch, (marked,))
            at = stop

    def _sent(self, wish: ReplayWish) -> IntervalMap:
        known = self._store.engine.state.pops.get((wish.dead_letter_topic_id, REPLAY_PREFIX + wish.group, 0))
        return known.intervals if known is not None else IntervalMap(0)

    def _queue(self, topic_id: int, message: Message, offset: int) -> int:
        count = len(self._store.describe_queues(topic_id))
        group = message.message_group
        return (sum(group.encode()) if group else offset) % count

    def _again(self, wish: SendBackWish, given: _GivenBack, attempts: int) -> Message:
        message, place = given.message, (wish.topic_id, wish.group, wish.queue_id)
        origin = origin_of(message, given.opened, self._store, place, given.mark[0])
        properties = {**message.properties, **origin.properties(), DELIVERIES: str(attempts)}
        return message.replace(properties=properties, deliver_at_ms=None, priority=None)


def _replayed(letter: Message) -> Message:
    """The original message, with the properties of its origin."""
    said = letter.properties.items()
    properties = {name: value for name, value in said if not name.startswith("DLQ_") and name != DELIVERIES}
    return letter.replace(properties={**properties, **Origin.of_dead_letter(letter).properties()})
