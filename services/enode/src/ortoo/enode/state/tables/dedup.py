"""Idempotent producers: a repeated batch is stored once, and the repetition is answered with the place of the first."""

import heapq
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from ortoo.common.errors import Conflict, Invalid, NotFound, Unavailable
from ortoo.enode.changes.kinds import ExpiredDropped, ProducerWindow, WindowBatch
from ortoo.enode.changes.timers import TimersSet
from ortoo.enode.state.table import KeyedTable

BATCHES_REMEMBERED = 5
RETRY_AFTER_MS = 20

Key = tuple[int, int, int]
"""(topic id, queue id, producer id)."""


@dataclass(slots=True)
class SequenceWindow:
    """The last batches of one producer in one queue."""

    next_sequence: int
    used_at_ms: int
    batches: deque[WindowBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))


class SequenceWindowTable(KeyedTable[tuple[int, int], SequenceWindow]):
    """The table of the windows of durable batches: topic id to (queue id, producer id) to window."""

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def get(self, key: Key) -> SequenceWindow | None:
        """The window of a producer in a queue; None without one."""
        return self._topics.get(key[0], {}).get(key[1:])

    def add(self, key: Key, batch: WindowBatch) -> None:
        """Fold one stored batch. A batch that is in the window already is ignored, so folding twice is harmless."""
        windows = self._topics.setdefault(key[0], {})
        window = windows.get(key[1:])
        if window is None:
            window = windows[key[1:]] = SequenceWindow(0, 0)
        elif batch.first_sequence < window.next_sequence:
            if batch.first_sequence or batch.stored_at_ms <= window.used_at_ms:
                return
            window.batches.clear()  # the producer's window was dropped, and it restarted at sequence 0
        window.next_sequence = batch.first_sequence + batch.count
        window.used_at_ms = batch.stored_at_ms
        window.batches.append(batch)

    def idle_before_ms(self, before_ms: int, keep_max: int) -> int:
        """A time such that all windows that were last used before it must be dropped; 0 = no window is dropped.

        The time is at least `before_ms`. It is later if more than `keep_max` windows were used since then.
        """
        used = [window.used_at_ms for _, _, window in self.entries()]
        if len(used) > keep_max:
            before_ms = max(before_ms, heapq.nsmallest(len(used) - keep_max, used)[-1] + 1)
        return before_ms if any(one < before_ms for one in used) else 0

    def keep_only(self, keys: Collection[Key]) -> None:
        """Drop all windows except those with these keys."""
        for topic_id, place, _ in list(self.entries()):
            if (topic_id, *place) not in keys:
                del self._topics[topic_id][place]

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes."""
        for topic_id, place, window in self.iterate_live():
            batches = tuple(window.batches)
            yield ProducerWindow(topic_id, *place, window.next_sequence, window.used_at_ms, batches).encoded()

    def _load(self, change: ProducerWindow) -> None:
        window = SequenceWindow(change.next_sequence, change.used_at_ms)
        window.batches.extend(change.batches)
        self._topics.setdefault(change.topic_id, {})[change.queue_id, change.producer_id] = window

    def _defer(self, change: TimersSet) -> None:
        """Fold a delayed batch into the window of its destination queue, with its place instead of an offset."""
        if change.producer_id:
            sent = (change.first_sequence, change.count, change.first_place, change.stored_at_ms, change.payload_crc)
            self.add((change.topic_id, change.queue_id, change.producer_id), WindowBatch(*sent))

    def _forget(self, change: ExpiredDropped) -> None:
        used = self.entries()
        self.keep_only({(topic_id, *place) for topic_id, place, one in used if one.used_at_ms >= change.idle_before_ms})

    FOLDS: ClassVar = {ProducerWindow: _load, TimersSet: _defer, ExpiredDropped: _forget}


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The finding that a batch was stored before, or is being stored."""

    batch: WindowBatch
    durable: bool


class Sequencer:
    """Decides whether an idempotent batch is stored. Decisions also consider batches that are not durable yet."""

    def __init__(self, windows: SequenceWindowTable, *, idle_ms: int, led_since_ms: int = -1) -> None:
        """Decide by `windows`. A window that was not used for `idle_ms` counts as dropped.

        Batches acknowledged before `led_since_ms` may be lost, with another leader or with the end of the log.
        """
        self._windows = windows
        self._idle_ms = idle_ms
        self._led_since_ms = led_since_ms
        self._in_flight: dict[Key, list[WindowBatch]] = {}
        self._expected_first: dict[Key, None] = {}
        self._sent_since: set[Key] = set()
        """Producers with a batch of this term whose time is not after `led_since_ms`, because the clock is behind."""

    def decide(self, key: Key, first_sequence: int, count: int, crc: int, now_ms: int) -> Duplicate | None:
        """The earlier copy of a repeated batch; None if the batch is the producer's next batch and must be stored.

        Errors: Unavailable (a gap), NotFound (unknown producer), Invalid (overlap), Conflict (other bytes, or a batch
        so old that its place is no longer known).
        """
        in_flight = self._in_flight.get(key)
        window = self._windows.get(key)
        if window is not None and not in_flight and window.used_at_ms + self._idle_ms < now_ms:
            window = None
        if in_flight:
            expected = in_flight[-1].first_sequence + in_flight[-1].count
        elif window is not None:
            expected = window.next_sequence
        else:
            self._check_first(key, first_sequence)
            return None
        if first_sequence == expected:
            return None
        if first_sequence > expected:
            if window is not None and not in_flight and self._is_from_before(key, window):
                raise self._unknown_producer(key)  # the missing batches were acknowledged, and are lost
            raise _gap_error(expected, first_sequence)
        for batches, durable in ((in_flight or (), False), (window.batches if window else (), True)):
            for one in batches:
                if one.first_sequence == first_sequence and one.count == count:
                    if one.crc != crc:
                        raise Conflict(
                            f"sequence {first_sequence} was used for other bytes: a retry sends the same batch",
                            field="batch.first_sequence",
                        )
                    return Duplicate(one, durable)
                if one.first_sequence < first_sequence + count and first_sequence < one.first_sequence + one.count:
                    raise Invalid(
                        f"sequences {first_sequence} to {first_sequence + count} overlap the batch from "
                        f"{one.first_sequence} to {one.first_sequence + one.count}: send batches again as they were",
                        field="batch.first_sequence",
                    )
        raise Conflict(
            f"sequence {first_sequence} was stored long ago, so its offset is not remembered; {expected} is next",
            field="batch.first_sequence",
        )

    def _is_from_before(self, key: Key, window: SequenceWindow) -> bool:
        return window.used_at_ms <= self._led_since_ms and key not in self._sent_since

    def _check_first(self, key: Key, first_sequence: int) -> None:
        """Without a window a producer must begin at sequence 0. Errors: NotFound, Unavailable (batch 0 was refused)."""
        if first_sequence:
            raise _gap_error(0, first_sequence) if key in self._expected_first else self._unknown_producer(key)
        self._expected_first[key] = None
        while len(self._expected_first) > 10_000:
            del self._expected_first[next(iter(self._expected_first))]

    def _unknown_producer(self, key: Key) -> NotFound:
        return NotFound(
            f"unknown producer {key[2]:#x}: it sent nothing here, or nothing for {self._idle_ms} ms, or its last "
            "batches are lost. Take a new producer id and begin at sequence 0",
            field="batch.producer_id",
        )

    def add_in_flight(self, key: Key, batch: WindowBatch) -> None:
        """Note a batch that is being stored."""
        self._expected_first.pop(key, None)
        self._in_flight.setdefault(key, []).append(batch)
        if batch.stored_at_ms <= self._led_since_ms:
            self._sent_since.add(key)

    def remove_in_flight(self, key: Key) -> None:
        """Remove the oldest batch being stored, because it is now durable and in the windows."""
        in_flight = self._in_flight.get(key)
        if in_flight:
            del in_flight[0]
            if not in_flight:
                del self._in_flight[key]


def _gap_error(expected: int, received: int) -> Unavailable:
    return Unavailable(
        f"sequence {expected} is next, got {received}: nothing was stored, send the missing batch first",
        field="batch.first_sequence",
        retry_after_ms=RETRY_AFTER_MS,
    )
