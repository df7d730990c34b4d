"""The pop lines of all groups, made from the folded state at their first use, and the waits for their messages."""

import asyncio
from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Sequence

from ortoo.common.errors import Unavailable
from ortoo.common.groups.pop import AwaitRequest, PopRules
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.enode import log_events
from ortoo.enode.changes.groups import GroupDropped, GroupMode
from ortoo.enode.changes.kinds import OffsetsCommitted, QueueTrimmed, StateChange, TopicDeleted
from ortoo.enode.changes.pops import OPENING_SHIFT, PopIntervals, finished_changes
from ortoo.enode.pops.attempts import PopAttempts
from ortoo.enode.pops.line import PopLine
from ortoo.enode.reading.waiting import Waiters, wake, wake_first
from ortoo.enode.state.interval_map import IntervalMap
from ortoo.enode.state.tables.pops import FinishReason, PopQueue
from ortoo.enode.store.store import Store

WAITERS_MAX = 100_000
"""The number of pops that may wait at once in one enode."""
CONSUMERS_REMEMBERED = 1_000
"""The number of leases whose consumer a group remembers, for operators."""
HANDOVER_S = 0.05
"""The time in which a notified snode pops. If messages remain, the next waiting snode is then notified as well."""
_log = get_logger("pops")


class GroupLine(PopLine):
    """The pop line of one queue in a group, with the group's lines and the queue id."""

    def __init__(self, group: "GroupLines", queue_id: int, queue: PopQueue, **leases: int) -> None:
        """Continue from the folded `queue`; `leases` are arguments of `PopLine`."""
        super().__init__(queue, now_ms=group.now_ms(), in_order=group.in_order, **leases)
        self.group = group
        self.queue_id = queue_id
        self.place = (group.topic_id, group.name, queue_id)
        """(topic id, group, queue id), the first fields of state changes."""


class GroupLines:
    """The lines of one group in one topic."""

    def __init__(self, store: Store, clock: Clock, topic_id: int, name: str, waiters: Waiters) -> None:
        """Use `PopLines.group` instead; `waiters` is shared by all groups."""
        self.topic_id = topic_id
        self.name = name
        self.in_order = False
        self.attempts = PopAttempts()
        self.blocked = ""
        """The limit for which the last pop found nothing; empty without one."""
        self.consumers: OrderedDict[int, str] = OrderedDict()
        """Lease number to the consumer that got it."""
        self._store = store
        self._clock = clock
        self._waiters = waiters
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._by_attempt: dict[str, list[asyncio.Future[None]]] = {}
        """Waiting pops by attempt id; the empty id for those without one."""
        self._wake_at_s = 0.0
        self._wake_up_timer = 0
        """The deadline of the next planned call of `wake`, at `_wake_at_s`; 0 = none was planned."""
        self._lines: dict[int, GroupLine] = {}
        self._next_queue = 0

    def now_ms(self) -> int:
        """Monotonic milliseconds, for deadlines of leases."""
        return int(self._clock.monotonic_s() * 1000)

    def get_line(self, queue_id: int) -> GroupLine:
        """The line of a queue; it begins at 0 if the group has no offset there."""
        line = self._lines.get(queue_id)
        if line is None:
            line = self._make_line(queue_id, self._stored_queue(queue_id) or PopQueue(0))
        return line

    async def open_line(self, queue_id: int, rules: PopRules) -> GroupLine:
        """The line of a queue for a pop. Its start offset is stored, and messages that retention deleted are finished.

        Errors: NotFound, Overloaded, Unavailable.
        """
        stored = self._store.queue_range(self.topic_id, queue_id)
        line = self._lines.get(queue_id)
        if line is None:
            stored_queue = self._stored_queue(queue_id)
            if stored_queue is None:
                start = stored.end_offset if rules.from_last else stored.begin_offset
                await self._store.engine.store_without_waiting(
                    [PopIntervals(self.topic_id, self.name, queue_id, start, True, ())]
                )
                stored_queue = PopQueue(start)
            line = self._lines.get(queue_id) or self._make_line(queue_id, stored_queue)
        if line.intervals.floor < stored.begin_offset:
            first, count = line.intervals.floor, stored.begin_offset - line.intervals.floor
            _log.emit(log_events.RETENTION_PASSED_GROUP, group=self.name, queue_id=queue_id, up_to=first + count)
            line.drop([(first, count)])
            await self._store.engine.store_without_waiting(
                finished_changes(line.place, FinishReason.LOST, first, first + count)
            )
        return line

    def intervals(self, queue_id: int) -> IntervalMap | None:
        """The finished and held messages of the group in a queue; None if the group never consumed the queue."""
        line = self._lines.get(queue_id)
        if line is not None:
            return line.intervals
        stored_queue = self._stored_queue(queue_id)
        return stored_queue.intervals if stored_queue is not None else None

    def apply_rules(self, rules: PopRules) -> None:
        """Turn ordered delivery on or off in all lines, as `rules` says."""
        if rules.in_order != self.in_order:
            self.in_order = rules.in_order
            for line in self._lines.values():
                line.set_order(rules.in_order)

    def queue_order(self, queue_ids: Sequence[int], rules: PopRules) -> Sequence[int]:
        """The order in which a pop reads queues: round-robin, or, with `rules.by_priority`, the largest id first."""
        if rules.by_priority:
            return sorted(queue_ids, reverse=True)
        self._next_queue += 1
        at = self._next_queue % len(queue_ids) if queue_ids else 0
        return [*queue_ids[at:], *queue_ids[:at]]

    def leased_count(self) -> int:
        """The number of messages that are leased."""
        now_ms = self.now_ms()
        return sum([line.count_leased(now_ms) for line in self._lines.values()])

    def in_flight_reason(self, rules: PopRules) -> str:
        """Why the limit of leased messages allows no pop; empty if it allows one."""
        if not rules.in_flight_max or (leased := self.leased_count()) < rules.in_flight_max:
            return ""
        return f"{leased} messages are leased, which is the limit in_flight_max"

    async def wait(self, until_s: float, attempt_id: str) -> None:
        """Wait for messages until a monotonic time. Errors: Overloaded when too many pops wait already."""
        self._plan_next_wake_up()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        siblings = self._by_attempt.setdefault(attempt_id, [])
        siblings.append(waiter)
        try:
            await self._waiters.wait_in(self._waiting, until_s, waiter)
        finally:
            siblings.remove(waiter)
            if not siblings:
                self._by_attempt.pop(attempt_id, None)

    def wake_attempt(self, attempt_id: str) -> None:
        """Wake the waiting pops of an attempt, so that they notice a cancellation."""
        for waiter in self._by_attempt.get(attempt_id, ()):
            wake(waiter)

    def wake_one(self) -> None:
        """Wake the first waiting pop, because a message may be deliverable."""
        wake_first(self._waiting)

    def wake_one_after(self, seconds: float) -> None:
        """Wake the first waiting pop at a later time, if a message may be deliverable then."""

        def wake_if_deliverable() -> None:
            if self._waiting and any(self.may_have_messages(line) for line in self._lines.values()):
                self.wake_one()

        self._waiters.wheel.add(self._clock.monotonic_s() + seconds, wake_if_deliverable)

    def may_have_messages(self, line: GroupLine) -> bool:
        """Whether messages of a line may be deliverable now. Errors: NotFound if the topic was deleted."""
        return line.may_have_messages(self.now_ms(), self._end_offset(line))

    def blocked_reason(self, line: GroupLine) -> str:
        """The limit that stops the delivery of a line's new messages; empty without one."""
        return line.blocked_reason(self._end_offset(line))

    def _end_offset(self, line: GroupLine) -> int:
        return self._store.queue_range(self.topic_id, line.queue_id).end_offset

    def plan_wake_up(self) -> None:
        """If a pop waits, plan a wake-up for the next end of a lease or back-off."""
        if self._waiting:
            self._plan_next_wake_up()

    def _plan_next_wake_up(self) -> None:
        due = [at for line in self._lines.values() if (at := line.next_due_ms()) is not None]
        if not due:
            return
        at_s = min(due) / 1000 + 0.001
        wheel = self._waiters.wheel
        if self._wake_up_timer in wheel and self._wake_at_s <= at_s:
            return
        wheel.cancel(self._wake_up_timer)
        self._wake_at_s, self._wake_up_timer = at_s, wheel.add(at_s, self.wake_one)

    def record_lease(self, number: int, consumer: str) -> None:
        """Remember the consumer of a lease."""
        self.consumers[number] = consumer
        if len(self.consumers) > CONSUMERS_REMEMBERED:
            self.consumers.popitem(last=False)

    def reset(self, queue_ids: Collection[int] | None = None) -> None:
        """Drop the lines of `queue_ids`, None = all. The next use makes the lines again from the folded state."""
        for queue_id in list(self._lines) if queue_ids is None else queue_ids:
            self._lines.pop(queue_id, None)
        while self._waiting:
            self.wake_one()

    def trim(self, queue_id: int, begin_offset: int) -> None:
        """Finish the messages of a queue below `begin_offset`, which the state has finished already."""
        line = self._lines.get(queue_id)
        if line is not None and line.intervals.floor < begin_offset:
            line.drop([(line.intervals.floor, begin_offset - line.intervals.floor)])
            self.wake_one()

    def is_idle(self) -> bool:
        """Whether all state of these lines is also in the folded state."""
        self.attempts.expire_cancelled(self._clock.monotonic_s())
        is_held = any(len(line.intervals) for line in self._lines.values())
        return not self._waiting and self.attempts.is_idle and not is_held

    def _stored_queue(self, queue_id: int) -> PopQueue | None:
        state = self._store.engine.state
        queue = state.pops.get((self.topic_id, self.name, queue_id))
        if queue is None:
            offset = state.offsets.of(self.topic_id, self.name, (queue_id,)).get(queue_id)
            return None if offset is None else PopQueue(offset)
        return queue

    def _make_line(self, queue_id: int, queue: PopQueue) -> GroupLine:
        engine = self._store.engine
        log = engine.catalog.queues.get((self.topic_id, queue_id))
        line = self._lines[queue_id] = GroupLine(
            self,
            queue_id,
            queue,
            opening=engine.appender.store_open,
            wall_ms=self._clock.now_ms(),
            first_number=engine.state.pops.first_lease_number,
            end_at_opening=log.end_at_opening if log is not None else 0,
        )
        return line


class PopLines:
    """The delivery state of all popping groups. The store notifies it of durable changes."""

    def __init__(self, store: Store, clock: Clock, first_number: int = 0) -> None:
        """Begin without groups. Lease numbers begin at `first_number` within an opening of the store."""
        self._store = store
        self._clock = clock
        self._waiters = Waiters(clock, waiters_max=WAITERS_MAX, plural="pops")
        self._topics: defaultdict[int, dict[str, GroupLines]] = defaultdict(dict)
        """Topic id to group name to lines."""
        self._count = first_number
        store.engine.committer.on_stored.append(self.on_messages_stored)
        store.engine.committer.on_applied.append(self.on_change_applied)

    def group(self, topic_id: int, group: str) -> GroupLines:
        """The lines of a group in a topic. Errors: NotFound when this enode does not have the topic."""
        found = self._topics.get(topic_id, {}).get(group)
        if found is None:
            self._store.topic_name(topic_id)
            found = self._topics[topic_id][group] = GroupLines(self._store, self._clock, topic_id, group, self._waiters)
        return found

    def next_number(self) -> int:
        """The number of a new lease, larger than all earlier ones."""
        self._count += 1
        return (self._store.engine.appender.store_open << OPENING_SHIFT) + self._count

    def on_messages_stored(self, topic_ids: Collection[int]) -> None:
        """Wake a waiting pop of each group, because messages of these topics became durable."""
        for topic_id in topic_ids:
            for group in self._topics.get(topic_id, {}).values():
                group.wake_one()

    def on_change_applied(self, change: StateChange) -> None:
        """Drop the lines that a durable state change makes stale."""
        if isinstance(change, OffsetsCommitted):
            group = self._topics.get(change.topic_id, {}).get(change.group)
            if group is not None:
                group.reset([queue_id for queue_id, _ in change.offsets])
        elif isinstance(change, GroupDropped):
            group = self._topics.get(change.topic_id, {}).pop(change.group, None)
            if group is not None:
                group.reset()
        elif isinstance(change, QueueTrimmed):
            for group in self._topics.get(change.topic_id, {}).values():
                group.trim(change.queue_id, change.begin_offset)
        elif isinstance(change, TopicDeleted):
            for group in self._topics.pop(change.topic_id, {}).values():
                group.reset()

    async def forget_idle(self) -> None:
        """Forget the idle groups. The caller calls this once a minute."""
        for groups in self._topics.values():
            for name in [name for name, group in groups.items() if group.is_idle()]:
                del groups[name]

    @property
    def is_closed(self) -> bool:
        """Whether the enode is shutting down, so that no pop may wait."""
        return self._waiters.is_closed

    async def close(self) -> None:
        """Wake all waiting pops, and let no later pop wait."""
        await self._waiters.close()


class MessageWaits:
    """The waits for messages that pops may return, which lease none. A snode has one for all its pops of a group.

    Waiting snodes and waiting pops are woken in the order of their arrival.
    """

    def __init__(self, store: Store, lines: PopLines, clock: Clock) -> None:
        """Wait for messages of `lines`."""
        self._store = store
        self._lines = lines
        self._clock = clock

    async def wait(self, request: AwaitRequest) -> bool:
        """Wait up to `request.wait_ms` until a pop may return messages; returns whether it may.

        Errors: NotFound, Conflict (another delivery mode), Overloaded, Unavailable.
        """
        deadline_s = self._clock.monotonic_s() + request.wait_ms / 1000
        mode = GroupMode.POP_IN_ORDER if request.rules.in_order else GroupMode.POP
        is_woken = False
        while True:
            # The mode, or the group itself, may have changed during the wait.
            await self._store.modes.use(request.topic_id, request.group, mode)
            group = self._lines.group(request.topic_id, request.group)
            group.apply_rules(request.rules)
            for queue_id in request.queue_ids:
                await group.open_line(queue_id, request.rules)
            if self._lines.group(request.topic_id, request.group) is not group:
                continue  # it was deleted meanwhile
            # From here to the registration in `GroupLines.wait` nothing else runs, so that no message is missed.
            if self._may_pop(group, request):
                if is_woken:
                    # The wake-up was for one waiter, and the snode may have no consumer any more.
                    group.wake_one_after(HANDOVER_S)
                return True
            if self._lines.is_closed:
                raise Unavailable("this enode is stopping, or it no longer leads; retry", retry_after_ms=100)
            if self._clock.monotonic_s() >= deadline_s:
                return False
            await group.wait(deadline_s, "")
            is_woken = True

    def _may_pop(self, group: GroupLines, request: AwaitRequest) -> bool:
        """Whether a pop may return messages. Otherwise the limit that blocks it, if any, is noted in the group."""
        lines = [group.get_line(queue_id) for queue_id in request.queue_ids]
        has_messages = any(group.may_have_messages(line) for line in lines)
        blocked = group.in_flight_reason(request.rules)
        if has_messages and not blocked:
            return True
        group.blocked = blocked or next((why for line in lines if (why := group.blocked_reason(line))), "")
        return False
