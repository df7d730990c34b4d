"""The interval map of a group's finished and held messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.process.randomness import Randomness
from ortoo.enode.state.interval_map import DeliveryState, IntervalMap, Phase

LENGTH = 40
RANGES = st.tuples(st.integers(0, LENGTH), st.integers(0, 12), st.one_of(st.none(), st.integers(1, 4)))


def hold(number: int) -> DeliveryState:
    """A distinguishable hold."""
    return DeliveryState(Phase.LEASED, 1, number, 100, 10)


@given(st.integers(0, 5), st.lists(RANGES, max_size=40))
def test_spans_say_what_one_cell_an_offset_says(floor: int, steps: list[tuple[int, int, int | None]]) -> None:
    """Any holds and finishes have the same result as one cell an offset, where finished is final."""
    compare(floor, steps)


@pytest.mark.parametrize("seed", range(4))
def test_many_short_spans_in_little_room_say_the_same(seed: int) -> None:
    """Most of them touch, cover or split others."""
    chance = Randomness(seed)
    for _ in range(60):
        steps = [
            (chance.below(14), chance.below(7), None if chance.below(3) == 0 else 1 + chance.below(2))
            for _ in range(14)
        ]
        compare(0, steps)


def compare(floor: int, steps: list[tuple[int, int, int | None]]) -> None:
    """Apply the steps to the map and to cells."""
    intervals = IntervalMap(floor)
    cells: list[object] = ["finished" if offset < floor else None for offset in range(LENGTH + 20)]
    for first, count, number in steps:
        for offset in range(first, first + count):
            if cells[offset] != "finished":
                cells[offset] = "finished" if number is None else hold(number)
        if number is None:
            intervals.finish(first, first + count)
        else:
            intervals.set_state(first, first + count, hold(number))
        seen: list[object] = ["finished"] * len(cells)
        for piece in intervals.unfinished(0, len(cells)):
            seen[piece.first : piece.end] = [piece.state] * (piece.end - piece.first)
        assert seen == cells
        assert [intervals.is_finished(offset) for offset in range(len(cells))] == [one == "finished" for one in cells]
        first_open = next((at for at, one in enumerate(cells) if one != "finished"), len(cells))
        assert intervals.floor == first_open
        above = cells[intervals.floor :]
        finished = [piece for piece in intervals.rows(intervals.floor, len(cells)) if piece.state is None]
        assert sum(piece.end - piece.first for piece in finished) == above.count("finished")
        assert intervals.delivered_count == sum(isinstance(one, DeliveryState) for one in above)


def test_finished_neighbours_become_one_span() -> None:
    """Acknowledging messages one by one behind an unfinished one costs a single interval."""
    intervals = IntervalMap(0)
    intervals.set_state(0, 1000, hold(1))
    for offset in range(999, 0, -1):
        intervals.finish(offset, offset + 1)
    assert len(intervals) == 2
    intervals.finish(0, 1)
    assert (len(intervals), intervals.floor) == (0, 1000)
