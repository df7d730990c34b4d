"""The rows of a page of a list of topics or groups. A page ends before its message gets too large."""

from collections.abc import Callable, MutableSequence
from typing import Final, TypeVar

from google.protobuf.message import Message

from ortoo.common.errors import Invalid
from ortoo.common.process.clock import Clock
from ortoo.common.process.long_work import in_slices

LIST_BYTES_MAX: Final = 7 << 20
"""The maximum size of the rows of a list, bytes. The limit of a message is 8 MiB."""
ROW_HEAD_BYTES: Final = 5
Row = TypeVar("Row", bound=Message)


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
