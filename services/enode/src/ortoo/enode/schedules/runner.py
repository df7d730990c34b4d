"""Sends the messages of schedules: one message for each occurrence.

A message and the advance of its schedule are one frame of the log. So a crash or a new leader can neither lose an
occurrence nor send it twice. Times are those of the leader's wall clock. When the clock is set forward, occurrences
become due at once. When the clock is set back, occurrences that were sent already are not sent again.
"""

import asyncio
import heapq
from collections.abc import Sequence
from dataclasses import replace

from ortoo.common.errors import AlreadyExists, Conflict, Invalid, NotFound, OrtooError
from ortoo.common.grpc.enum_values import known_or
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background, pause
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import record_contained
from ortoo.common.records.batch import encode, split_messages
from ortoo.common.records.message import Message
from ortoo.common.records.text_rules import COPY_LIMITS
from ortoo.common.records.view import RecordBatchView
from ortoo.enode import log_events
from ortoo.enode.changes.schedules import CatchUp, ScheduleAdvanced, ScheduleDeleted, SchedulePut
from ortoo.enode.log.settings import FlushMode
from ortoo.enode.schedules.occurrences import check_rule, due_occurrences, next_occurrence, rule_of
from ortoo.enode.store.store import Store

TOPIC_MAX = 1_000
"""The number of schedules of a topic on an enode."""
SCHEDULES_MAX = 10_000
"""The number of schedules that an enode keeps."""
RECORDS_BYTES_MAX = 64 << 10
"""The size of a schedule's message with its properties."""
TOTAL_BYTES_MAX = 16 << 20
"""The size of the messages of all schedules of an enode, which every checkpoint contains."""
AT_ONCE = 32
"""The number of schedules whose messages are stored with about one flush."""
IN_A_TURN = 4
"""The number of schedules that are examined before other tasks run. With many late occurrences, each takes 10 ms."""
IDLE_S = 60.0
"""The longest sleep while there is no schedule; the first one ends it."""
POLL_S = 0.5
"""How often the wall clock is read."""
RETRY_MS = 1_000
REPORT_INTERVAL_S = 1.0
"""At most one line about failed schedules is logged in this time."""
STALE_MAX = 1_000
SCHEDULE_NAME, SCHEDULED_AT_MS = "SCHEDULE_NAME", "SCHEDULED_AT_MS"
"""The properties of a message with the name of its schedule and with its occurrence."""
_Key = tuple[int, str]
_log = get_logger("schedules")


class ScheduleRunner:
    """The schedules of one enode."""

    def __init__(self, store: Store, background: Background, *, clock: Clock) -> None:
        """Send into `store`; the caller must spawn `run`."""
        self._store = store
        self._schedules = store.schedules
        self._background = background
        self._clock = clock
        self._planned: dict[_Key, int] = {}
        """(topic id, name) to the time at which the schedule is examined next."""
        self._heap: list[tuple[int, _Key]] = []
        self._changing = asyncio.Lock()
        """Held while messages are sent or a schedule changes, so that each decision sees the previous one's result."""
        self._wake = asyncio.Event()
        self._next_report_s, self._unreported = 0.0, 0

    async def create(self, requested: SchedulePut, *, replaces: bool) -> SchedulePut:
        """Store a schedule that begins now; returns it. Repeating the same definition has no effect.

        With `replaces`, another definition replaces the existing one. A schedule whose rule stays the same continues.
        Errors: Invalid, AlreadyExists (another definition), NotFound (the topic), Conflict (too many schedules).
        """
        return await self._background.run_shielded("schedule", self._create(requested, replaces=replaces))

    async def _create(self, requested: SchedulePut, *, replaces: bool) -> SchedulePut:
        async with self._changing:
            now_ms = self._clock.now_ms()
            new = replace(requested, started_at_ms=now_ms, settled_ms=now_ms)
            check_rule(new)
            if (size := len(new.records)) > RECORDS_BYTES_MAX:
                raise Invalid(f"{size} bytes; a schedule's message may have {RECORDS_BYTES_MAX}", field="message")
            known = self._schedules.get(new.topic_id, new.name)
            if known is not None:
                if _definition(known) == _definition(new):
                    return known
                if not replaces:
                    raise AlreadyExists(
                        f"schedule {new.name} exists with another definition; set `replace` (--replace), or choose "
                        "another name",
                        field="name",
                    )
                settled_ms = max(now_ms, known.settled_ms)  # if the clock was set back, what was sent stays settled
                new = replace(new, sent_count=known.sent_count, suspended=known.suspended, settled_ms=settled_ms)
                if _rule_fields(known) == _rule_fields(new):
                    new = replace(new, started_at_ms=known.started_at_ms, settled_ms=known.settled_ms)
            self._check_room(new, known)
            await self._put(new)
            return new

    async def suspend(self, topic_id: int, name: str, *, suspended: bool) -> None:
        """Suspend or resume a schedule. The occurrences of a suspension are never sent. Errors: NotFound."""

        async def change() -> None:
            async with self._changing:
                known = self._known(topic_id, name)
                if known.suspended != suspended:
                    settled_ms = known.settled_ms if suspended else max(known.settled_ms, self._clock.now_ms())
                    await self._put(replace(known, suspended=suspended, settled_ms=settled_ms))

        await self._background.run_shielded("schedule", change())

    async def delete(self, topic_id: int, name: str) -> None:
        """Delete a schedule; when this returns, it sends nothing more. Errors: NotFound."""

        async def change() -> None:
            async with self._changing:
                self._known(topic_id, name)
                await self._store.change(ScheduleDeleted(topic_id, name))
                self._planned.pop((topic_id, name), None)

        await self._background.run_shielded("schedule", change())

    def select(self, *, topic_id: int = 0, name: str = "", limit: int = 100) -> list[SchedulePut]:
        """Schedules, by topic and name; topic 0 matches any topic, and an empty name any name."""
        found = self._schedules.of_topic(topic_id) if topic_id else self._schedules.all()
        return sorted(
            (one for one in found if name in ("", one.name)), key=lambda one: (one.topic_id, one.name)
        )[:limit]  # fmt: skip

    def next_ms(self, schedule: SchedulePut) -> int:
        """The time of the next message, or of the next attempt after a failure; 0 if none is planned."""
        key = (schedule.topic_id, schedule.name)
        if key not in self._planned:
            self._plan(schedule)
        return self._planned.get(key, 0)

    async def run(self) -> None:
        """Send due messages until cancelled. A defect must not end the loop or the process."""
        latest_ms = self._clock.now_ms()
        await self._plan_all()
        while True:
            if (now_ms := self._clock.now_ms()) < latest_ms:  # planned times may have been skipped by a wrong clock
                await self._plan_all()
            latest_ms = now_ms
            async with self._changing:
                self._wake.clear()
                await self._send_due()
            wait_s = min((self._heap[0][0] - self._clock.now_ms()) / 1000, POLL_S) if self._heap else IDLE_S
            await pause(max(wait_s, 0.0), self._wake, self._clock)

    async def _plan_all(self) -> None:
        for number, listed in enumerate(self._schedules.all()):
            if (schedule := self._schedules.get(listed.topic_id, listed.name)) is not None:  # it may have changed
                self._plan(schedule)
            if number % IN_A_TURN == 0:
                await self._clock.sleep(0)

    async def _send_due(self) -> None:
        now_ms, due = self._clock.now_ms(), dict[_Key, None]()
        while self._heap and self._heap[0][0] <= now_ms and len(due) < AT_ONCE:
            planned_ms, key = heapq.heappop(self._heap)
            if self._planned.get(key) == planned_ms:
                due[key] = None
        sends = (self._send_in_turn(number // IN_A_TURN, key, now_ms) for number, key in enumerate(due))
        failures = await asyncio.gather(*sends, return_exceptions=True)
        for key, failure in zip(due, failures, strict=True):
            if isinstance(failure, OrtooError):
                self._report(key[1], failure)
            elif isinstance(failure, Exception):
                record_contained("schedules", failure, schedule=key[1])
            elif failure is not None:
                raise failure
            if failure is not None:
                self._plan_at(key, now_ms + RETRY_MS)

    def _report(self, name: str, failure: OrtooError) -> None:
        """Log a failure, unless one was logged a moment ago: on a full disk, all schedules fail each second."""
        self._unreported += 1
        if (now_s := self._clock.monotonic_s()) >= self._next_report_s:
            _log.emit(
                log_events.SCHEDULE_SEND_FAILED_RETRYING,
                schedule=name,
                reason=str(failure),
                failures=self._unreported,
            )
            self._next_report_s, self._unreported = now_s + REPORT_INTERVAL_S, 0

    async def _send_in_turn(self, turns: int, key: _Key, now_ms: int) -> None:
        for _ in range(turns):
            await self._clock.sleep(0)
        await self._send(*key, now_ms)

    async def _send(self, topic_id: int, name: str, now_ms: int) -> None:
        """Send the messages of a schedule that are due, and plan the next ones. Errors: those of `Store.append`."""
        schedule = self._schedules.get(topic_id, name)
        if schedule is None or schedule.suspended:
            self._planned.pop((topic_id, name), None)
            return
        due = due_occurrences(rule_of(schedule), schedule.settled_ms, now_ms, _catch_up(schedule))
        if due:
            if (topic := self._store.topic(topic_id)) is None:
                raise NotFound("the topic of the schedule is being deleted", field="topic_id")
            messages = next(split_messages(messages_of(schedule, due)))
            sent_count = schedule.sent_count + len(messages)
            advanced = ScheduleAdvanced(topic_id, due[len(messages) - 1], sent_count, name)
            batch = encode(messages, now_ms=now_ms, limits=COPY_LIMITS)
            queue_id = schedule.queue_id % topic.queue_count
            # The schedule must have advanced before it is planned again, also if `flush_mode` is async.
            await self._store.append(topic_id, queue_id, batch, flush_mode=FlushMode.SYNC, consumes=(advanced,))
            schedule = self._schedules.get(topic_id, name)
        if schedule is not None:
            self._plan(schedule)

    async def _put(self, schedule: SchedulePut) -> None:
        """Store a schedule. Errors: those of `Engine.store`, NotFound (the topic was deleted)."""
        await self._store.engine.store([schedule], lambda: self._store.topic_name(schedule.topic_id))
        self._plan(schedule)

    def _plan(self, schedule: SchedulePut) -> None:
        key, next_ms, now_ms = (schedule.topic_id, schedule.name), None, self._clock.now_ms()
        if not schedule.suspended:
            try:
                next_ms = next_occurrence(rule_of(schedule), schedule.settled_ms, now_ms, _catch_up(schedule))
            except Exception:  # such as a time zone that this machine does not have: `_send` reports it and retries
                next_ms = now_ms
        if next_ms is None:
            self._planned.pop(key, None)
        else:
            self._plan_at(key, next_ms)

    def _plan_at(self, key: _Key, time_ms: int) -> None:
        self._planned[key] = time_ms
        heapq.heappush(self._heap, (time_ms, key))
        if len(self._heap) > 2 * len(self._planned) + STALE_MAX:
            self._heap = [(planned_ms, one) for one, planned_ms in self._planned.items()]
            heapq.heapify(self._heap)
        self._wake.set()

    def _known(self, topic_id: int, name: str) -> SchedulePut:
        known = self._schedules.get(topic_id, name)
        if known is None:
            raise NotFound(f"the topic has no schedule {name!r}; list its schedules", field="name")
        return known

    def _check_room(self, new: SchedulePut, known: SchedulePut | None) -> None:
        """Refuse a schedule that is too much for its topic or this enode. Errors: Conflict."""
        others = [one for one in self._schedules.all() if one is not known]
        in_topic = sum(one.topic_id == new.topic_id for one in others)
        size = sum(len(one.records) for one in others) + len(new.records)
        for count, maximum, what in (
            (in_topic + 1, TOPIC_MAX, "schedules of the topic"),
            (len(others) + 1, SCHEDULES_MAX, "schedules"),
            (size, TOTAL_BYTES_MAX, "bytes in messages of schedules"),
        ):
            if count > maximum:
                raise Conflict(f"{what}: an enode keeps {maximum}; delete schedules that are no longer needed")


def messages_of(schedule: SchedulePut, occurrences: Sequence[int]) -> list[Message]:
    """The messages of a schedule for these occurrences. The id of a message is its schedule's name and occurrence."""
    (template,) = RecordBatchView(schedule.records)
    return [
        template.replace(
            message_id=f"{schedule.name}@{due_ms}",
            born_at_ms=None,
            properties={**template.properties, SCHEDULE_NAME: schedule.name, SCHEDULED_AT_MS: str(due_ms)},
        )
        for due_ms in occurrences
    ]


def _catch_up(schedule: SchedulePut) -> CatchUp:
    return known_or(CatchUp, schedule.catch_up, CatchUp.LAST)


def _rule_fields(schedule: SchedulePut) -> tuple[object, ...]:
    return schedule.cron, schedule.timezone, schedule.period_ms


def _definition(schedule: SchedulePut) -> tuple[object, ...]:
    return *_rule_fields(schedule), schedule.catch_up, schedule.records
