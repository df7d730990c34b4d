"""Timers of one stretch of time, packed: 29 bytes each, in the order of their ids."""

import enum

import numpy as np
from numpy.typing import NDArray

ROW = np.dtype(
    [("deliver_at_ms", "<i8"), ("timer_id", "<i8"), ("place", "<i8"), ("destination", "<u4"), ("hold", "u1")]
)
"""One timer; `destination` is a number that `Timers` gives to a queue."""
Rows = NDArray[np.void]
Int64s = NDArray[np.int64]
NEVER_MS = (1 << 63) - 1
"""When a timer is due that is no more."""
_COMPACT_MIN = 64


class Hold(enum.IntEnum):
    """What is being done with a timer. In memory alone: after a start every timer is free."""

    FREE = 0
    STAGED = 1
    """Its message is in memory and waits for its time."""
    FIRING = 2
    """Its message is on its way to its queue."""
    RECALLING = 3
    """Its end is on its way to the disk."""
    MOVING = 4
    """Its message is being stored again, because its segment is to be deleted."""
    UNREADABLE = 5
    """The bytes of its message are damaged."""


class TimerBucket:
    """A growing table of timers. Dead ones stay until there are many of them."""

    __slots__ = ("_data", "_last_id", "live")

    def __init__(self) -> None:
        """No timers."""
        self._data = bytearray()
        self._last_id = -1
        self.live = 0
        """How many timers there are."""

    @property
    def table(self) -> Rows:
        """All rows, the dead ones too, by id; a view that must not outlive the next change."""
        return np.frombuffer(self._data, ROW)

    @property
    def rows(self) -> int:
        """How many rows the table has, the dead ones too."""
        return len(self._data) // ROW.itemsize

    def live_rows(self, start: int = 0, stop: int | None = None) -> Rows:
        """A copy of the timers that are, of all rows or of those from `start` to `stop`."""
        table = self.table[start:stop]
        rows: Rows = table[table["deliver_at_ms"] != NEVER_MS]
        return rows

    def put(self, rows: Rows) -> None:
        """Add timers, in the order of their ids; those that are here already get their new place."""
        if int(rows["timer_id"][0]) > self._last_id:
            self._data += rows.tobytes()
            self.live += len(rows)
        else:
            known, found = self._find(rows["timer_id"])
            table = self.table
            table["place"][known] = rows["place"][found]
            del table
            rows = rows[~found]
            if not len(rows):
                return
            merged = np.concatenate([self.table, rows])
            merged = merged[np.argsort(merged["timer_id"], kind="stable")]
            self._data = bytearray(merged.tobytes())
            self.live += len(rows)
        self._last_id = max(self._last_id, int(rows["timer_id"][-1]))

    def end(self, ids: Int64s) -> int:
        """Forget timers; those that are not here are passed over. Returns how many were."""
        at, _ = self._find(ids)
        table = self.table
        at = at[table["deliver_at_ms"][at] != NEVER_MS]
        table["deliver_at_ms"][at] = NEVER_MS
        self.live -= len(at)
        rows = len(table)
        del table
        if rows > _COMPACT_MIN and self.live < rows // 2:
            self._data = bytearray(self.live_rows().tobytes())
        return len(at)

    def holds(self, ids: Int64s) -> NDArray[np.uint8]:
        """What is being done with each of these timers; 255 = it is no more."""
        result = np.full(len(ids), 255, np.uint8)
        at, found = self._find(ids)
        table = self.table
        alive = table["deliver_at_ms"][at] != NEVER_MS
        result[np.flatnonzero(found)[alive]] = table["hold"][at[alive]]
        return result

    def hold(self, ids: Int64s, hold: Hold) -> None:
        """Note what is being done with timers."""
        at, _ = self._find(ids)
        self.table["hold"][at] = hold

    def due(self, until_ms: int, limit: int) -> Rows:
        """Free timers due before or at a time, a copy of at most so many."""
        table = self.table
        at = np.flatnonzero((table["deliver_at_ms"] <= until_ms) & (table["hold"] == Hold.FREE))
        return table[at[:limit]]

    def _find(self, ids: Int64s) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Where the rows of those ids are that are here, and which of `ids` these are."""
        known = np.ascontiguousarray(self.table["timer_id"])
        at = np.searchsorted(known, ids)
        found = at < len(known)
        found[found] = known[at[found]] == ids[found]
        return at[found], found
