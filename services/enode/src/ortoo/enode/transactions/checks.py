"""Checks of open transactions: the schedule (a pure decision), and the snodes that can ask producers."""

from collections.abc import Callable, Set
from dataclasses import dataclass, replace

from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.changes.halves import HalfOpen

INTERVAL_FACTOR_MAX = 120
"""The interval between two checks grows up to this multiple of the first."""


@dataclass(frozen=True, slots=True)
class CheckSchedule:
    """The time of a transaction's first check, the interval of checks, and the number of checks."""

    first_after_ms: int = 6_000
    interval_ms: int = 30_000
    """Doubles from check to check."""
    checks_max: int = 15

    def first_check_ms(self, now_ms: int, after_ms: int = 0) -> int:
        """The time of a new transaction's first check; `after_ms` is the producer's own delay (0 = the default)."""
        return now_ms + (after_ms or self.first_after_ms)

    def after_check(self, half: HalfOpen, now_ms: int) -> HalfOpen:
        """The transaction after one more check; after the last one it is parked."""
        if half.checks >= self.checks_max:
            return replace(half, parked=True)
        factor = min(1 << min(half.checks, 16), INTERVAL_FACTOR_MAX)
        return replace(half, checks=half.checks + 1, next_check_ms=now_ms + self.interval_ms * factor)

    def after_resume(self, half: HalfOpen, now_ms: int) -> HalfOpen:
        """The transaction with its checks reset, the first one due now."""
        return replace(half, parked=False, checks=0, next_check_ms=now_ms)


@dataclass(frozen=True, slots=True)
class DueCheck:
    """A transaction whose check is due, and its messages."""

    half: HalfOpen
    batch: SealedBatch


RequestCheck = Callable[[DueCheck], None]
"""Makes a snode ask one of its producers."""


class CheckListeners:
    """The snodes that can ask producers for verdicts; the snodes of a producer group take turns."""

    def __init__(self) -> None:
        """Begin empty."""
        self._of_groups: dict[str, dict[RequestCheck, None]] = {}
        """Producer group to the snodes that can ask it, next in turn first."""
        self.on_added: Callable[[Set[str]], None] = lambda groups: None
        """Called with the groups of each new snode."""

    def add(self, groups: Set[str], request_check: RequestCheck) -> None:
        """Register a snode at which these groups have a producer."""
        for group in groups:
            self._of_groups.setdefault(group, {})[request_check] = None
        self.on_added(groups)

    def remove(self, groups: Set[str], request_check: RequestCheck) -> None:
        """Remove a snode; `groups` are the groups with which it was added."""
        for group in groups:
            watchers = self._of_groups[group]
            del watchers[request_check]
            if not watchers:
                del self._of_groups[group]

    def has_listener(self, group: str) -> bool:
        """Whether a producer of the group is connected to any snode."""
        return group in self._of_groups

    def request_check(self, check: DueCheck) -> bool:
        """Let the next snode in turn ask a producer; False if there is no such snode."""
        watchers = self._of_groups.get(check.half.producer_group)
        if watchers is None:
            return False
        request_check = next(iter(watchers))
        watchers[request_check] = watchers.pop(request_check)
        request_check(check)
        return True
