"""When the producers of an open transaction are asked: a pure decision."""

from dataclasses import dataclass, replace

from ortoo.enode.changes.halves import HalfOpen

INTERVAL_FACTOR_MAX = 120
"""The interval between two checks grows to so many times the first."""


@dataclass(frozen=True, slots=True)
class CheckSchedule:
    """How soon, how often and how many times."""

    first_after_ms: int = 6_000
    interval_ms: int = 30_000
    """Doubles from check to check."""
    checks_max: int = 15

    def first_check_ms(self, now_ms: int, after_ms: int = 0) -> int:
        """When a new transaction is checked first; the producer may ask for another delay than the usual one."""
        return now_ms + (after_ms or self.first_after_ms)

    def checked(self, half: HalfOpen, now_ms: int) -> HalfOpen:
        """The transaction after one more check; after the last one it is parked instead."""
        if half.checks >= self.checks_max:
            return replace(half, parked=True)
        factor = min(1 << min(half.checks, 16), INTERVAL_FACTOR_MAX)
        return replace(half, checks=half.checks + 1, next_check_ms=now_ms + self.interval_ms * factor)

    def resumed(self, half: HalfOpen, now_ms: int) -> HalfOpen:
        """The transaction with all its checks before it again, the first one now."""
        return replace(half, parked=False, checks=0, next_check_ms=now_ms)
