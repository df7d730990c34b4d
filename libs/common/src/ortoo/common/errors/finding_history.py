"""Since when each finding of a process has been seen at every check. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from ortoo.common.errors.findings import Finding

CHECK_INTERVAL_S = 15.0
"""Interval at which a process checks itself."""
GAP_MS_MAX = 60_000
"""After a longer time without a check, nothing is known about the time before."""


class FindingHistory:
    """The time of the first of the consecutive checks that found each problem. It is as large as the last check."""

    def __init__(self) -> None:
        """Begin without a check."""
        self._since_ms: dict[tuple[str, str], int] = {}
        self._seen_from_ms = 0
        self._checked_ms = 0

    def check(self, found: Iterable[Finding], now_ms: int) -> list[Finding]:
        """The findings of a check at this time, each with the time since which it is seen.

        Findings with the same name and subject count as one problem, whatever their texts are.
        """
        if now_ms - self._checked_ms > GAP_MS_MAX or now_ms < self._seen_from_ms:
            self._since_ms, self._seen_from_ms = {}, now_ms
        self._checked_ms = now_ms
        kept = list(found)
        keys = dict.fromkeys((one.name, one.subject) for one in kept)
        self._since_ms = {key: self._since_ms.get(key, now_ms) for key in keys}
        return [
            replace(one, since_ms=self._since_ms[one.name, one.subject], seen_from_ms=self._seen_from_ms)
            for one in kept
        ]
