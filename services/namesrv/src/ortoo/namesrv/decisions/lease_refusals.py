"""The processes that were recently refused a lease. Pure: `now_s` is monotonic seconds."""

from collections.abc import Iterator

from ortoo.common.cluster.refused import refused
from ortoo.common.errors import Conflict, Fenced
from ortoo.common.errors.findings import Finding

RETENTION_S = 30.0
"""Longer than the interval at which a refused process retries."""
PROCESSES_MAX = 100


class LeaseRefusals:
    """Remembers each refused process for a while after its last attempt."""

    def __init__(self) -> None:
        """Start empty."""
        self._reasons: dict[str, tuple[Conflict | Fenced, float]] = {}

    def record_refusal(self, process: str, error: Conflict | Fenced, now_s: float) -> None:
        """Remember that a process got no lease."""
        if process in self._reasons or len(self._recent(now_s)) < PROCESSES_MAX:
            self._reasons[process] = (error, now_s + RETENTION_S)

    def record_acceptance(self, process: str) -> None:
        """Forget a process that got its lease."""
        self._reasons.pop(process, None)

    def findings(self, now_s: float) -> Iterator[Finding]:
        """The refused processes with the reasons."""
        for who, (error, _) in sorted(self._recent(now_s).items()):
            yield refused(f"{who} was refused: {error.message}", error)

    def _recent(self, now_s: float) -> dict[str, tuple[Conflict | Fenced, float]]:
        self._reasons = {who: one for who, one in self._reasons.items() if one[1] > now_s}
        return self._reasons
