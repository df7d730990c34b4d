"""Cutting and filtering stored batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.filters.message_filter import compile_filter
from ortoo.common.filters.selection import select_rows
from ortoo.common.records.batch import Message, encode
from ortoo.common.records.sealed_batch import StoredBatch


def stored(first_offset: int, tags: list[str]) -> StoredBatch:
    """A batch with these tags."""
    return StoredBatch(first_offset, 5, encode([Message(b"x", tag) for tag in tags], now_ms=1))


def test_a_whole_batch_passes_with_its_very_bytes() -> None:
    """Without a cut and without a filter the batch is the same object and no rows are named."""
    batch = stored(10, ["a", "b"])
    part = select_rows(batch, 10)
    assert part.batch is batch.batch
    assert (part.rows, part.messages, part.next_offset) == (b"", 2, 12)


@given(
    tags=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=30),
    start=st.integers(-3, 29),
    stop=st.none() | st.integers(1, 40),
    wanted=st.sampled_from(["*", "a", "b||c", "zz"]),
)
def test_rows_are_those_that_a_loop_would_choose(tags: list[str], start: int, stop: int | None, wanted: str) -> None:
    """The selected rows are exactly the matching ones inside the range."""
    count = len(tags)
    start = min(start, count - 1)
    stop = None if stop is None else max(stop, start + 1, 1)
    tag_filter = compile_filter(wanted, "")
    part = select_rows(stored(100, tags), 100 + start, None if stop is None else 100 + stop, tag_filter)
    end = count if stop is None else min(count, stop)
    expected = [row for row in range(max(start, 0), end) if tag_filter is None or tags[row] in wanted.split("||")]
    rows = np.frombuffer(part.rows, "<i4").tolist() if part.rows else list(range(count if part.batch else 0))
    assert rows == expected
    assert part.messages == len(expected)
    assert part.next_offset == 100 + end


@pytest.mark.parametrize("from_offset", [100, 101])
def test_nothing_wanted_means_no_batch(from_offset: int) -> None:
    """When no row matches, only the offset moves on."""
    part = select_rows(stored(100, ["a", "a"]), from_offset, message_filter=compile_filter("b", ""))
    assert (part.batch, part.messages, part.next_offset) == (None, 0, 102)
