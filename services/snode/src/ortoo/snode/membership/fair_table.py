"""A limited table whose entries belong to users or addresses, so that none of them can fill it alone."""

from collections import Counter
from typing import TypeVar

from ortoo.common.errors import Overloaded

Entry = TypeVar("Entry")
USED_PER_FREE = 4
"""An owner may have this number of entries for each free one: one owner alone fills four fifths of a table."""


class FairTable(dict[str, Entry]):
    """A table of entries by id, in which no owner can occupy all space. Only `put` and `remove` change it.

    An owner without an entry is refused only when no entry is free. One greedy owner leaves a fifth of the table to
    others; a second one leaves a fifth of that fifth.
    """

    def __init__(self, capacity: int, kind: str) -> None:
        """`kind` names the entries in the plural, with their verb: "sessions are open"."""
        self.capacity = capacity
        self._kind = kind
        self._owners: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def check(self, owner: str) -> None:
        """Refuse a further entry for `owner` if it has too many. Errors: Overloaded."""
        free, used = self.capacity - len(self), self._counts[owner]
        if free <= 0:
            raise Overloaded(f"{len(self)} {self._kind} on this snode; use another snode", retry_after_ms=5_000)
        if used >= USED_PER_FREE * free:
            raise Overloaded(
                f"{len(self)} {self._kind} on this snode, {used} of them from {owner.removeprefix('@')}. "
                f"The last {free} are for others; close some, or use another snode",
                retry_after_ms=5_000,
            )

    def put(self, key: str, entry: Entry, owner: str) -> None:
        """Add an entry under a new id (`key`). Errors: Overloaded. After an error, the table is unchanged."""
        self.check(owner)
        self[key] = entry
        self._owners[key] = owner
        self._counts[owner] += 1

    def remove(self, key: str) -> Entry | None:
        """Remove and return the entry with this id; None if there is none."""
        owner = self._owners.pop(key, None)
        if owner is None:
            return None
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]
        return self.pop(key)
