"""The names of a directory in order, for lists that are read in pages."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Final

CHANGED_MAX: Final = 1_000
"""More changed names than this at once are cheaper to sort at the next page."""
MOVES_MAX: Final = 100
"""More added names and runs of removed names than this at once are cheaper to sort. Each moves the names behind it."""
PART_NAMES: Final = 250
"""The number of names that are sorted in the first steps of `sort`."""


class SortedNames:
    """The names in a collection, in order. They are sorted at the first page, and then follow the changes."""

    def __init__(self, names: Collection[str]) -> None:
        """Follow `names`, a collection that changes. The caller reports its changes to `update`."""
        self._names = names
        self._sorted: list[str] | None = None
        self._missed: list[set[str]] = []
        """For each `sort` in progress the names that have changed since it began."""

    def sort(self) -> Iterator[None]:
        """Sort the names for the next page, if they are not sorted, in steps between which they may change.

        Without this, the page sorts all names at once. The longest step compares each name about twice.
        """
        if self._sorted is not None:
            return
        missed, names = set[str](), list(self._names)
        self._missed.append(missed)
        try:
            parts = []
            for first in range(0, len(names), PART_NAMES):
                parts.append(sorted(names[first : first + PART_NAMES]))
                yield
            while len(parts) > 1:
                pairs, parts = [parts[first : first + 2] for first in range(0, len(parts), 2)], []
                for pair in pairs:
                    parts.append(sorted(chain(*pair)))  # it finds the sorted parts, and merges them
                    yield
        finally:
            self._missed = [one for one in self._missed if one is not missed]
        if self._sorted is None:  # otherwise a page, or another call of this, has sorted them meanwhile
            self._sorted = parts[0] if parts else []
            self.update(missed)

    def update(self, changed: Collection[str]) -> None:
        """Follow a change: `changed` names were added, removed, or kept."""
        for missed in self._missed:  # also while the names are sorted, because a later change may end that
            missed.update(changed)
        if self._sorted is None:
            return
        if len(changed) > CHANGED_MAX:
            self._sorted = None
            return
        added, removed = [], []
        for name in set(changed):
            at = bisect_left(self._sorted, name)
            was_there = at < len(self._sorted) and self._sorted[at] == name
            if was_there and name not in self._names:
                removed.append(at)
            elif not was_there and name in self._names:
                added.append(name)
        gone = list(_runs(sorted(removed)))
        if len(added) + len(gone) > MOVES_MAX:
            self._sorted = None
            return
        for first, end in reversed(gone):
            del self._sorted[first:end]
        for name in added:
            insort(self._sorted, name)

    def page(self, after: str = "", limit: int = 0) -> tuple[list[str], str]:
        """The first `limit` names behind `after`, and the `after` of the next page. 0 = all; empty = no next page."""
        if self._sorted is None:
            self._sorted = sorted(self._names)
        first = bisect_right(self._sorted, after) if after else 0
        found = self._sorted[first : first + limit] if limit else self._sorted[first:]
        return found, found[-1] if first + len(found) < len(self._sorted) else ""


def _runs(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The runs of consecutive numbers in sorted ones, each with its first number and its end."""
    first = end = -1
    for place in places:
        if place != end:
            if end > first:
                yield first, end
            first = place
        end = place + 1
    if end > first:
        yield first, end
