"""Offsets in memory on their way to a store."""

from ortoo.client import Queue
from ortoo.client.offsets.store import OffsetTable

QUEUE, OTHER = Queue("t", "enode-0", 0), Queue("t", "enode-1", 0)


def test_concurrent_progress_only_grows_and_a_reset_sets() -> None:
    """E-103: increase-only ignores a smaller offset; a plain update takes it."""
    table = OffsetTable()
    table.update(QUEUE, 10, increase_only=True)
    table.update(QUEUE, 4, increase_only=True)
    assert table[QUEUE] == 10
    table.update(QUEUE, 4)
    assert table[QUEUE] == 4


def test_only_what_the_store_does_not_have_is_sent() -> None:
    """E-108: a round without progress sends nothing; an offset that was refused is sent again."""
    table = OffsetTable()
    table.loaded(QUEUE, 3)
    table.update(OTHER, 5)
    assert table.unstored([QUEUE, OTHER]) == {OTHER: 5}
    assert table.unstored([QUEUE]) == {}
    table.update(QUEUE, 4)
    table.stored({OTHER: 5})
    assert table.unstored([QUEUE, OTHER]) == {QUEUE: 4}


def test_queues_that_are_not_owned_are_forgotten() -> None:
    """E-109: a stale entry never overwrites what the new owner committed."""
    table = OffsetTable()
    table.update(QUEUE, 5)
    table.update(OTHER, 6)
    table.forget(QUEUE)
    assert table[QUEUE] is None
    assert table.unstored([QUEUE, OTHER]) == {OTHER: 6}
    assert table.known() == {OTHER: 6}
