"""Checks of open transactions: when their producers are asked, a pure decision, and who can ask them."""

from collections.abc import Callable, Set
from dataclasses import dataclass, replace

from ortoo.common.records.sealed_batch import SealedBatch
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


@dataclass(frozen=True, slots=True)
class DueCheck:
    """A transaction whose producers are to be asked, and its messages."""

    half: HalfOpen
    batch: SealedBatch


Ask = Callable[[DueCheck], None]
"""Has a snode ask a producer there."""


class CheckWatchers:
    """All snodes that can ask; those of a group take turns."""

    def __init__(self) -> None:
        """Nobody."""
        self._of_groups: dict[str, dict[Ask, None]] = {}
        """Of each group those that can ask, whose turn is next first."""

    def add(self, groups: Set[str], ask: Ask) -> None:
        """A snode can ask: these groups have a producer there."""
        for group in groups:
            self._of_groups.setdefault(group, {})[ask] = None

    def remove(self, groups: Set[str], ask: Ask) -> None:
        """A snode cannot ask any more; the groups are those that it was added with."""
        for group in groups:
            watchers = self._of_groups[group]
            del watchers[ask]
            if not watchers:
                del self._of_groups[group]

    def has(self, group: str) -> bool:
        """Whether a producer of the group is connected somewhere."""
        return group in self._of_groups

    def ask(self, check: DueCheck) -> bool:
        """Have the next one in turn ask; False when there is none."""
        watchers = self._of_groups.get(check.half.producer_group)
        if watchers is None:
            return False
        ask = next(iter(watchers))
        watchers[ask] = watchers.pop(ask)
        ask(check)
        return True
