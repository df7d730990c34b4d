"""Timers of one time span, packed: 29 bytes each, in the order of their ids."""

import enum
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROW = np.dtype(
    [("deliver_at_ms", "<i8"), ("timer_id", "<i8"), ("place", "<i8"), ("destination", "<u4"), ("status", "u1")]
)
"""One timer; `destination` is a number that `TimerTable` gives to a queue."""
_COLUMNS = ("deliver_at_ms", "place", "destination", "status")
_TABLE = np.dtype([(name, ROW[name]) for name in _COLUMNS])
TimerArray = NDArray[np.void]
"""A structured array with the fields of `ROW`."""
Int64s = NDArray[np.int64]
NEVER_MS = (1 << 63) - 1
"""The due time of a deleted timer."""
_COMPACT_MIN = 64


class TimerStatus(enum.IntEnum):
    """The operation in progress on a timer. It is kept only in memory, so every timer is free for a new leader."""

    FREE = 0
    STAGED = 1
    """Its message is in memory and not due yet."""
    FIRING = 2
    """Its message is being appended to its queue."""
    RECALLING = 3
    """Its cancellation is being stored."""
    MOVING = 4
    """Its message is being stored again, because its segment is to be deleted."""
    UNREADABLE = 5
    """The bytes of its message are damaged."""
    MISSED = 6
    """It is being moved or recalled, and its message left memory."""


class TimerBucket:
    """A growing table of timers. Rows of deleted timers stay until they are the majority.

    Ids are a separate sorted column, so that a timer is found by binary search.
    """

    __slots__ = ("_data", "_ids", "_last_id", "live_count")

    def __init__(self) -> None:
        """Begin empty."""
        self._ids = bytearray()
        self._data = bytearray()
        self._last_id = -1
        self.live_count = 0
        """The number of timers."""

    @property
    def rows(self) -> int:
        """The number of rows, including deleted ones."""
        return len(self._ids) // 8

    def live_rows(self, start: int = 0, stop: int | None = None) -> TimerArray:
        """A copy of the existing timers, of all rows or of those from `start` to `stop`."""
        table, ids = self._table[start:stop], self._known_ids[start:stop]
        return _joined(table, ids, np.flatnonzero(table["deliver_at_ms"] != NEVER_MS))

    def drawn(self, count: int) -> Iterator[TimerArray]:
        """Copy the existing timers, `count` rows at a time in the order of their ids; rows may change meanwhile.

        Copying a bucket of millions at once would block the event loop for a second.
        """
        last_id = -1
        while (start := int(np.searchsorted(self._known_ids, last_id, side="right"))) < self.rows:
            stop = min(start + count, self.rows)
            last_id = int(self._known_ids[stop - 1])
            yield self.live_rows(start, stop)

    def put(self, rows: TimerArray) -> TimerArray:
        """Add timers, which are ordered by id; existing timers get their new place. Returns the added timers."""
        if int(rows["timer_id"][0]) > self._last_id:
            self._append(rows)
        else:
            known, found = self._find(rows["timer_id"])
            self._table["place"][known] = rows["place"][found]
            rows = rows[~found]
            if not len(rows):
                return rows
            all_rows = _joined(self._table, self._known_ids, np.arange(self.rows))
            merged = np.concatenate([all_rows, rows])
            self._ids, self._data = bytearray(), bytearray()
            live, self.live_count = self.live_count, 0
            self._append(merged[np.argsort(merged["timer_id"], kind="stable")])
            self.live_count = live + len(rows)
        self._last_id = max(self._last_id, int(rows["timer_id"][-1]))
        return rows

    def end(self, ids: Int64s) -> NDArray[np.uint32]:
        """Delete timers; unknown timers are skipped. Returns the destinations of the deleted timers."""
        at, _ = self._find(ids)
        table = self._table
        at = at[table["deliver_at_ms"][at] != NEVER_MS]
        destinations: NDArray[np.uint32] = table["destination"][at]
        table["deliver_at_ms"][at] = NEVER_MS
        self.live_count -= len(at)
        del table
        if self.rows > _COMPACT_MIN and self.live_count < self.rows // 2:
            rows = self.live_rows()
            self._ids, self._data, self.live_count = bytearray(), bytearray(), 0
            self._append(rows)
        return destinations

    def statuses(self, ids: Int64s) -> NDArray[np.uint8]:
        """The status of each of these timers; 255 = it does not exist."""
        return self._column("status", ids, 255)

    def places(self, ids: Int64s) -> Int64s:
        """The place of each timer's message; -1 = the timer does not exist."""
        return self._column("place", ids, -1)

    def destination(self, timer_id: int) -> int | None:
        """The destination number of a timer; None if it is not in this bucket."""
        at, _ = self._find(np.array([timer_id], "<i8"))
        return int(self._table["destination"][at[0]]) if len(at) else None

    def set_status(self, ids: Int64s, status: TimerStatus) -> None:
        """Set the status of timers."""
        at, _ = self._find(ids)
        self._table["status"][at] = status

    def reset_statuses(self) -> None:
        """Set the status of every timer to FREE."""
        self._table["status"] = TimerStatus.FREE

    def due(self, until_ms: int, limit: int) -> TimerArray:
        """A copy of up to `limit` free timers due at or before a time."""
        table = self._table
        at = np.flatnonzero((table["deliver_at_ms"] <= until_ms) & (table["status"] == TimerStatus.FREE))
        return _joined(table, self._known_ids, at[:limit])

    @property
    def _table(self) -> TimerArray:
        """All columns except the ids; a view that must not outlive the next change."""
        return np.frombuffer(self._data, _TABLE)

    @property
    def _known_ids(self) -> Int64s:
        """All ids, ascending, including deleted ones; a view that must not outlive the next change."""
        return np.frombuffer(self._ids, "<i8")

    def _append(self, rows: TimerArray) -> None:
        table = np.empty(len(rows), _TABLE)
        for name in _COLUMNS:
            table[name] = rows[name]
        self._ids += rows["timer_id"].tobytes()
        self._data += table.tobytes()
        self.live_count += len(rows)

    def _column(self, name: str, ids: Int64s, missing: int) -> NDArray[Any]:
        result = np.full(len(ids), missing, _TABLE[name])
        at, found = self._find(ids)
        table = self._table
        alive = table["deliver_at_ms"][at] != NEVER_MS
        result[np.flatnonzero(found)[alive]] = table[name][at[alive]]
        return result

    def _find(self, ids: Int64s) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The row indexes of the known `ids`, and a mask over `ids` that is true for the known ones."""
        known = self._known_ids
        at = np.searchsorted(known, ids)
        found = at < len(known)
        found[found] = known[at[found]] == ids[found]
        return at[found], found


def _joined(table: TimerArray, ids: Int64s, at: NDArray[np.intp]) -> TimerArray:
    rows: TimerArray = np.empty(len(at), ROW)
    rows["timer_id"] = ids[at]
    for name in _COLUMNS:
        rows[name] = table[name][at]
    return rows


def times_and_ids(rows: TimerArray) -> tuple[Int64s, Int64s]:
    """The due times and ids of timers, which together identify them."""
    return rows["deliver_at_ms"].astype("<i8"), rows["timer_id"].astype("<i8")
