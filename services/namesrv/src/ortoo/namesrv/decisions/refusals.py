"""Which processes asked for a lease lately and got none. Pure: `now_s` is monotonic seconds."""

from collections.abc import Mapping

KEPT_S = 30.0
"""Longer than it takes a refused process to ask again."""
PROCESSES_MAX = 100


class Refusals:
    """Remembers each for a while after its last try."""

    def __init__(self) -> None:
        """Nobody was refused."""
        self._reasons: dict[str, tuple[str, float]] = {}

    def refused(self, who: str, reason: str, now_s: float) -> None:
        """A process got no lease."""
        if who in self._reasons or len(self.all(now_s)) < PROCESSES_MAX:
            self._reasons[who] = (reason, now_s + KEPT_S)

    def accepted(self, who: str) -> None:
        """It has one now."""
        self._reasons.pop(who, None)

    def all(self, now_s: float) -> Mapping[str, str]:
        """Who was refused, and why."""
        self._reasons = {who: one for who, one in self._reasons.items() if one[1] > now_s}
        return {who: reason for who, (reason, _) in self._reasons.items()}
