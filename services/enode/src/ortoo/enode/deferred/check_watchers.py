"""Who can ask the producers of a group: the snodes to which they are connected."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.changes.halves import HalfOpen


@dataclass(frozen=True, slots=True)
class DueCheck:
    """A transaction whose producers are to be asked, and its messages."""

    half: HalfOpen
    batch: SealedBatch


class Watcher:
    """One snode, and the groups that have a producer there."""

    def __init__(self, groups: Iterable[str], ask: Callable[[DueCheck], None]) -> None:
        self.groups = frozenset(groups)
        self.ask = ask


class CheckWatchers:
    """All watchers; those of a group take turns."""

    def __init__(self) -> None:
        """Nobody."""
        self._of_groups: dict[str, dict[Watcher, None]] = {}
        """Of each group those that can ask, whose turn is next first."""

    def add(self, watcher: Watcher) -> None:
        """A snode can ask."""
        for group in watcher.groups:
            self._of_groups.setdefault(group, {})[watcher] = None

    def remove(self, watcher: Watcher) -> None:
        """A snode cannot ask any more."""
        for group in watcher.groups:
            watchers = self._of_groups[group]
            del watchers[watcher]
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
        watcher = next(iter(watchers))
        watchers[watcher] = watchers.pop(watcher)
        watcher.ask(check)
        return True
