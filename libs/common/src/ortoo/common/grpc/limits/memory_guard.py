"""Keeps the resident memory of a process below the limit of its container or machine; without I/O.

The budget counts the memory that clients use, as far as the process knows it. The process does not know all buffers of
the transport, such as requests of streams that no handler has read. With gRPC's core it knows none of them. The guard
therefore checks the resident memory. When this approaches the limit, freed memory is returned to the system. Near the
limit, the process accepts no work, and the connections that recently sent most are closed.
"""

import enum

from ortoo.common.process.memory_budget import MemoryBudget

TENSE_PERCENT = 50
CALM_INTERVAL_S, TENSE_INTERVAL_S = 0.25, 0.05
"""Intervals between checks, below and above TENSE_PERCENT of the limit."""
SHRINK_PERCENT = 65
"""The percentage of the limit from which freed memory is returned at once."""
SHRINK_INTERVAL_S = 0.5
"""Interval at which memory is returned above SHRINK_PERCENT. It takes milliseconds for each hundred megabytes."""
FULL_PERCENT = 80
"""The percentage of the limit from which the process accepts no work."""
FRESH_S = 2.0
"""Time for which a return of memory that did not help is not repeated."""
FREEING_S = 0.3
"""Time until the memory of closed connections is free."""
REST_INTERVAL_S, FUTILE_INTERVAL_S, FUTILE_INTERVAL_MAX_S = 20.0, 40.0, 640.0
"""Intervals at which freed memory is returned below SHRINK_PERCENT: usually, and after a return that freed little.

A return stops the process for a tenth of a second if thousands of clients wait. Each further return that frees little
doubles the interval up to the maximum. It is shorter again when the process has grown, or uses less of its budget.
"""
REST_GROWTH_BYTES = 48 << 20
"""The growth of the process that is required for a return of memory below SHRINK_PERCENT."""
FUTILE_BYTES = 8 << 20
BUSY_PERCENT = 25
"""A process that uses more than this percentage of its budget keeps freed memory for the next requests."""


class Step(enum.Enum):
    """The next action of the guard's caller."""

    NOTHING = enum.auto()
    SHRINK = enum.auto()
    """Return freed memory to the system."""
    END_CONNECTIONS = enum.auto()
    """Close the connections that recently sent most, then return memory."""


class MemoryGuard:
    """Decides by the resident memory of the process when to return freed memory or to close connections."""

    def __init__(self, budget: MemoryBudget) -> None:
        """`budget` has the memory limit; near the limit, the guard closes the budget for new work."""
        self._budget = budget
        self._floor_bytes = 0
        """The smallest resident memory since the process is ready."""
        self._shrunk_at_s = self._ended_at_s = float("-inf")
        self._rest_s = REST_INTERVAL_S
        self._returned_bytes = 0
        """The resident memory after the last return."""
        self._used_most_bytes = 0
        """The largest use of the budget since the last return."""
        self.interval_s = CALM_INTERVAL_S
        """Time until the next check."""

    def start(self, resident_bytes: int, now_s: float) -> None:
        """Record the resident memory of the process at the time when it is ready."""
        self._floor_bytes = self._returned_bytes = resident_bytes
        self._shrunk_at_s = now_s

    def on_memory_returned(self, before_bytes: int, resident_bytes: int, now_s: float) -> None:
        """Note that freed memory was returned, with the resident memory before and after it."""
        longer_s = 2 * min(self._rest_s, now_s - self._shrunk_at_s)
        self._shrunk_at_s = now_s
        self._floor_bytes = min(self._floor_bytes, resident_bytes)
        self._returned_bytes, self._used_most_bytes = resident_bytes, self._budget.used_bytes
        is_futile = before_bytes - resident_bytes < FUTILE_BYTES
        futile_s = min(max(longer_s, FUTILE_INTERVAL_S), FUTILE_INTERVAL_MAX_S)
        self._rest_s = futile_s if is_futile else REST_INTERVAL_S

    def next_step(self, resident_bytes: int, now_s: float) -> Step:
        """The next action, by the current resident memory."""
        percent = resident_bytes * 100 // self._budget.limit_bytes
        self.interval_s = TENSE_INTERVAL_S if percent >= TENSE_PERCENT else CALM_INTERVAL_S
        self._budget.is_closed = percent >= FULL_PERCENT
        since_s = now_s - self._shrunk_at_s
        if percent >= FULL_PERCENT:
            # Much of the resident memory may be free: that is tried first, unless it was a moment ago.
            if since_s >= FRESH_S or now_s - self._ended_at_s < FREEING_S:
                return Step.SHRINK
            self._ended_at_s = now_s
            return Step.END_CONNECTIONS
        if percent >= SHRINK_PERCENT:
            return Step.SHRINK if since_s >= SHRINK_INTERVAL_S else Step.NOTHING
        return Step.SHRINK if self._may_free_more(resident_bytes) and since_s >= self._rest_s else Step.NOTHING

    def _may_free_more(self, resident_bytes: int) -> bool:
        """Whether a return of memory below SHRINK_PERCENT may help; recent changes make the next one due earlier."""
        used_bytes = self._budget.used_bytes
        self._used_most_bytes = max(self._used_most_bytes, used_bytes)
        has_grown = resident_bytes - self._returned_bytes >= REST_GROWTH_BYTES
        if has_grown or self._used_most_bytes - used_bytes >= FUTILE_BYTES:
            self._rest_s = min(self._rest_s, FUTILE_INTERVAL_S)
        is_busy = used_bytes * 100 > self._budget.bytes_max * BUSY_PERCENT
        return resident_bytes - self._floor_bytes >= REST_GROWTH_BYTES and not is_busy
