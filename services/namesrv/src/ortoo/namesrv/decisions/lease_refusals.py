"""The processes that were recently refused a lease. Pure: `now_s` is monotonic seconds."""

from collections.abc import Iterator

from ortoo.common.cluster.refused import refused
from ortoo.common.errors import Conflict, Fenced
from ortoo.common.errors.findings import Finding

RETENTION_S = 30.0
"""Longer than the interval at which a refused process retries."""
PROCESSES_MAX = 100


class LeaseRefusals:
    """The processes that were refused a lease a short time ago, with the reasons."""

    def __init__(self) -> None:
        """Start empty."""
        self._reasons: dict[str, tuple[Conflict | Fenced, float]] = {}

    def record_refusal(self, process: str, error: Conflict | Fenced, now_s: float) -> None:
        """Record that a process was refused a lease."""
        if process in self._reasons or len(self._recent(now_s)) < PROCESSES_MAX:
            self._reasons[process] = (error, now_s + RETENTION_S)

    def record_acceptance(self, process: str) -> None:
        """Forget the refusals of a process, because it got a lease."""
        self._reasons.pop(process, None)

    def findings(self, now_s: float) -> Iterator[Finding]:
        """Yield a finding for each refused process, with the reason."""
        for who, (error, _) in sorted(self._recent(now_s).items()):
            yield refused(f"{who} was refused: {error.message}", error)

    def _recent(self, now_s: float) -> dict[str, tuple[Conflict | Fenced, float]]:
        self._reasons = {who: one for who, one in self._reasons.items() if one[1] > now_s}
        return self._reasons
