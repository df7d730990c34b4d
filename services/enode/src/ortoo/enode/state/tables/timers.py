"""Timers of delayed messages: due times, places and destinations. Pure: no clock, no disk, no randomness.

Timers of the next minutes are in buckets of one second, later timers in buckets of ten minutes. A bucket of ten minutes
is split when its time comes near. A timer costs 29 bytes at any distance; its message stays on disk.
"""

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ortoo.enode.changes.timers import TimerRows, TimersDone, TimersSet
from ortoo.enode.state.table import ROWS_PER_CHANGE, StateTable, iterate_live
from ortoo.enode.state.timer_bucket import ROW, Int64s, TimerArray, TimerBucket, TimerStatus

NEAR_MS = 1_000
"""The time span of a bucket of near timers."""
FAR_MS = 600_000
"""The time span of a bucket of far timers; also how long before its time it is split."""
ROWS_AT_ONCE = 65_536
_ODD = 0x9E3779B97F4A7C15

CHECKPOINT_ROW = np.dtype(
    [("topic_id", "<u8"), ("queue_id", "<u4"), ("timer_id", "<i8"), ("place", "<i8"), ("deliver_at_ms", "<i8")]
)
Destination = tuple[int, int]
"""(topic id, queue id)."""


class TimerEntry(NamedTuple):
    """One listed delayed message of a topic."""

    deliver_at_ms: int
    timer_id: int
    place: int
    queue_id: int


class TimerTable(StateTable[dict[int, int]]):
    """All timers of an enode, and the destinations: topic id to queue id to the number used in rows."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.live_count = 0
        """The number of timers, including those of deleted topics until they are due."""
        self._near: dict[int, TimerBucket] = {}
        self._far: dict[int, TimerBucket] = {}
        self._near_until_ms = 0
        self._destinations: list[Destination | None] = []
        self._counts: list[int] = []
        """The number of timers of each destination."""

    # folding

    def drop_topic(self, topic_id: int) -> None:
        """Remove the destinations of a deleted topic; its timers end when they are due."""
        for number in self._topics.pop(topic_id, {}).values():
            self._destinations[number] = None

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes.

        Far buckets are written first. A far bucket that is split meanwhile is then found among the near buckets.
        """
        for buckets in (self._far, self._near):
            for _, bucket in iterate_live(buckets):
                for rows in bucket.drawn(ROWS_PER_CHANGE):
                    written = self._checkpoint_rows(rows)
                    if len(written):
                        yield TimerRows(written.tobytes()).encoded()

    @property
    def rows(self) -> int:
        """The number of rows of other tables whose digest costs as much as that of this table."""
        return self.live_count // 16

    def digest(self) -> int:
        """A digest over single timers, because the bucket of a timer differs between leader and followers."""
        total = 0
        for bucket in (*self._near.values(), *self._far.values()):
            written = self._checkpoint_rows(bucket.live_rows())
            mixed = np.zeros(len(written), "<u8")
            for name in written.dtype.names or ():
                mixed = (mixed ^ written[name].astype("<u8")) * np.uint64(_ODD)
                mixed ^= mixed >> np.uint64(29)
            total += int(mixed.sum())
        return total % (1 << 64)

    def _checkpoint_rows(self, rows: TimerArray) -> TimerArray:
        """Rows in the log's format, without those of deleted topics."""
        there = np.array([one is not None for one in self._destinations], bool)
        rows = rows[there[rows["destination"]]]
        pairs = np.array([one or (0, 0) for one in self._destinations], [("t", "<u8"), ("q", "<u4")])
        written = np.zeros(len(rows), CHECKPOINT_ROW)
        written["topic_id"] = pairs["t"][rows["destination"]]
        written["queue_id"] = pairs["q"][rows["destination"]]
        for name in ("timer_id", "place", "deliver_at_ms"):
            written[name] = rows[name]
        return written

    def _set(self, change: TimersSet) -> None:
        rows = np.zeros(change.count, ROW)
        rows["place"] = np.arange(change.first_place, change.first_place + change.count)
        rows["timer_id"] = _int64s(change.ids) if change.ids else rows["place"]
        rows["deliver_at_ms"] = _int64s(change.deliver_at_ms)
        rows["destination"] = self._destination_number((change.topic_id, change.queue_id))
        self._put(rows[np.argsort(rows["timer_id"], kind="stable")] if change.ids else rows)

    def _load(self, change: TimerRows) -> None:
        loaded = np.frombuffer(change.rows, CHECKPOINT_ROW)
        rows = np.zeros(len(loaded), ROW)
        for name in ("timer_id", "place", "deliver_at_ms"):
            rows[name] = loaded[name]
        topics, codes = np.unique(loaded["topic_id"], return_inverse=True)  # numbers sort 50 times faster than pairs
        pairs, codes = np.unique(codes.astype("<u8") << 32 | loaded["queue_id"], return_inverse=True)
        numbers = [self._destination_number((int(topics[int(pair) >> 32]), int(pair) & 0xFFFFFFFF)) for pair in pairs]
        rows["destination"] = np.array(numbers, "<u4")[codes]
        self._put(rows[np.argsort(rows["timer_id"], kind="stable")])

    def _destination_number(self, destination: Destination) -> int:
        numbers = self._topics.setdefault(destination[0], {})
        if destination[1] not in numbers:
            numbers[destination[1]] = len(self._destinations)
            self._destinations.append(destination)
            self._counts.append(0)
        return numbers[destination[1]]

    def _put(self, rows: TimerArray) -> None:
        for buckets, key, at in self._split(rows["deliver_at_ms"]):
            bucket = buckets.get(key)
            if bucket is None:
                bucket = buckets[key] = TimerBucket()
            self._count(bucket.put(rows[at])["destination"], 1)

    def _done(self, change: TimersDone) -> None:
        ids = _int64s(change.ids)
        for buckets, key, at in self._split(_int64s(change.deliver_at_ms)):
            bucket = buckets.get(key)
            if bucket is not None:
                self._count(bucket.end(ids[at]), -1)
                if not bucket.live_count:
                    del buckets[key]

    def _count(self, destinations: NDArray[np.uint32], step: int) -> None:
        """Count timers that were added (`step` 1) or removed (`step` -1), given the destination of each."""
        self.live_count += step * len(destinations)
        numbers, counts = np.unique(destinations, return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._counts[number] += step * count

    def _split(self, deliver_at_ms: Int64s) -> "Iterator[tuple[dict[int, TimerBucket], int, Int64s]]":
        """The buckets of these times, as (buckets, key, indexes of the times in it)."""
        near = deliver_at_ms < self._near_until_ms
        keys = np.where(near, deliver_at_ms // NEAR_MS, -1 - deliver_at_ms // FAR_MS)
        if not len(keys):
            return
        if len(keys) == 1 or (keys == keys[0]).all():
            parts = [np.arange(len(keys))]
        else:
            order = np.argsort(keys, kind="stable")
            parts = np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)
        for part in parts:
            key = int(keys[part[0]])
            yield (self._near, key, part) if key >= 0 else (self._far, -1 - key, part)

    FOLDS: ClassVar = {TimersSet: _set, TimersDone: _done, TimerRows: _load}

    # deciding

    def advance(self, now_ms: int) -> None:
        """Split far buckets whose time is near."""
        until_ms = (now_ms + FAR_MS) // FAR_MS * FAR_MS + FAR_MS
        if until_ms <= self._near_until_ms:
            return
        self._near_until_ms = until_ms
        for key in sorted(key for key in self._far if key * FAR_MS < until_ms):
            bucket = self._far.pop(key)
            for start in range(0, bucket.rows, ROWS_AT_ONCE):
                rows = bucket.live_rows(start, start + ROWS_AT_ONCE)
                if len(rows):
                    self._count(rows["destination"], -1)
                    self._put(rows)

    def take(self, until_ms: int, limit: int) -> TimerArray:
        """Mark up to `limit` free timers due at or before a time as staged, earliest seconds first; return them.

        The result includes timers of deleted topics, for which `destination_of` returns None.
        """
        parts: list[TimerArray] = []
        for key in sorted(key for key in self._near if key * NEAR_MS <= until_ms):
            rows = self._near[key].due(until_ms, limit)
            if len(rows):
                self._near[key].set_status(rows["timer_id"], TimerStatus.STAGED)
                parts.append(rows)
                limit -= len(rows)
                if limit <= 0:
                    break
        return np.concatenate(parts) if parts else np.zeros(0, ROW)

    def count_of(self, topic_id: int) -> int:
        """The number of delayed messages of a topic."""
        return sum(self._counts[number] for number in self._topics.get(topic_id, {}).values())

    def destination_of(self, number: int) -> Destination | None:
        """The queue of a row's `destination`; None if its topic was deleted."""
        return self._destinations[number]

    def belongs_to_topic(self, topic_id: int, deliver_at_ms: int, timer_id: int) -> bool:
        """Whether a timer exists and belongs to this topic."""
        for buckets, key, _ in self._split(np.array([deliver_at_ms], "<i8")):
            number = buckets[key].destination(timer_id) if key in buckets else None
            if number is not None:
                destination = self._destinations[number]
                return destination is not None and destination[0] == topic_id
        return False

    def statuses(self, deliver_at_ms: Int64s, ids: Int64s) -> np.ndarray:
        """The `TimerStatus` of each of these timers; 255 = it does not exist."""
        result = np.full(len(ids), 255, np.uint8)
        for buckets, key, at in self._split(deliver_at_ms):
            bucket = buckets.get(key)
            if bucket is not None:
                result[at] = bucket.statuses(ids[at])
        return result

    def places(self, deliver_at_ms: Int64s, ids: Int64s) -> Int64s:
        """The place of each timer's message; -1 = the timer does not exist."""
        result = np.full(len(ids), -1, "<i8")
        for buckets, key, at in self._split(deliver_at_ms):
            bucket = buckets.get(key)
            if bucket is not None:
                result[at] = bucket.places(ids[at])
        return result

    def set_status(self, deliver_at_ms: Int64s, ids: Int64s, status: TimerStatus) -> None:
        """Set the status of timers."""
        for buckets, key, at in self._split(deliver_at_ms):
            bucket = buckets.get(key)
            if bucket is not None:
                bucket.set_status(ids[at], status)

    def unstage(self, deliver_at_ms: Int64s, ids: Int64s, status: TimerStatus = TimerStatus.FREE) -> None:
        """Note that the messages of timers are no longer in memory.

        Staged timers get `status`; timers being moved or recalled become MISSED.
        """
        statuses = self.statuses(deliver_at_ms, ids)
        is_staged, is_in_use = (
            statuses == TimerStatus.STAGED,
            (statuses == TimerStatus.RECALLING) | (statuses == TimerStatus.MOVING),
        )
        self.set_status(deliver_at_ms[is_staged], ids[is_staged], status)
        self.set_status(deliver_at_ms[is_in_use], ids[is_in_use], TimerStatus.MISSED)

    def reset_statuses(self) -> None:
        """Set the status of every timer to FREE, for a new leader."""
        for buckets in (self._near, self._far):
            for bucket in buckets.values():
                bucket.reset_statuses()

    def select(self, topic_id: int, from_ms: int, limit: int) -> list[TimerEntry]:
        """Up to `limit` delayed messages of a topic that are due from `from_ms` on, ordered by time and id."""
        found: list[TimerEntry] = []
        queues = {number: queue_id for queue_id, number in self._topics.get(topic_id, {}).items()}
        is_wanted = np.zeros(len(self._destinations), bool)
        is_wanted[list(queues)] = True
        spans = [(key * NEAR_MS, NEAR_MS, bucket) for key, bucket in self._near.items()]
        spans += [(key * FAR_MS, FAR_MS, bucket) for key, bucket in self._far.items()]
        for start_ms, span_ms, bucket in sorted(spans, key=lambda span: span[0]):
            if start_ms + span_ms <= from_ms:
                continue
            rows = bucket.live_rows()
            rows = rows[is_wanted[rows["destination"]] & (rows["deliver_at_ms"] >= from_ms)]
            rows = rows[np.lexsort((rows["timer_id"], rows["deliver_at_ms"]))][: limit - len(found)]
            found += [TimerEntry(int(one[0]), int(one[1]), int(one[2]), queues[int(one[3])]) for one in rows]
            if len(found) >= limit:
                break
        return found

    def in_places(self, begin: int, end: int) -> TimerArray:
        """The timers whose messages are at places from `begin` to `end` of the queue of delayed messages, by place."""
        parts = []
        for buckets in (self._near, self._far):
            for bucket in buckets.values():
                rows = bucket.live_rows()
                rows = rows[(rows["place"] >= begin) & (rows["place"] < end)]
                if len(rows):
                    parts.append(rows)
        found: TimerArray = np.concatenate(parts) if parts else np.zeros(0, ROW)
        return found[np.argsort(found["place"], kind="stable")]


def _int64s(data: bytes) -> Int64s:
    return np.frombuffer(data, "<i8")
