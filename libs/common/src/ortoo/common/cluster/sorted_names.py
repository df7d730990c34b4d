"""The names of a directory in order, for lists that are read in pages."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, MutableSequence
from typing import Final, TypeVar

from google.protobuf.message import Message

from ortoo.common.errors import Invalid
from ortoo.common.process.clock import Clock
from ortoo.common.process.long_work import in_slices

LIST_BYTES_MAX: Final = 7 << 20
"""The maximum size of the rows of a list, bytes. The limit of a message is 8 MiB."""
ROW_HEAD_BYTES: Final = 5
Row = TypeVar("Row", bound=Message)
CHANGES_MAX: Final = 100
"""More changes than this at once are cheaper to sort at the next page."""


class SortedNames:
    """The names in a collection, in order. They are sorted at the first page, and then follow the changes."""

    def __init__(self, names: Collection[str]) -> None:
        """Follow `names`, a collection that changes. The caller reports its changes to `update`."""
        self._names = names
        self._sorted: list[str] | None = None

    def update(self, changed: Collection[str]) -> None:
        """Follow a change: `changed` names were added, removed, or kept."""
        if self._sorted is None:
            return
        if len(changed) > CHANGES_MAX:
            self._sorted = None
            return
        for name in changed:
            at = bisect_left(self._sorted, name)
            was_there = at < len(self._sorted) and self._sorted[at] == name
            if was_there and name not in self._names:
                del self._sorted[at]
            elif not was_there and name in self._names:
                insort(self._sorted, name)

    def page(self, after: str = "", limit: int = 0) -> tuple[list[str], str]:
        """The first `limit` names behind `after`, and the `after` of the next page. 0 = all; empty = no next page."""
        if self._sorted is None:
            self._sorted = sorted(self._names)
        first = bisect_right(self._sorted, after) if after else 0
        found = self._sorted[first : first + limit] if limit else self._sorted[first:]
        return found, found[-1] if first + len(found) < len(self._sorted) else ""


async def fill_page(
    page: tuple[list[str], str],
    row_of: Callable[[str], Row | None],
    rows: MutableSequence[Row],
    limit: int,
    clock: Clock,
) -> str:
    """Add the rows of a page of names to a response; returns the `after` of the next page, empty = no next page.

    `row_of` returns None for a name that was removed meanwhile. `limit` is that of the request, 0 = all rows. The event
    loop does other work after each slice. Errors: Invalid if all rows were requested and do not fit into a message.
    """
    names, next_after = page
    size_bytes, last = 0, ""
    async for part in in_slices(names, clock):
        for name in part:
            row = row_of(name)
            if row is None:
                continue
            size_bytes += row.ByteSize() + ROW_HEAD_BYTES
            if size_bytes > LIST_BYTES_MAX and rows:
                if not limit:
                    raise Invalid(
                        f"the complete list is larger than {LIST_BYTES_MAX} bytes; request pages with a limit such as "
                        "1000, each with the previous `next_after` as `after`",
                        field="limit",
                    )
                return last
            rows.append(row)
            last = name
    return next_after
