"""Many ids or names in several SQL statements, each of which has a limited number of them."""

from collections.abc import Collection, Iterator
from typing import TypeVar

IDS_IN_STATEMENT = 500
T = TypeVar("T")


def in_batches(ids: Collection[T]) -> Iterator[list[T]]:
    """Split ids or names into lists, each short enough for one SQL statement."""
    listed = list(ids)
    return (listed[start : start + IDS_IN_STATEMENT] for start in range(0, len(listed), IDS_IN_STATEMENT))
