"""Keeps the resident memory of a process below the limit of its container or machine. Pure.

The budget counts what clients make a process hold as far as the process knows. It does not know the buffers of gRPC's
core: half of a request, headers that were just received, what lies in a connection. The guard looks at the resident
memory itself. Before the limit it has freed memory given back. Near the limit the process takes no more work, and
connections are ended that sent most of late.
"""

import enum

from ortoo.common.process.memory_budget import MemoryBudget

TENSE_PERCENT = 50
CALM_INTERVAL_S, TENSE_INTERVAL_S = 0.25, 0.05
"""How often to look, below and above TENSE_PERCENT of the limit."""
SHRINK_PERCENT = 65
"""From what part of the limit on freed memory is given back at once."""
SHRINK_INTERVAL_S = 0.5
"""How often it is given back there: it takes milliseconds for each hundred megabytes."""
FULL_PERCENT = 80
"""From what part of the limit on the process takes no more work."""
FRESH_S = 2.0
"""For how long it is known that giving back does not help."""
FREEING_S = 0.3
"""How long it takes until the memory of connections that were ended is free."""
REST_INTERVAL_S, FUTILE_INTERVAL_S = 20.0, 40.0
"""How often freed memory is given back below SHRINK_PERCENT, and how often if there was hardly any the last time."""
REST_GROWTH_BYTES = 48 << 20
"""By how much the process must have grown for that."""
FUTILE_BYTES = 8 << 20
BUSY_PERCENT = 25
"""A process that uses more of its budget keeps freed memory for the next requests."""


class Step(enum.Enum):
    """What to do now."""

    NOTHING = enum.auto()
    SHRINK = enum.auto()
    """Give freed memory back."""
    END_CONNECTIONS = enum.auto()
    """End those that have sent most of late, then give memory back."""


class MemoryGuard:
    """Decides by the resident memory."""

    def __init__(self, budget: MemoryBudget) -> None:
        """`budget` knows the limit, and is closed near it."""
        self._budget = budget
        self._floor_bytes = 0
        """The least that was resident since the process is ready."""
        self._shrunk_at_s = self._ended_at_s = float("-inf")
        self._rest_s = REST_INTERVAL_S
        self.interval_s = CALM_INTERVAL_S
        """How long until the next look."""

    def begin(self, resident_bytes: int, now_s: float) -> None:
        """The process is ready, with so much resident."""
        self._floor_bytes, self._shrunk_at_s = resident_bytes, now_s

    def shrunk(self, before_bytes: int, resident_bytes: int, now_s: float) -> None:
        """Freed memory was given back: so much was resident, and is resident now."""
        self._shrunk_at_s = now_s
        self._floor_bytes = min(self._floor_bytes, resident_bytes)
        self._rest_s = FUTILE_INTERVAL_S if before_bytes - resident_bytes < FUTILE_BYTES else REST_INTERVAL_S

    def look(self, resident_bytes: int, now_s: float) -> Step:
        """What to do, by what is resident now."""
        percent = resident_bytes * 100 // self._budget.limit_bytes
        self.interval_s = TENSE_INTERVAL_S if percent >= TENSE_PERCENT else CALM_INTERVAL_S
        self._budget.is_closed = percent >= FULL_PERCENT
        since_s = now_s - self._shrunk_at_s
        if percent >= FULL_PERCENT:
            # Much of what is resident may be free: that is found out first, unless it was a moment ago.
            if since_s >= FRESH_S or now_s - self._ended_at_s < FREEING_S:
                return Step.SHRINK
            self._ended_at_s = now_s
            return Step.END_CONNECTIONS
        if percent >= SHRINK_PERCENT:
            return Step.SHRINK if since_s >= SHRINK_INTERVAL_S else Step.NOTHING
        has_grown = resident_bytes - self._floor_bytes >= REST_GROWTH_BYTES
        is_busy = self._budget.used_bytes * 100 > self._budget.bytes_max * BUSY_PERCENT
        return Step.SHRINK if has_grown and not is_busy and since_s >= self._rest_s else Step.NOTHING
