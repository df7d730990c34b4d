"""Decisions on idempotent batches: next, repeated, gap, overlap, unknown producer."""

import pytest

from ortoo.common.errors import Conflict, Invalid, NotFound, Unavailable
from ortoo.enode.changes.kinds import ExpiredDropped, WindowBatch
from ortoo.enode.state.tables.dedup import Duplicate, Key, Sequencer, SequenceWindowTable
from tests.unit.enode.state.folding import fold

KEY: Key = (1, 2, 3)
DAY_MS = 86_400_000


def sent(
    windows: SequenceWindowTable, sequencer: Sequencer, first: int, count: int, offset: int, at_ms: int = 0
) -> WindowBatch:
    """Store one batch completely."""
    batch = WindowBatch(first, count, offset, at_ms, 77)
    assert sequencer.decide(KEY, first, count, 77, at_ms) is None
    sequencer.add_in_flight(KEY, batch)
    windows.add(KEY, batch)
    sequencer.remove_in_flight(KEY)
    return batch


def test_only_the_next_sequence_is_accepted_and_the_last_five_answer_their_place() -> None:
    """G4: a retry within the window gets the original offset. Older batches are refused and not stored."""
    windows = SequenceWindowTable()
    sequencer = Sequencer(windows, idle_ms=DAY_MS)
    batches = [sent(windows, sequencer, 2 * number, 2, 100 + 2 * number) for number in range(7)]
    for batch in batches[2:]:
        assert sequencer.decide(KEY, batch.first_sequence, 2, 77, 5) == Duplicate(batch, durable=True)
    with pytest.raises(Conflict):
        sequencer.decide(KEY, 0, 2, 77, 5)
    with pytest.raises(Unavailable) as gap:
        sequencer.decide(KEY, 16, 2, 77, 5)
    assert gap.value.retry_after_ms > 0
    with pytest.raises(Invalid):
        sequencer.decide(KEY, 11, 2, 77, 5)
    with pytest.raises(Conflict):
        sequencer.decide(KEY, 12, 2, 78, 5)


def test_a_batch_on_its_way_to_the_disk_is_known() -> None:
    """A retry that overtakes the flush is a duplicate that is not durable yet."""
    sequencer = Sequencer(SequenceWindowTable(), idle_ms=DAY_MS)
    batch = WindowBatch(0, 3, 50, 1, 77)
    assert sequencer.decide(KEY, 0, 3, 77, 1) is None
    sequencer.add_in_flight(KEY, batch)
    assert sequencer.decide(KEY, 0, 3, 77, 1) == Duplicate(batch, durable=False)
    assert sequencer.decide(KEY, 3, 1, 5, 1) is None


def test_an_unknown_producer_must_begin_at_zero() -> None:
    """Without a window a later sequence is refused, because the missing batches are unknown."""
    sequencer = Sequencer(SequenceWindowTable(), idle_ms=DAY_MS)
    with pytest.raises(NotFound) as unknown:
        sequencer.decide(KEY, 4, 1, 0, 1)
    assert unknown.value.field == "batch.producer_id"


def test_a_first_batch_that_was_refused_leaves_a_gap_and_no_unknown_producer() -> None:
    """If the first batch was refused for overload, the second has to wait for it."""
    sequencer = Sequencer(SequenceWindowTable(), idle_ms=DAY_MS)
    assert sequencer.decide(KEY, 0, 1, 0, 1) is None
    with pytest.raises(Unavailable):
        sequencer.decide(KEY, 1, 1, 0, 1)


def test_an_idle_producer_is_forgotten_and_begins_again() -> None:
    """After an idle day the window is dropped: only sequence 0 is accepted."""
    windows = SequenceWindowTable()
    sequencer = Sequencer(windows, idle_ms=DAY_MS)
    sent(windows, sequencer, 0, 2, 10, at_ms=1)
    assert isinstance(sequencer.decide(KEY, 0, 2, 77, DAY_MS), Duplicate)
    with pytest.raises(NotFound):
        sequencer.decide(KEY, 2, 2, 77, DAY_MS + 2)
    assert sequencer.decide(KEY, 0, 1, 5, DAY_MS + 2) is None
    assert windows.idle_before_ms(1, 10) == 0
    assert windows.idle_before_ms(2, 10) == 2
    fold(windows, ExpiredDropped(2, 0))
    assert len(windows) == 0


def test_the_longest_idle_go_when_there_are_too_many() -> None:
    """Memory is bounded by the number of windows."""
    windows = SequenceWindowTable()
    for producer in range(10):
        windows.add((1, 1, producer), WindowBatch(0, 1, producer, 100 + producer, 0))
    fold(windows, ExpiredDropped(windows.idle_before_ms(0, 3), 0))
    assert len(windows) == 3
    assert windows.get((1, 1, 9)) is not None
    assert windows.get((1, 1, 6)) is None
