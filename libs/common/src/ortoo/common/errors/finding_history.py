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

    def check(self, found: Iterable[Finding], now_ms: int, *, is_usual: bool = True) -> list[Finding]:
        """The findings of a check at this time, each with the time since which it is seen.

        Findings with the same name and subject count as one problem, whatever their texts are. A check that is not as
        thorough as usual changes nothing for later ones. The times of problems that only it has found are not known.
        """
        if not is_usual:
            return [self._dated(one) for one in found]
        if now_ms - self._checked_ms > GAP_MS_MAX or now_ms < self._seen_from_ms:
            self._since_ms, self._seen_from_ms = {}, now_ms
        self._checked_ms = now_ms
        kept = list(found)
        keys = dict.fromkeys((one.name, one.subject) for one in kept)
        self._since_ms = {key: self._since_ms.get(key, now_ms) for key in keys}
        return [self._dated(one) for one in kept]

    def _dated(self, one: Finding) -> Finding:
        since_ms = self._since_ms.get((one.name, one.subject), 0)
        return replace(one, since_ms=since_ms, seen_from_ms=self._seen_from_ms if since_ms else 0)
