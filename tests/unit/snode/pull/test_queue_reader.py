"""Reads of ranges share a memory bound."""

import pytest

from ortoo.snode.enodes.link import FETCH_BYTES_MAX
from ortoo.snode.pull.read_sizes import RANGE_BYTES_MAX, RANGES_BYTES, range_bytes


def test_few_readers_ask_for_several_batches_at_once() -> None:
    """So that a request to the enode returns more than one batch."""
    assert range_bytes(1) == range_bytes(2) == RANGE_BYTES_MAX


@pytest.mark.parametrize("readers", [8, 9, 20, 32])
def test_many_readers_hold_no_more_than_allowed_together(readers: int) -> None:
    """The size of each request shrinks with their number."""
    assert 2 * readers * range_bytes(readers) <= RANGES_BYTES


def test_each_of_very_many_readers_still_gets_a_usual_batch() -> None:
    """A batch is never split, so a smaller request saves nothing."""
    assert range_bytes(10_000) == FETCH_BYTES_MAX
