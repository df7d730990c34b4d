"""Limits how often a log line of one kind is written, so that clients cannot fill the log."""

from typing import Final

LOG_INTERVAL_S: Final = 10.0
"""Minimum interval between two log lines of one kind."""


class LogRateLimit:
    """Limits the log lines of each kind to one in LOG_INTERVAL_S. Kinds are never removed, so callers use few kinds."""

    def __init__(self) -> None:
        self._logged_at_s: dict[str, float] = {}

    def acquire(self, kind: str, now_s: float) -> bool:
        """Whether a line of this kind may be written now. If so, the caller writes it, and the time is recorded."""
        if now_s - self._logged_at_s.get(kind, float("-inf")) < LOG_INTERVAL_S:
            return False
        self._logged_at_s[kind] = now_s
        return True
