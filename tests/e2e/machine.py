"""What the machine itself adds to the times that a load measures: how late the load was, and what the host took."""

import os
from dataclasses import dataclass
from pathlib import Path

from ortoo.common.machine.allocator import spare_what_stays

LOOK_INTERVAL_S = 1.0
STAT = Path("/proc/stat")
STOLEN_COLUMN = 8


@dataclass
class Machine:
    """Looked at whenever the load sends. Made when its imports are done, which the collector passes over then."""

    late_s: float = 0.0
    """How late the load was itself at most: a process that waits for a processor delays everything by as much."""
    taken_s: float = 0.0
    """Processor time that the host gave to others in the worst second: nobody here had it."""
    _looked_s: float = float("-inf")
    _stolen_s: float = float("inf")

    def __post_init__(self) -> None:
        """A look at everything for garbage stops a load of some thousand tasks for a tenth of a second, or more."""
        spare_what_stays()

    def look(self, now_s: float, due_s: float) -> None:
        """Something was done now that was due before."""
        self.late_s = max(self.late_s, now_s - due_s)
        if now_s - self._looked_s >= LOOK_INTERVAL_S:
            self._looked_s, before_s, self._stolen_s = now_s, self._stolen_s, _stolen_s()
            self.taken_s = max(self.taken_s, self._stolen_s - before_s)

    def __str__(self) -> str:
        return (
            f"this process was late by {self.late_s * 1000:.0f} ms, "
            f"the host took up to {self.taken_s * 1000:.0f} ms of processor time a second"
        )


def _stolen_s() -> float:
    """Processor seconds that the host took since this machine started; 0 where nobody counts."""
    if not STAT.exists():
        return 0.0
    return int(STAT.read_text().split("\n", 1)[0].split()[STOLEN_COLUMN]) / os.sysconf("SC_CLK_TCK")
