"""Delayed messages in memory, shortly before they are due: tables by destination, in the order of their due times.

Pure: no clock, no disk. Due messages are sliced off the fronts of tables as arrays, so that the cost hardly depends on
their number.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ortoo.common.arrays.gather import gather, write_table
from ortoo.common.arrays.message_table import MessageColumns, MessageTable, concat_tables, take_rows
from ortoo.common.arrays.opened_batch import Int32s, TextArrays
from ortoo.common.records.columns import MESSAGE_ID
from ortoo.common.records.sealed_batch import MESSAGES_MAX, RECORDS_BYTES_MAX, SealedBatch
from ortoo.enode.state.timer_bucket import NEVER_MS, Int64s, TimerArray, times_and_ids

ROW_BYTES = 64
"""The approximate memory of a message beside its body."""
BODY_BYTES_MAX = RECORDS_BYTES_MAX * 3 // 4
"""Bodies of at most this size usually leave room in a batch for the other columns."""


@dataclass(frozen=True, slots=True)
class DueMessages:
    """Delayed messages for one queue, ordered by time."""

    destination: int
    deliver_at_ms: Int64s
    timer_ids: Int64s
    messages: MessageTable

    def __len__(self) -> int:
        return len(self.timer_ids)

    @property
    def size_bytes(self) -> int:
        """The approximate memory of the messages."""
        return ROW_BYTES * len(self) + len(self.messages.body)

    def select(self, rows: Int32s) -> "DueMessages":
        """The messages at these rows."""
        if len(rows) == len(self):
            return self
        return DueMessages(
            self.destination, self.deliver_at_ms[rows], self.timer_ids[rows], take_rows(self.messages, rows)
        )

    def batches(self, id_prefix: str = "") -> Iterable[tuple[SealedBatch, Int64s, Int64s]]:
        """Split into batches, each with the times and ids of its timers.

        With `id_prefix`, messages without an id get one: the prefix and the timer id.
        """
        messages, start = _with_message_ids(self.messages, self.timer_ids, id_prefix) if id_prefix else self.messages, 0
        while start < len(self):
            end, batch = self._batch_from(messages, start)
            yield batch, self.deliver_at_ms[start:end], self.timer_ids[start:end]
            start = end

    def _batch_from(self, messages: MessageTable, start: int) -> tuple[int, SealedBatch]:
        offsets = messages.body_offsets
        full = int(np.searchsorted(offsets, offsets[start] + BODY_BYTES_MAX, "right")) - 1
        end = min(len(self), start + MESSAGES_MAX, max(full, start + 1))
        while True:
            whole = start == 0 and end == len(self)
            batch = write_table(messages) if whole else gather(messages, np.arange(start, end, dtype="<i4"))
            if len(batch.records) <= RECORDS_BYTES_MAX or end == start + 1:
                return end, batch
            end = start + (end - start) // 2


@dataclass(slots=True)
class _Table:
    """Messages in the order of their times. The first `at` messages were taken already."""

    due: DueMessages
    at: int = 0


class Staging:
    """The delayed messages in memory that are not due yet."""

    def __init__(self) -> None:
        """Start empty."""
        self.count = 0
        self.bytes = 0
        self._tables: list[tuple[int, int, _Table]] = []
        """(when its first message is due, a number, the table), a heap."""
        self._number = 0

    @property
    def next_ms(self) -> int | None:
        """The time at which the first message is due."""
        return self._tables[0][0] if self._tables else None

    def add(self, due: DueMessages) -> None:
        """Add messages, which are ordered by time."""
        self.count += len(due)
        self.bytes += due.size_bytes
        self._push(_Table(due))

    def take(self, now_ms: int, limit: int) -> list[DueMessages]:
        """Remove and return about `limit` due messages at most, grouped by queue."""
        found: dict[tuple[int, bool], list[DueMessages]] = {}
        while self._tables and self._tables[0][0] <= now_ms and limit > 0:
            table = heapq.heappop(self._tables)[2]
            end = min(int(np.searchsorted(table.due.deliver_at_ms, now_ms, "right")), table.at + limit)
            part = table.due.select(np.arange(table.at, end, dtype="<i4"))
            found.setdefault((part.destination, part.messages.priority is not None), []).append(part)
            self.count -= len(part)
            limit -= len(part)
            table.at = end
            if end < len(table.due):
                self._push(table)
            else:
                self.bytes -= table.due.size_bytes
        return [merge_by_time(parts) for parts in found.values()]

    def _push(self, table: _Table) -> None:
        self._number += 1
        heapq.heappush(self._tables, (int(table.due.deliver_at_ms[table.at]), self._number, table))


class StagingBuffer:
    """Collects the delayed messages that a read of many batches finds, and sorts them at the end."""

    def __init__(self) -> None:
        """Start empty."""
        self.bytes = 0
        self.first_ms = NEVER_MS
        """The time at which the first message is due."""
        self._parts: dict[tuple[int, bool], list[DueMessages]] = {}

    def add(self, due: DueMessages) -> None:
        """Add the messages found in one batch for one queue."""
        self._parts.setdefault((due.destination, due.messages.priority is not None), []).append(due)
        self.bytes += due.size_bytes
        self.first_ms = min(self.first_ms, int(due.deliver_at_ms[0]))

    def take_all(self) -> Iterator[DueMessages]:
        """Remove and return all messages, grouped by queue."""
        while self._parts:
            yield merge_by_time(self._parts.popitem()[1])  # one after another, so that the memory is freed early
        self.bytes, self.first_ms = 0, NEVER_MS

    def move_to(self, staging: Staging) -> None:
        """Move everything to `staging`."""
        for due in self.take_all():
            staging.add(due)


def merge_by_time(parts: Sequence[DueMessages]) -> DueMessages:
    """Join messages for one queue, ordered by time and id."""
    if len(parts) == 1:
        return parts[0]
    times = np.concatenate([part.deliver_at_ms for part in parts])
    ids = np.concatenate([part.timer_ids for part in parts])
    order = np.lexsort((ids, times)).astype("<i4")
    messages = concat_tables([part.messages for part in parts])
    return DueMessages(parts[0].destination, times[order], ids[order], take_rows(messages, order))


def split_by_destination(rows: TimerArray, columns: MessageColumns, chosen: Int32s) -> Iterator[DueMessages]:
    """The `chosen` rows of one batch, grouped by the destination of their timers."""
    times, ids = times_and_ids(rows)
    destinations = rows["destination"]
    for destination in np.unique(destinations).tolist():
        at = np.flatnonzero(destinations == destination)
        yield sort_by_time(destination, times[at], ids[at], columns, chosen[at])


def sort_by_time(
    destination: int, deliver_at_ms: Int64s, timer_ids: Int64s, columns: MessageColumns, rows: Int32s
) -> DueMessages:
    """The messages in some rows of a batch, ordered by time."""
    order = np.lexsort((timer_ids, deliver_at_ms)).astype("<i4")
    return DueMessages(destination, deliver_at_ms[order], timer_ids[order], take_rows(columns, rows[order]))


def _with_message_ids(messages: MessageTable, timer_ids: Int64s, id_prefix: str) -> MessageTable:
    chosen = messages.message_id
    if chosen is not None and chosen.valid is None:
        return messages
    texts = [f"{id_prefix}{number}".encode() for number in timer_ids.tolist()]
    if chosen is not None and chosen.valid is not None:
        for row in np.flatnonzero(chosen.valid).tolist():
            texts[row] = bytes(chosen.data[chosen.offsets[row] : chosen.offsets[row + 1]])
    offsets = np.zeros(len(texts) + 1, "<i4")
    np.cumsum(np.fromiter(map(len, texts), "<i4", len(texts)), out=offsets[1:])
    return messages.with_column(MESSAGE_ID, TextArrays(offsets, memoryview(b"".join(texts)), None))
