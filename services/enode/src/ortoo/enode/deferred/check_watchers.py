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
        self._watchers: list[Watcher] = []

    def add(self, watcher: Watcher) -> None:
        """A snode can ask."""
        self._watchers.append(watcher)

    def remove(self, watcher: Watcher) -> None:
        """A snode cannot ask any more."""
        self._watchers.remove(watcher)

    def has(self, group: str) -> bool:
        """Whether a producer of the group is connected somewhere."""
        return any(group in one.groups for one in self._watchers)

    def ask(self, check: DueCheck) -> bool:
        """Have the next one in turn ask; False when there is none."""
        for watcher in self._watchers:
            if check.half.producer_group in watcher.groups:
                self._watchers.remove(watcher)
                self._watchers.append(watcher)
                watcher.ask(check)
                return True
        return False
