"""The rules of pop lines one by one. Random schedules are in tests/property."""

from ortoo.enode.changes.pops import OPENING_SHIFT
from ortoo.enode.pops import line as pop_line
from ortoo.enode.pops.line import PopLine
from ortoo.enode.state.interval_map import DeliveryState, Phase
from ortoo.enode.state.tables.pops import PopQueue

OLD, NEW = 1 << OPENING_SHIFT, 2 << OPENING_SHIFT
"""The first numbers of two openings of the store."""


def line(queue: PopQueue | None = None, *, in_order: bool = False, opening: int = 2) -> PopLine:
    """A line at monotonic time 0, wall time 1,000,000."""
    return PopLine(queue or PopQueue(0), opening=opening, now_ms=0, wall_ms=1_000_000, in_order=in_order)


def taken(it: PopLine, now_ms: int, number: int, limit: int = 4, end: int = 10) -> list[tuple[int, int, int]]:
    """The rows that a pop leases for 100 ms."""
    return it.take(now_ms, limit, end, number=number, duration_ms=100).rows


def test_a_lease_that_runs_out_comes_back_with_the_next_attempt() -> None:
    """Not before its end, and before new messages."""
    it = line()
    assert taken(it, 0, NEW) == [(0, 4, 1)]
    assert taken(it, 99, NEW + 1, limit=2) == [(4, 2, 1)]
    assert it.next_due_ms() == 100
    assert taken(it, 100, NEW + 2, limit=6) == [(0, 4, 2), (6, 2, 1)]


def test_an_acknowledgement_after_the_lease_counts_as_long_as_nobody_has_the_message() -> None:
    """A late acknowledgement counts unless another consumer has the message now."""
    it = line()
    taken(it, 0, NEW)
    taken(it, 150, NEW + 1, limit=2)
    settled = it.finish([(0, 4)], NEW)
    assert settled.rows == [(2, 2, 1)]
    assert settled.stale == [0, 1]


def test_acknowledging_again_does_nothing_and_is_no_error() -> None:
    """The second one has no effect."""
    it = line()
    taken(it, 0, NEW)
    it.finish([(0, 2)], NEW)
    settled = it.finish([(0, 2)], NEW)
    assert (settled.rows, settled.stale) == ([], [])


def test_a_message_given_back_is_not_the_former_consumers_any_more() -> None:
    """Its handle is invalid then; the message is delivered again after the delay."""
    it = line()
    taken(it, 0, NEW, limit=1, end=1)
    assert it.redeliver([(0, 1)], NEW, 10, 50).rows == [(0, 1, 1)]
    assert it.finish([(0, 1)], NEW).stale == [0]
    assert taken(it, 59, NEW + 1, end=1) == []
    assert taken(it, 60, NEW + 2, end=1) == [(0, 1, 2)]


def test_a_release_that_does_not_count_leaves_the_attempt_as_it_was() -> None:
    """A consumer that shuts down releases messages that it never processed."""
    it = line()
    taken(it, 0, NEW, limit=1, end=1)
    it.redeliver([(0, 1)], NEW, 10, 0, counts=False)
    assert taken(it, 10, NEW + 1, end=1) == [(0, 1, 1)]


def test_a_renewed_lease_keeps_its_number_and_its_attempt() -> None:
    """It runs from the renewal on."""
    it = line()
    taken(it, 0, NEW, limit=1, end=1)
    assert it.renew([(0, 1)], NEW, 90, 100).rows == [(0, 1, 1)]
    assert taken(it, 189, NEW + 1, end=1) == []
    assert it.finish([(0, 1)], NEW).rows == [(0, 1, 1)]


def test_all_attempts_used_means_exhausted() -> None:
    """The message is leased for parking, not to a consumer."""
    it = line()
    taken(it, 0, NEW, limit=1, end=1)
    found = it.take(200, 4, 1, number=NEW + 1, duration_ms=100, attempts_max=1)
    assert (found.rows, found.exhausted) == ([], [(0, 1, 1)])


def test_a_start_lets_a_lease_run_for_what_was_left_of_it() -> None:
    """By the wall clock, but at most for its full duration, because clocks may be set back."""
    queue = PopQueue(0)
    queue.intervals.set_state(0, 1, DeliveryState(Phase.LEASED, 1, OLD, 1_000_060, 100))
    queue.intervals.set_state(1, 2, DeliveryState(Phase.LEASED, 1, OLD, 9_000_000, 100))
    queue.intervals.set_state(2, 3, DeliveryState(Phase.LEASED, 1, OLD, 5, 100))
    it = line(queue)
    assert taken(it, 0, NEW, end=3) == [(2, 1, 2)]
    assert taken(it, 60, NEW + 1, end=3) == [(0, 1, 2)]
    assert taken(it, 100, NEW + 2, end=3) == [(1, 1, 2), (2, 1, 3)]


def test_an_acknowledgement_whose_lease_a_crash_took_counts_unless_there_is_a_newer_one() -> None:
    """The consumer did its work; only the record of the lease is lost."""
    it = line()
    assert it.finish([(3, 1)], OLD).rows == [(3, 1, 1)]
    assert taken(it, 0, NEW, limit=6) == [(0, 3, 1), (4, 3, 1)]
    assert it.finish([(0, 1)], OLD).stale == [0]


def test_messages_of_a_message_group_come_one_after_another_and_others_go_on() -> None:
    """G5: the next one is free when the one before is finished, not earlier."""
    it = line(in_order=True)
    it.add_message_groups(0, ["a", "a", "b", None, "a", None])
    assert taken(it, 0, NEW, limit=9, end=6) == [(0, 1, 1), (2, 1, 1), (3, 1, 1), (5, 1, 1)]
    it.finish([(0, 1)], NEW)
    assert taken(it, 0, NEW + 1, limit=9, end=6) == [(1, 1, 1)]
    it.redeliver([(1, 1)], NEW + 1, 0, 10)
    assert taken(it, 9, NEW + 2, limit=9, end=6) == []
    assert taken(it, 10, NEW + 3, limit=9, end=6) == [(1, 1, 2)]


def test_a_start_keeps_message_groups_blocked_that_were() -> None:
    """The message groups of leased messages are read again before any message behind them is free."""
    queue = PopQueue(0)
    queue.intervals.set_state(0, 1, DeliveryState(Phase.LEASED, 1, OLD, 1_000_100, 100))
    it = line(queue, in_order=True)
    it.add_message_groups(0, ["a", "a", "b"])
    assert taken(it, 0, NEW, end=3) == [(2, 1, 1)]
    assert taken(it, 100, NEW + 1, limit=1, end=3) == [(0, 1, 2)]


def test_too_many_unfinished_messages_stop_new_ones_and_say_why() -> None:
    """10,000 of a queue; returned messages are still delivered."""
    it = line()
    it.take(0, 20_000, 50_000, number=NEW, duration_ms=100)
    assert it.leased_count == pop_line.UNFINISHED_MAX
    found = it.take(1, 10, 50_000, number=NEW + 1, duration_ms=100)
    assert found.rows == []
    assert "not finished" in found.blocked
    assert it.take(100, 10, 50_000, number=NEW + 2, duration_ms=100).rows == [(0, 10, 2)]


def test_a_blocked_message_group_is_scanned_past_so_far_and_no_further() -> None:
    """10,000 messages may wait behind it; then the limit is reported."""
    it = line(in_order=True)
    it.add_message_groups(0, ["a"] * 10_001)
    it.take(0, 10, 20_000, number=NEW, duration_ms=100)
    assert not it.needs_message_groups(20_000)
    assert "message groups" in it.take(0, 10, 20_000, number=NEW, duration_ms=100).blocked


def test_a_lost_lease_finishes_only_messages_that_it_can_have_had() -> None:
    """It is in no log, so it counts for messages from before this opening, and if no lost end made it invalid."""

    def started(**limits: int) -> PopLine:
        return PopLine(PopQueue(0), opening=2, now_ms=0, wall_ms=1_000_000, in_order=False, **limits)

    assert started(end_at_opening=3).finish([(2, 2)], OLD).stale == [2, 3]
    assert started(end_at_opening=4).finish([(2, 2)], OLD).rows == [(2, 2, 1)]
    assert started(first_number=OLD + 1).finish([(2, 2)], OLD).stale == [2, 3]
