"""The backlog of each group: the messages of a topic on this enode that the group has not finished, by state."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ortoo.common.groups.group_topics import DEAD_LETTER_PREFIX, REPLAY_PREFIX, group_of_topic
from ortoo.common.process.clock import Clock
from ortoo.enode.index.catalog import QueueLog
from ortoo.enode.observe.retention_losses import LossTotal, RetentionLosses
from ortoo.enode.pops.retry_copies import FailedAttempt, RetryCopies
from ortoo.enode.state.interval_map import IntervalMap, Phase
from ortoo.enode.state.tables.pops import PopQueue
from ortoo.enode.store.store import Store

MAX_AGE_S = 1.0
"""Callers within this time use one computation."""
NO_FAILURE = FailedAttempt()


@dataclass(slots=True)
class GroupBacklog:
    """The unfinished messages of one group in one topic on this enode."""

    topic_id: int
    topic: str
    group: str
    waiting: int = 0
    """Stored messages in no other state. Members of a group that commits offsets may already have some of them."""
    leased: int = 0
    """Messages that consumers of a popping group hold."""
    retrying: int = 0
    """Messages with a failed attempt, which wait for the next one. In a retry topic these are all messages."""
    parked: int = 0
    """In a dead-letter topic: the dead letters that were not replayed."""
    delayed: int = 0
    """The delayed messages of the topic, which are not part of the lag; 0 for a topic that a group owns."""
    by_queue: dict[int, int] = field(default_factory=dict)
    """Queue id to the number of its stored messages that are unfinished."""
    next_retry_at_ms: int = 0
    """When the first of the retrying messages is due; 0 = none is retrying."""
    attempts: int = 0
    """The largest known number of failed attempts of a retrying message."""
    consumer: str = ""
    """The consumer that reported `error`."""
    error: str = ""
    """The last known error of a retrying message."""
    oldest_at_ms: int = 0
    """Store time of the oldest unfinished message; 0 = no message is unfinished."""
    retention_used: float = 0.0
    """The share of its retention that the oldest unfinished message has used; 0 without retention."""
    retention_setting: str = ""
    """The setting of that retention: the age or the size of the log, whichever deletes the message earlier."""
    measured_at_ms: int = 0
    """The time at which `retention_used` was computed."""
    lost: int = 0
    """Messages that retention deleted before the group finished them, as far as this process knows."""
    lost_at_ms: int = 0
    """When retention last deleted such messages; 0 = before this process started."""

    @property
    def unfinished(self) -> int:
        """The lag: the messages that the group still has to process."""
        return self.waiting + self.leased + self.retrying


@dataclass(slots=True)
class Backlogs:
    """Computes backlogs from the state and the catalog of an open store; it reads no disk."""

    store: Store
    clock: Clock
    copies: RetryCopies | None = None
    """The failed attempts of groups that commit offsets; None without them."""
    losses: RetentionLosses = field(init=False)
    _cached: list[GroupBacklog] = field(default_factory=list)
    _cached_until_s: float = 0.0

    def __post_init__(self) -> None:
        """Count the losses to retention from now on."""
        self.losses = RetentionLosses(self.store, self.clock)

    def refresh(self) -> Iterator[None]:
        """Compute the backlogs of all groups, a topic or group at each step, unless `all` has a recent computation."""
        if self.clock.monotonic_s() >= self._cached_until_s:
            found: list[GroupBacklog] = []
            for one in self._iterate(None):
                if one is not None:
                    found.append(one)
                yield
            earlier, self._cached = self._cached, found
            self._cached_until_s = self.clock.monotonic_s() + MAX_AGE_S
            while earlier:  # to free many rows at once takes long
                earlier.pop()
                yield

    def all(self) -> list[GroupBacklog]:
        """The backlogs of all groups as the last `refresh` found them. The caller must not change the backlogs."""
        return list(self._cached)

    def of_group(self, group: str) -> Iterator[GroupBacklog | None]:
        """The current backlogs of one group: one for each topic in which it has an offset, or which it owns.

        Each other topic is a step that gives None. The state may change between two steps.
        """
        return self._iterate(group)

    def _iterate(self, wanted: str | None) -> Iterator[GroupBacklog | None]:
        state = self.store.engine.state
        for copy in state.topics.unsorted():
            yield None
            offsets, owner = state.offsets.of_topic(copy.topic_id), group_of_topic(copy.name)
            groups = list(offsets) if wanted is None else [wanted]
            for group in groups:
                if group in offsets and group != owner and not group.startswith(REPLAY_PREFIX):
                    backlog = GroupBacklog(copy.topic_id, copy.name, group)
                    self._measure(backlog, _starts(offsets[group]))
                    backlog.delayed = self.store.timers.count_of(copy.topic_id) if owner is None else 0
                    yield backlog
            if owner and wanted in (None, owner):
                backlog = GroupBacklog(copy.topic_id, copy.name, owner)
                starts = dict.fromkeys(range(copy.queue_count), 0) | _starts(offsets.get(owner, {}))
                if copy.name.startswith(DEAD_LETTER_PREFIX):
                    backlog.parked = sum(self._parked(backlog, queue_id, offset) for queue_id, offset in starts.items())
                else:
                    self._measure(backlog, starts)
                    self._measure_retries(backlog)
                yield backlog

    def _measure(self, backlog: GroupBacklog, starts: Mapping[int, int]) -> None:
        state, queues = self.store.engine.state, self.store.engine.catalog.queues
        for queue_id, offset in starts.items():
            queue = queues.get((backlog.topic_id, queue_id))
            if queue is not None:
                popped = state.pops.get((backlog.topic_id, backlog.group, queue_id)) or PopQueue(offset)
                before = backlog.unfinished
                self._measure_queue(backlog, queue, popped)
                backlog.by_queue[queue_id] = backlog.unfinished - before
        loss = self.losses.totals.get((backlog.topic_id, backlog.group), LossTotal())
        backlog.lost, backlog.lost_at_ms = loss.messages, loss.at_ms

    def _measure_queue(self, backlog: GroupBacklog, queue: QueueLog, popped: PopQueue) -> None:
        now_ms, first_unfinished, place = self.clock.now_ms(), -1, (backlog.topic_id, backlog.group)
        backlog.measured_at_ms = backlog.measured_at_ms or now_ms
        for piece in popped.intervals.unfinished(queue.begin_offset, queue.end_offset):
            count, state = piece.end - piece.first, piece.state
            first_unfinished = piece.first if first_unfinished < 0 else first_unfinished
            if state is not None and state.phase is Phase.LEASED and state.until_ms > now_ms:
                backlog.leased += count
            elif state is None or not state.attempt:
                backlog.waiting += count
            else:
                backlog.retrying += count
                backlog.next_retry_at_ms = _earlier(backlog.next_retry_at_ms, state.until_ms)
                backlog.attempts = max(backlog.attempts, state.attempt)
        for consumer, error in popped.notes.values():
            backlog.consumer, backlog.error = consumer, error
        failure = self.copies.ordered_failure((*place, queue.key[1])) if self.copies is not None else None
        if failure is not None and backlog.waiting:
            backlog.waiting, backlog.retrying = backlog.waiting - 1, backlog.retrying + 1
            backlog.next_retry_at_ms = _earlier(backlog.next_retry_at_ms, failure.retry_at_ms)
            backlog.attempts = max(backlog.attempts, failure.attempt)
            backlog.consumer, backlog.error = failure.consumer, failure.error
        if first_unfinished >= 0:
            stored_at_ms, position = _stored_at(queue, first_unfinished, self.store.engine.catalog.active.base)
            backlog.oldest_at_ms = _earlier(backlog.oldest_at_ms, stored_at_ms)
            used = self._retention_used(stored_at_ms, position, backlog.measured_at_ms)
            backlog.retention_used, backlog.retention_setting = max(
                (backlog.retention_used, backlog.retention_setting), used
            )

    def _measure_retries(self, backlog: GroupBacklog) -> None:
        """Count the copies that are stored in the retry topic, and those whose back-off has not ended."""
        stored = backlog.waiting + backlog.leased + backlog.retrying
        timers = self.store.timers
        delayed = timers.count_of(backlog.topic_id)
        backlog.waiting, backlog.leased, backlog.retrying = 0, 0, stored + delayed
        if stored:
            backlog.next_retry_at_ms = _earlier(backlog.next_retry_at_ms, backlog.oldest_at_ms)
        elif delayed:
            backlog.next_retry_at_ms = timers.select(backlog.topic_id, 0, 1)[0].deliver_at_ms
        if backlog.retrying:
            failure = self.copies.failures.get(backlog.group, NO_FAILURE) if self.copies is not None else NO_FAILURE
            backlog.attempts = max(backlog.attempts, failure.attempt)
            backlog.consumer = backlog.consumer or failure.consumer
            backlog.error = backlog.error or failure.error

    def _parked(self, backlog: GroupBacklog, queue_id: int, offset: int) -> int:
        """The dead letters of a queue that were neither replayed nor consumed from the dead-letter topic."""
        queue = self.store.engine.catalog.queues.get((backlog.topic_id, queue_id))
        if queue is None:
            return 0
        replayed = self.store.engine.state.pops.get((backlog.topic_id, REPLAY_PREFIX + backlog.group, queue_id))
        intervals = IntervalMap(0) if replayed is None else replayed.intervals
        pieces = intervals.unfinished(max(queue.begin_offset, offset), queue.end_offset)
        return sum(piece.end - piece.first for piece in pieces)

    def _retention_used(self, stored_at_ms: int, position: int, now_ms: int) -> tuple[float, str]:
        """The used share of the retention, and the setting that limits it."""
        engine = self.store.engine
        settings = engine.housekeeping.settings
        used = [(0.0, "")]
        if settings.retention_requires_acknowledgement:
            return used[0]
        if settings.retention_age_ms and stored_at_ms:
            age_ms = now_ms - stored_at_ms
            used.append((age_ms / settings.retention_age_ms, "store.retention_age_ms"))
        if settings.retention_bytes:
            size_bytes = engine.appender.appended_position - position
            used.append((size_bytes / settings.retention_bytes, "store.retention_bytes"))
        return max(used)


def _starts(rows: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Queue id to the offset at which the group continues, from rows of the offset table."""
    return {queue_id: offset for queue_id, (offset, _) in rows.items()}


def _earlier(at_ms: int, other_ms: int) -> int:
    """The earlier of two times; 0 = no time."""
    return min(at_ms or other_ms, other_ms or at_ms)


def _stored_at(queue: QueueLog, offset: int, active_base: int) -> tuple[int, int]:
    """Store time and log position of the message at an offset.

    Both are approximate in a sealed segment whose index is on disk. The time is 0 if it is not known.
    """
    run = queue.run_containing(offset)
    rows = queue.rows if run is None else run.rows
    if rows is not None and len(rows):
        at = max(0, bisect_right(rows.first_offsets, offset) - 1)
        return int(rows.stored_at_ms[at]), int(rows.positions[at])
    if run is None:
        return 0, active_base
    entry = run.entry
    fraction = (offset - entry.begin_offset) / max(1, entry.end_offset - entry.begin_offset)
    stored_at_ms = entry.first_stored_at_ms + int(fraction * (entry.last_stored_at_ms - entry.first_stored_at_ms))
    return stored_at_ms, run.segment.base
