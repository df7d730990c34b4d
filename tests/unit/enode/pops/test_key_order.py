"""Messages that wait for an earlier one of their message group, against a model that examines every message."""

from hypothesis import given
from hypothesis import strategies as st

from ortoo.enode.pops.key_order import KeyOrder
from ortoo.enode.state.interval_map import IntervalMap

SEEN = st.tuples(st.integers(0, 5), st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=12))
"""The number of messages seen again, and the groups of the messages behind them."""
FINISHED = st.tuples(st.integers(0, 24), st.integers(1, 9))
"""(first offset, count)."""


class Model:
    """The message groups of a queue up to the scanned offset, and the finished messages."""

    def __init__(self, begin: int) -> None:
        self.groups: list[str | None] = [None] * begin
        self.done = set(range(begin))

    def heads(self) -> dict[str, int]:
        """The first unfinished message of each group that was seen."""
        found: dict[str, int] = {}
        for offset, group in enumerate(self.groups):
            if group is not None and offset not in self.done:
                found.setdefault(group, offset)
        return found

    def free(self) -> set[int]:
        """The messages that no earlier one blocks."""
        alone = {offset for offset, group in enumerate(self.groups) if group is None}
        return (alone | set(self.heads().values())) - self.done


@given(st.integers(0, 3), st.lists(SEEN | FINISHED, max_size=12))
def test_of_each_message_group_the_first_unfinished_message_is_free(
    begin: int, steps: list[tuple[int, list[str | None] | int]]
) -> None:
    """In any order of finishing, for seen and unseen messages, and for batches seen several times."""
    intervals, model, order = IntervalMap(begin), Model(begin), KeyOrder(begin)
    for number, more in steps:
        before = model.free()
        if isinstance(more, list):
            first = max(order.scan - number, 0)
            seen = model.groups[first:]
            model.groups += more
            freed = order.add(first, [*seen, *more], intervals)
        else:
            intervals.finish(number, number + more)
            model.done |= set(range(number, number + more))
            freed = order.finish(number, number + more, intervals)
            crossed = number + more if number <= len(model.groups) else 0
            model.groups += [None] * (max(intervals.floor, crossed) - len(model.groups))
        assert sorted(freed) == sorted(model.free() - before)
        assert order.scan == len(model.groups)
        heads = model.heads()
        for offset in set(range(len(model.groups))) - model.done:
            group = model.groups[offset]
            assert order.is_free(offset) == (offset in model.free())
            later = range(offset + 1, len(model.groups)) if group is not None and heads[group] == offset else ()
            behind = [one for one in later if model.groups[one] == group and one not in model.done]
            assert [one for one in order.waiting_for(offset) if one not in model.done] == behind
        assert not order.is_free(order.scan)


def test_those_that_wait_are_counted_until_they_are_free() -> None:
    """Or skipped, because they were finished before their turn."""
    intervals, order = IntervalMap(0), KeyOrder(0)
    assert order.add(0, ["a", "a", "a", "b", None], intervals) == [0, 3, 4]
    assert (order.blocked_count, list(order.waiting_for(0)), order.waiting_for(1), order.waiting_for(3)) == (
        2,
        [1, 2],
        (),
        (),
    )
    intervals.finish(1, 2)
    assert order.finish(1, 2, intervals) == []
    intervals.finish(0, 1)
    assert order.finish(0, 1, intervals) == [2]
    assert (order.blocked_count, order.waiting_for(2), order.waiting_for(0)) == (0, (), ())
    intervals.finish(2, 5)
    assert order.finish(2, 5, intervals) == []
    assert order.add(5, ["a"], intervals) == [5]
