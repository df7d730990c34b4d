"""Pop lines: counters, queries, and set-up from the folded state."""

import pytest

from ortoo.common.groups.pop import LeasePart
from ortoo.enode.changes.pops import OPENING_SHIFT
from ortoo.enode.pops import line as pop_line
from ortoo.enode.pops.line import PopLine
from ortoo.enode.state.interval_map import DeliveryState, Phase
from ortoo.enode.state.tables.pops import PopQueue

OLD, NEW = 1 << OPENING_SHIFT, 2 << OPENING_SHIFT
"""The first numbers of two openings of the store."""


def line(queue: PopQueue | None = None, *, in_order: bool = False) -> PopLine:
    """A line at monotonic time 0, wall time 1,000,000, in the second opening of its store."""
    return PopLine(queue or PopQueue(0), opening=2, now_ms=0, wall_ms=1_000_000, in_order=in_order)


def taken(it: PopLine, now_ms: int, number: int, limit: int = 4, end: int = 10) -> list[tuple[int, int, int]]:
    """The rows that a pop leases for 100 ms."""
    return it.take(now_ms, limit, end, number=number, duration_ms=100).rows


def test_what_consumers_have_is_counted_whatever_becomes_of_it() -> None:
    """Leased, renewed, returned, finished, expired, dropped; and after a start."""
    it = line()
    taken(it, 0, NEW, limit=10)
    assert it.leased_count == 10
    it.renew([(0, 2)], NEW, 50, 100)
    assert it.leased_count == 10
    it.redeliver([(2, 3)], NEW, 50, 1_000)
    assert it.leased_count == 7
    it.finish([(0, 1), (3, 1), (8, 1)], NEW)
    assert it.leased_count == 5
    assert not it.may_have_messages(99, 10)
    assert it.may_have_messages(100, 10)
    assert it.leased_count == 1
    it.drop([(1, 9)])
    assert (it.leased_count, it.intervals.floor, it.cursor, it.next_due_ms()) == (0, 10, 10, 150)
    queue = PopQueue(0)
    queue.intervals.set_state(0, 4, DeliveryState(Phase.LEASED, 1, OLD, 1_000_060, 100))
    queue.intervals.set_state(6, 8, DeliveryState(Phase.RETURNED, 1, OLD, 1_000_060, 100))
    assert line(queue).leased_count == 4


def test_whoever_pops_is_told_how_many_and_a_line_when_something_returns() -> None:
    """The next due time is the end of the first lease."""
    it = line()
    assert (it.next_due_ms(), it.cursor) == (None, 0)
    found = it.take(7, 3, 10, number=NEW, duration_ms=100)
    assert (found.rows, found.count, found.exhausted, found.blocked) == ([(0, 3, 1)], 3, [], "")
    assert (it.next_due_ms(), it.cursor) == (107, 3)
    it.take(8, 3, 10, number=NEW + 1, duration_ms=20)
    assert it.next_due_ms() == 28
    again = it.take(107, 5, 6, number=NEW + 2, duration_ms=100)
    assert (again.rows, again.count) == ([(0, 3, 2), (3, 2, 2)], 5)
    assert it.take(107, 5, 6, number=NEW + 3, duration_ms=100).rows == [(5, 1, 2)]


def test_a_queue_begins_where_its_group_is_and_what_a_crash_took_from_the_log_comes_first() -> None:
    """Messages between leases in the log may have been delivered; this is unknown, so they are delivered as new."""
    queue = PopQueue(5)
    queue.intervals.finish(6, 7)
    queue.intervals.set_state(9, 10, DeliveryState(Phase.RETURNED, 3, OLD, 1_000_010, 50))
    queue.notes[9] = ("me", "an error")
    it = line(queue)
    assert (it.cursor, it.notes) == (10, {9: ("me", "an error")})
    assert taken(it, 0, NEW, limit=9, end=12) == [(5, 1, 1), (7, 2, 1), (10, 2, 1)]
    assert taken(it, 9, NEW + 1, end=12) == []
    assert taken(it, 10, NEW + 2, end=12) == [(9, 1, 4)]
    it.finish([(9, 1)], NEW + 2)
    assert it.notes == {}


def test_the_notes_of_messages_that_are_done_are_forgotten_and_no_others() -> None:
    """Notes beside the ranges stay."""
    it = line()
    it.notes.update(dict.fromkeys(range(6), ("me", "")))
    taken(it, 0, NEW, limit=6)
    it.drop([(1, 1), (3, 2)])
    assert sorted(it.notes) == [0, 2, 5]


def test_a_lease_of_this_opening_counts_only_as_it_was_given() -> None:
    """Unknown leases and replaced ones are stale; one of an earlier opening may be lost in a crash, and counts."""
    it = line()
    taken(it, 0, NEW, limit=2)
    assert it.owned_attempts([(0, 3)], NEW + 5).stale == [0, 1, 2]
    assert it.owned_attempts([(0, 3)], NEW).rows == [(0, 2, 1)]
    assert it.owned_attempts([(2, 1)], OLD).rows == [(2, 1, 1)]
    queue = PopQueue(0)
    queue.intervals.set_state(0, 1, DeliveryState(Phase.RETURNED, 2, OLD, 1_000_000, 50))
    restarted = line(queue)
    assert restarted.owned_attempts([(0, 1)], OLD).stale == [0]
    assert restarted.owned_attempts([(0, 1)], OLD + 1).rows == [(0, 1, 3)]
    assert restarted.owned_attempts([(0, 1)], OLD - 1).stale == [0]
    assert restarted.renew([(0, 1)], OLD + 1, 10, 40).rows == [(0, 1, 3)]
    assert restarted.next_due_ms() == 50
    assert taken(restarted, 49, NEW, end=1) == []
    assert taken(restarted, 50, NEW, end=1) == [(0, 1, 4)]


def test_what_is_given_back_by_a_lease_that_a_crash_took_counts_that_delivery() -> None:
    """Unless the attempt does not count: then it is as if never delivered."""
    for counts, attempt in ((True, 1), (False, 0)):
        it = line()
        assert it.redeliver([(0, 1)], OLD, 5, 20, counts=counts).rows == [(0, 1, attempt)]
        assert taken(it, 24, NEW, limit=1, end=1) == []
        assert taken(it, 25, NEW + 1, limit=1, end=1) == [(0, 1, attempt + 1)]


def test_a_part_is_leased_again_as_the_same_attempt_for_its_whole_time() -> None:
    """Only messages that its lease holds now: none that are finished, returned, expired or leased elsewhere."""
    it = line()
    taken(it, 0, NEW, limit=6)
    it.finish([(1, 1)], NEW)
    it.redeliver([(2, 1)], NEW, 0, 10_000)
    part = LeasePart(0, NEW, ((0, 3), (4, 1)))
    assert it.renew_lease_as(part, NEW + 1, 60, 100) == [(0, 1, 1), (4, 1, 1)]
    assert it.leased_count == 4
    assert it.owned_attempts([(0, 1)], NEW).stale == [0]
    assert it.renew_lease_as(part, NEW + 2, 60, 100) == []
    assert taken(it, 100, NEW + 3, limit=9, end=6) == [(3, 1, 2), (5, 1, 2)]
    assert it.renew_lease_as(LeasePart(0, NEW + 1, ((0, 1),)), NEW + 4, 160, 100) == []
    assert taken(it, 160, NEW + 5, limit=1, end=6) == [(0, 1, 2)]


def test_a_lease_is_over_at_its_end_for_those_who_want_to_know() -> None:
    """As for finished messages; other leases' messages are not counted."""
    it = line()
    taken(it, 0, NEW, limit=4)
    it.finish([(1, 1)], NEW)
    taken(it, 50, NEW + 1, limit=2)
    whole = [(0, 6)]
    assert it.expired_or_finished(whole, NEW, 99) == {1}
    assert it.expired_or_finished(whole, NEW, 100) == {0, 1, 2, 3}
    assert it.expired_or_finished([(0, 2), (3, 3)], NEW, 100) == {0, 1, 3}
    assert it.expired_or_finished(whole, NEW + 1, 150) == {1, 4, 5}
    it.finish([(4, 2)], NEW + 1)
    assert it.expired_or_finished([(3, 3)], NEW + 1, 150) == {4, 5}


def test_messages_of_a_lease_that_is_over_are_not_finished_for_those_who_want_to_know() -> None:
    """They are stale. Finished messages are skipped, and overlapping ranges count once."""
    it = line()
    taken(it, 0, NEW, limit=4)
    taken(it, 50, NEW + 1, limit=2)
    assert it.finish([(0, 1), (1, 1)], NEW, 99).rows == [(0, 1, 1), (1, 1, 1)]
    late = it.finish([(0, 6)], NEW, 100)
    assert (late.rows, late.stale) == ([], [2, 3, 4, 5])
    settled = it.finish([(0, 3), (2, 2)], NEW)
    assert (settled.rows, settled.stale) == ([(2, 1, 1), (3, 1, 1)], [])
    assert it.leased_count == 2


def test_order_is_switched_on_and_off_over_what_is_there() -> None:
    """On: message groups of delivered messages are read again. Off: all free or returned messages are delivered."""
    it = line()
    taken(it, 0, NEW, limit=2)
    it.set_order(False)
    assert taken(it, 0, NEW + 1, limit=1) == [(2, 1, 1)]
    it.finish([(2, 1)], NEW + 1)
    it.set_order(True)
    assert it.keys is not None
    assert (it.cursor, it.needs_message_groups(4), it.needs_message_groups(0)) == (0, True, False)
    it.add_message_groups(0, ["a", "a", "a", "a", "b"])
    assert (it.cursor, it.needs_message_groups(5), it.needs_message_groups(6)) == (5, False, True)
    assert taken(it, 1, NEW + 2, limit=9, end=5) == [(4, 1, 1)]
    it.finish([(0, 1)], NEW)
    assert taken(it, 2, NEW + 3, limit=9, end=5) == []
    assert taken(it, 100, NEW + 4, limit=9, end=5) == [(1, 1, 2)]
    it.redeliver([(1, 1)], NEW + 4, 100, 40)
    keys = it.keys
    it.set_order(True)
    assert it.keys is keys
    it.set_order(False)
    assert it.keys is None
    assert not it.needs_message_groups(10)
    assert taken(it, 101, NEW + 5, limit=9, end=5) == [(3, 1, 1), (4, 1, 2)]
    assert taken(it, 140, NEW + 6, limit=9, end=5) == [(1, 1, 3)]


def test_a_message_that_becomes_free_while_it_waits_for_its_time_comes_at_that_time() -> None:
    """For example a message that was returned before the one in front of it."""
    queue = PopQueue(0)
    queue.intervals.set_state(0, 1, DeliveryState(Phase.LEASED, 1, OLD, 1_000_100, 100))
    queue.intervals.set_state(1, 2, DeliveryState(Phase.RETURNED, 1, OLD, 1_000_050, 100))
    queue.intervals.set_state(2, 3, DeliveryState(Phase.RETURNED, 1, OLD, 1_000_010, 100))
    it = line(queue, in_order=True)
    it.add_message_groups(0, ["a", "a", "b"])
    assert taken(it, 10, NEW, end=3) == [(2, 1, 2)]
    it.drop([(0, 1)])
    assert taken(it, 49, NEW + 1, end=3) == []
    assert taken(it, 50, NEW + 2, end=3) == [(1, 1, 2)]


def test_one_pop_may_bring_several_messages_of_a_message_group_one_behind_another() -> None:
    """With the heads it leases the messages directly behind, up to one leased elsewhere or waiting; no last attempt."""
    it = line(in_order=True)
    it.add_message_groups(0, ["a", "a", "b", "a", "b", "c", "a"])
    heads: list[int] = []
    found = it.take(0, 5, 7, number=NEW, duration_ms=100, attempts_max=3, heads=heads)
    assert heads == [0, 2, 5]
    assert found.rows == [(0, 1, 1), (2, 1, 1), (5, 1, 1), (1, 1, 1), (3, 1, 1)]
    assert it.leased_count == 5
    again = it.take(0, 5, 7, number=NEW, duration_ms=100, attempts_max=3, heads=heads)
    assert again.rows == [(6, 1, 1), (4, 1, 1)]
    other = it.take(0, 5, 7, number=NEW + 1, duration_ms=100, attempts_max=3, heads=[0])
    assert other.rows == []
    it.redeliver([(1, 1)], NEW, 10, 50)
    it.redeliver([(3, 1), (6, 1)], NEW, 10, 0)
    assert it.take(20, 5, 7, number=NEW, duration_ms=100, attempts_max=3, heads=[0]).rows == []
    assert it.take(60, 5, 7, number=NEW, duration_ms=100, attempts_max=3, heads=[0]).rows == [
        (1, 1, 2),
        (3, 1, 2),
        (6, 1, 2),
    ]
    it.redeliver([(3, 1)], NEW, 70, 0)
    it.redeliver([(6, 1)], NEW, 70, 0)
    assert it.take(80, 5, 7, number=NEW, duration_ms=100, attempts_max=2, heads=[0]).rows == []


def test_what_had_all_its_attempts_takes_room_and_is_leased_for_whoever_parks_it() -> None:
    """Exhausted messages count towards the pop's limit; without a limit of attempts none is exhausted."""
    it = line()
    taken(it, 0, NEW, limit=3, end=4)
    it.redeliver([(1, 1)], NEW, 0, 0, counts=False)
    found = it.take(100, 3, 4, number=NEW + 1, duration_ms=100, attempts_max=1)
    assert (found.rows, found.exhausted, found.count) == ([(1, 1, 1)], [(0, 1, 1), (2, 1, 1)], 1)
    assert it.leased_count == 3
    assert it.take(200, 2, 4, number=NEW + 2, duration_ms=100).rows == [(0, 1, 2), (1, 1, 2)]


@pytest.mark.parametrize("in_order", [False, True])
def test_so_many_may_be_unfinished_and_no_more(in_order: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are delivered up to the limit; then the number is reported."""
    monkeypatch.setattr(pop_line, "UNFINISHED_MAX", 3)
    it = line(in_order=in_order)
    if in_order:
        it.add_message_groups(0, [None] * 3)
    assert it.may_have_messages(0, 9)
    assert taken(it, 0, NEW, limit=9, end=9) == ([(0, 1, 1), (1, 1, 1), (2, 1, 1)] if in_order else [(0, 3, 1)])
    found = it.take(1, 9, 9, number=NEW + 1, duration_ms=100)
    assert (found.rows, found.blocked) == ([], "3 messages are delivered and not finished")
    assert not it.may_have_messages(1, 9)
    assert not it.needs_message_groups(9)
    it.finish([(1, 1)], NEW)
    assert it.may_have_messages(1, 9)
    assert it.take(1, 9, 3, number=NEW + 1, duration_ms=100).blocked == ""


def test_so_many_may_wait_for_earlier_ones_of_their_message_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then no message behind them is read, and the reason is reported."""
    monkeypatch.setattr(pop_line, "SCANNED_MAX", 2)
    it = line(in_order=True)
    it.add_message_groups(0, ["a", "a"])
    assert taken(it, 0, NEW, end=9) == [(0, 1, 1)]
    assert it.needs_message_groups(9)
    it.add_message_groups(2, ["a"])
    assert not it.needs_message_groups(9)
    found = it.take(0, 4, 9, number=NEW + 1, duration_ms=100)
    assert (found.rows, found.blocked) == ([], "2 messages wait for earlier ones of their message groups")
    assert it.take(0, 4, 3, number=NEW + 1, duration_ms=100).blocked == ""
    it.finish([(0, 1)], NEW)
    assert it.needs_message_groups(9)


def test_what_is_given_back_late_keeps_back_nothing_that_came_back_with_it() -> None:
    """Of messages whose leases expired together, a delayed one is skipped."""
    it = line()
    taken(it, 0, NEW, limit=4, end=4)
    assert it.may_have_messages(100, 4)
    it.redeliver([(0, 1)], NEW, 100, 50)
    assert taken(it, 100, NEW + 1, end=4) == [(1, 3, 2)]
    assert taken(it, 150, NEW + 2, end=4) == [(0, 1, 2)]


def test_a_message_whose_time_came_while_it_was_kept_back_comes_when_it_is_free() -> None:
    """It was not offered in between."""
    queue = PopQueue(0)
    queue.intervals.set_state(0, 1, DeliveryState(Phase.LEASED, 1, OLD, 1_000_100, 100))
    queue.intervals.set_state(1, 2, DeliveryState(Phase.RETURNED, 1, OLD, 1_000_010, 100))
    it = line(queue, in_order=True)
    it.add_message_groups(0, ["a", "a"])
    assert taken(it, 20, NEW, end=2) == []
    it.drop([(0, 1)])
    assert taken(it, 20, NEW + 1, end=2) == [(1, 1, 2)]
