"""The share of the machine in measured times: the delay of the load generator, and the time taken by the host."""

import os
from dataclasses import dataclass
from pathlib import Path

from ortoo.common.machine.allocator import freeze_startup_objects

LOOK_INTERVAL_S = 1.0
STAT = Path("/proc/stat")
STOLEN_COLUMN = 8


@dataclass
class Machine:
    """Sampled whenever the load sends. Created after the imports, so that the garbage collector skips them."""

    late_s: float = 0.0
    """Largest delay of the load generator: a process that waits for a processor delays all sends by that time."""
    taken_s: float = 0.0
    """Processor time that the host gave to other guests in the worst second."""
    _looked_s: float = float("-inf")
    _stolen_s: float = float("inf")

    def __post_init__(self) -> None:
        """Freeze the objects so far: a full collection would stop a load of some thousand tasks for 0.1 s or more."""
        freeze_startup_objects()

    def look(self, now_s: float, due_s: float) -> None:
        """Record that a step due at `due_s` ran now."""
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
    """Processor seconds that the host took since this machine started; 0 where the kernel does not count them."""
    if not STAT.exists():
        return 0.0
    return int(STAT.read_text().split("\n", 1)[0].split()[STOLEN_COLUMN]) / os.sysconf("SC_CLK_TCK")
