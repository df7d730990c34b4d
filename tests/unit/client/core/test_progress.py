"""The progress of processing in a queue."""

from hypothesis import given
from hypothesis import strategies as st

from ortoo.client.core.progress import BatchProgress, QueueProgress


def test_the_smallest_unfinished_message_is_acknowledged() -> None:
    """E-148: while 5, 6 and 7 finish before 4, the offset stays 4. Then it is 8."""
    progress = QueueProgress()
    batch = BatchProgress(range(3, 8), 8)
    progress.add_batch(batch)
    assert batch.finish(0) == 1
    assert progress.take_commit_offset() == 4
    for index in (2, 3, 4):
        batch.finish(index)
    assert progress.take_commit_offset() is None
    batch.finish(1)
    assert progress.take_commit_offset() == 8
    assert progress.take_commit_offset() is None


def test_a_message_finishes_once() -> None:
    """A second acknowledgement of a message, or of the batch around it, counts nothing."""
    batch = BatchProgress(range(4), 4)
    assert [batch.finish(2), batch.finish(2), batch.finish_all(), batch.finish(1)] == [1, 0, 3, 0]
    assert batch.is_finished


def test_offsets_of_unwanted_messages_are_passed_in_order() -> None:
    """A delivery without messages advances the offset only after everything before it is finished."""
    progress = QueueProgress()
    batch = BatchProgress([2, 7], 10)
    progress.add_batch(batch)
    progress.add_batch(BatchProgress([], 50))
    assert progress.take_commit_offset() is None
    batch.finish(0)
    assert progress.take_commit_offset() == 7
    batch.finish_all()
    assert progress.take_commit_offset() == 50


def test_offsets_that_only_move_on_are_remembered_together() -> None:
    """Millions of them may follow a slow message; a later delivery does not lose them."""
    progress = QueueProgress()
    first, last = BatchProgress([2], 3), BatchProgress([2_000], 2_001)
    progress.add_batch(first)
    for offset in range(4, 1_001):
        progress.add_batch(BatchProgress([], offset))
    progress.add_batch(last)
    assert len(progress._batches) == 3
    first.finish_all()
    assert progress.take_commit_offset() == 1_000
    last.finish_all()
    assert progress.take_commit_offset() == 2_001


def test_progress_begins_where_consuming_began() -> None:
    """With a start offset nothing is reported before the first message is finished."""
    progress = QueueProgress(100)
    assert (progress.commit_offset, progress.take_commit_offset()) == (100, None)
    progress.add_batch(BatchProgress(range(100, 101), 101))
    assert progress.commit_offset == 100


@given(st.lists(st.integers(1, 5), max_size=6), st.randoms(use_true_random=False))
def test_whatever_finishes_when_nothing_unfinished_is_ever_reported(sizes: list[int], order: object) -> None:
    """E-148: in random orders no reported offset passes an unfinished message, and the last one is the end."""
    progress, at, open_ = QueueProgress(), 0, []
    for size in sizes:
        batch = BatchProgress(range(at, at + size), at + size)
        progress.add_batch(batch)
        open_ += [(batch, index, at + index) for index in range(size)]
        at += size
    order.shuffle(open_)  # type: ignore[attr-defined]
    last = -1
    while open_:
        batch, index, _ = open_.pop()
        batch.finish(index)
        said = progress.take_commit_offset()
        smallest = min((offset for _, _, offset in open_), default=at)
        if said is not None:
            assert last < said <= smallest
            last = said
    assert last == (at if sizes else -1)


def test_what_is_not_finished_is_counted_and_the_bytes_of_a_delivery_go_with_its_last_message() -> None:
    """Credit and limits depend on it: the oldest unfinished message keeps its whole delivery in memory."""
    progress = QueueProgress()
    first, second = BatchProgress([3, 5], 6, 100), BatchProgress(range(6, 9), 9, 50)
    progress.add_batch(first)
    progress.add_batch(second)
    progress.add_batch(BatchProgress([], 20))
    assert (progress.messages, progress.size_bytes, progress.first_unfinished_offset) == (5, 150, 3)
    assert progress.finish(second, second.finish_all()) == 50
    assert progress.finish(first, first.finish(0)) == 0
    assert (progress.messages, progress.size_bytes, progress.first_unfinished_offset) == (1, 100, 5)
    assert progress.finish(first, first.finish(1)) == 100
    assert (progress.messages, progress.size_bytes, progress.first_unfinished_offset) == (0, 0, None)
    assert progress.commit_offset == 20
