"""Timers in buckets of a second (near) and of ten minutes (far), with the same results from both."""

import struct
from itertools import islice

import numpy as np
import pytest

from ortoo.enode.changes.kinds import TopicDeleted, decode_changes, encode_changes
from ortoo.enode.changes.timers import TimerEnd, TimersDone, TimersSet
from ortoo.enode.state.tables import timers as timers_module
from ortoo.enode.state.tables.timers import FAR_MS, NEAR_MS, TimerTable
from ortoo.enode.state.timer_bucket import TimerArray, TimerStatus, times_and_ids
from tests.unit.enode.state.folding import fold

NOW_MS = 3_000 * FAR_MS
NO_MORE = 255
SOON_MS, LATER_MS, TOMORROW_MS = NOW_MS + 1_500, NOW_MS + FAR_MS + 7, NOW_MS + 144 * FAR_MS


def column(*numbers: int) -> bytes:
    """The numbers as bytes of a change."""
    return struct.pack(f"<{len(numbers)}q", *numbers)


def int64s(*numbers: int) -> "np.ndarray":
    """The numbers as arrays of queries."""
    return np.array(numbers, "<i8")


def put(timers: TimerTable, topic_id: int, queue_id: int, first: int, *due_ms: int, ids: tuple[int, ...] = ()) -> None:
    """Set timers at the places from `first` on; their ids are the places unless `ids` are given."""
    fold(timers, TimersSet(topic_id, queue_id, first, 0, 0, 5, 6, column(*due_ms), column(*ids)))


def end(timers: TimerTable, *several: tuple[int, int]) -> None:
    """End timers: (due ms, id)."""
    due_ms, ids = zip(*several, strict=True)
    fold(timers, TimersDone(TimerEnd.DELIVERED, column(*due_ms), column(*ids)))


def ids_of(rows: TimerArray) -> list[int]:
    """In the order of the rows."""
    found: list[int] = rows["timer_id"].tolist()
    return found


def some() -> TimerTable:
    """Six timers of two topics: one due now and two far ones of topic 1, three near ones of topic 2."""
    timers = TimerTable()
    timers.advance(NOW_MS)
    put(timers, 1, 0, 10, NOW_MS, LATER_MS, TOMORROW_MS)
    put(timers, 2, 3, 20, SOON_MS, SOON_MS + NEAR_MS, SOON_MS)
    return timers


def test_where_a_timer_lies_is_told_by_topic_and_time() -> None:
    """From both kinds of buckets; equal times are ordered by id."""
    timers = some()
    assert timers.live_count == 6
    assert timers.select(1, 0, 10) == [(NOW_MS, 10, 10, 0), (LATER_MS, 11, 11, 0), (TOMORROW_MS, 12, 12, 0)]
    assert timers.select(2, 0, 10) == [(SOON_MS, 20, 20, 3), (SOON_MS, 22, 22, 3), (SOON_MS + NEAR_MS, 21, 21, 3)]
    assert timers.select(2, 0, 2) == [(SOON_MS, 20, 20, 3), (SOON_MS, 22, 22, 3)]
    assert timers.select(1, NOW_MS + 1, 1) == [(LATER_MS, 11, 11, 0)]
    assert timers.select(1, NOW_MS, 1) == [(NOW_MS, 10, 10, 0)]
    assert timers.select(1, TOMORROW_MS, 5) == [(TOMORROW_MS, 12, 12, 0)]
    assert timers.select(1, TOMORROW_MS + 1, 5) == []
    assert timers.select(3, 0, 10) == []


def test_a_list_begins_in_the_middle_of_a_bucket() -> None:
    """The last millisecond of a bucket belongs to it, the next one does not."""
    timers = TimerTable()
    timers.advance(NOW_MS)
    put(timers, 1, 0, 0, NOW_MS + NEAR_MS - 1, NOW_MS + NEAR_MS, TOMORROW_MS + FAR_MS - 1, TOMORROW_MS + FAR_MS)
    listed = [(at, one) for at, one, _, _ in timers.select(1, NOW_MS + NEAR_MS - 1, 10)]
    assert listed == [
        (NOW_MS + NEAR_MS - 1, 0),
        (NOW_MS + NEAR_MS, 1),
        (TOMORROW_MS + FAR_MS - 1, 2),
        (TOMORROW_MS + FAR_MS, 3),
    ]
    assert [one for _, one, _, _ in timers.select(1, TOMORROW_MS + FAR_MS - 1, 10)] == [2, 3]
    assert [one for _, one, _, _ in timers.select(1, TOMORROW_MS + FAR_MS, 10)] == [3]


def test_taken_is_what_is_due_the_earliest_seconds_first_and_once() -> None:
    """Taken timers are staged, and a second call returns the others; once free, they are taken again."""
    timers = some()
    assert ids_of(timers.take(NOW_MS - 1, 10)) == []
    assert ids_of(timers.take(SOON_MS + NEAR_MS, 2)) == [10, 20]
    assert timers.statuses(int64s(NOW_MS, SOON_MS, SOON_MS), int64s(10, 20, 22)).tolist() == [
        TimerStatus.STAGED,
        TimerStatus.STAGED,
        TimerStatus.FREE,
    ]
    assert ids_of(timers.take(SOON_MS + NEAR_MS, 10)) == [22, 21]
    assert ids_of(timers.take(SOON_MS + NEAR_MS, 10)) == []
    timers.set_status(int64s(SOON_MS), int64s(22), TimerStatus.FREE)
    assert ids_of(timers.take(SOON_MS, 10)) == [22]
    timers.reset_statuses()
    assert sorted(ids_of(timers.take(SOON_MS, 10))) == [10, 20, 22]


def test_one_is_taken_when_one_is_asked_for() -> None:
    """Its row has the destination."""
    rows = some().take(SOON_MS, 1)
    assert ids_of(rows) == [10]
    timers = some()
    rows = timers.take(SOON_MS, 10)
    assert [timers.destination_of(number) for number in rows["destination"].tolist()] == [(1, 0), (2, 3), (2, 3)]


def test_far_timers_come_near_before_their_time() -> None:
    """At least ten minutes before; they have no holds until then."""
    timers = TimerTable()
    timers.advance(NOW_MS)
    put(timers, 1, 0, 0, NOW_MS + 2 * FAR_MS - 1, NOW_MS + 2 * FAR_MS, NOW_MS + 3 * FAR_MS)
    assert ids_of(timers.take(NOW_MS + 9 * FAR_MS, 10)) == [0]
    timers.advance(NOW_MS + FAR_MS - 1)
    assert ids_of(timers.take(NOW_MS + 9 * FAR_MS, 10)) == []
    timers.advance(NOW_MS + FAR_MS)
    assert timers.live_count == 3
    assert ids_of(timers.take(NOW_MS + 9 * FAR_MS, 10)) == [1]
    timers.advance(NOW_MS)
    assert ids_of(timers.take(NOW_MS + 9 * FAR_MS, 10)) == []
    timers.advance(NOW_MS + 20 * FAR_MS)
    assert ids_of(timers.take(NOW_MS + 9 * FAR_MS, 10)) == [2]
    assert timers.live_count == 3
    assert [one for _, one, _, _ in timers.select(1, 0, 10)] == [0, 1, 2]


def test_a_far_bucket_is_taken_apart_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers that ended do not reappear, and none is counted twice."""
    monkeypatch.setattr(timers_module, "ROWS_AT_ONCE", 4)
    timers = TimerTable()
    timers.advance(NOW_MS)
    put(timers, 1, 0, 0, *(TOMORROW_MS + number for number in range(13)))
    end(timers, *((TOMORROW_MS + number, number) for number in (0, 4, 5, 6, 7, 12)))
    assert timers.live_count == 7
    timers.advance(TOMORROW_MS)
    assert timers.live_count == 7
    assert ids_of(timers.take(TOMORROW_MS + 13, 100)) == [1, 2, 3, 8, 9, 10, 11]


def test_timers_end_once_wherever_they_lie() -> None:
    """Unknown ones are skipped; a change may end timers of several buckets."""
    timers = some()
    end(timers, (TOMORROW_MS, 12), (NOW_MS, 10), (SOON_MS, 22), (SOON_MS, 99), (NOW_MS + 5 * FAR_MS, 4))
    assert timers.live_count == 3
    end(timers, (TOMORROW_MS, 12), (NOW_MS, 10), (SOON_MS, 22))
    assert timers.live_count == 3
    assert timers.select(1, 0, 10) == [(LATER_MS, 11, 11, 0)]
    assert timers.select(2, 0, 10) == [(SOON_MS, 20, 20, 3), (SOON_MS + NEAR_MS, 21, 21, 3)]
    due_ms, ids = int64s(NOW_MS, SOON_MS, SOON_MS, TOMORROW_MS, LATER_MS), int64s(10, 20, 22, 12, 11)
    assert timers.statuses(due_ms, ids).tolist() == [NO_MORE, TimerStatus.FREE, NO_MORE, NO_MORE, TimerStatus.FREE]


def test_what_is_done_with_timers_is_noted_in_several_buckets_at_once() -> None:
    """Unknown timers are skipped."""
    timers = some()
    due_ms, ids = int64s(SOON_MS, NOW_MS, TOMORROW_MS, 17, SOON_MS), int64s(20, 10, 12, 1, 98)
    timers.set_status(due_ms, ids, TimerStatus.MOVING)
    assert timers.statuses(due_ms, ids).tolist() == [
        TimerStatus.MOVING,
        TimerStatus.MOVING,
        TimerStatus.MOVING,
        NO_MORE,
        NO_MORE,
    ]
    assert timers.statuses(int64s(SOON_MS, LATER_MS), int64s(22, 11)).tolist() == [TimerStatus.FREE, TimerStatus.FREE]
    assert timers.statuses(int64s(), int64s()).tolist() == []
    timers.reset_statuses()
    assert timers.statuses(due_ms, ids).tolist() == [
        TimerStatus.FREE,
        TimerStatus.FREE,
        TimerStatus.FREE,
        NO_MORE,
        NO_MORE,
    ]


def test_a_timer_that_is_moved_keeps_its_id_and_is_found_at_its_new_place() -> None:
    """The range of places includes its begin and excludes its end."""
    timers = some()
    put(timers, 1, 0, 30, TOMORROW_MS, NOW_MS, ids=(12, 10))
    assert timers.live_count == 6
    assert timers.select(1, 0, 10) == [(NOW_MS, 10, 31, 0), (LATER_MS, 11, 11, 0), (TOMORROW_MS, 12, 30, 0)]
    assert ids_of(timers.in_places(11, 31)) == [11, 20, 21, 22, 12]
    assert ids_of(timers.in_places(31, 32)) == [10]
    assert ids_of(timers.in_places(12, 20)) == []


def test_a_timer_leads_to_its_topic_alone() -> None:
    """An unknown timer has no destination, and neither has one of a deleted topic."""
    timers = some()
    assert timers.belongs_to_topic(1, TOMORROW_MS, 12)
    assert timers.belongs_to_topic(2, SOON_MS, 20)
    assert not timers.belongs_to_topic(2, TOMORROW_MS, 12)
    assert not timers.belongs_to_topic(1, TOMORROW_MS, 20)
    assert not timers.belongs_to_topic(1, TOMORROW_MS + FAR_MS, 12)
    fold(timers, TopicDeleted(1))
    assert not timers.belongs_to_topic(1, TOMORROW_MS, 12)
    assert timers.belongs_to_topic(2, SOON_MS, 20)


def test_timers_of_a_topic_that_is_gone_come_due_and_lead_nowhere() -> None:
    """They are neither listed nor written; others keep their destination, and the topic's queues may return."""
    timers = some()
    fold(timers, TopicDeleted(1))
    fold(timers, TopicDeleted(9))
    assert timers.live_count == 6
    assert timers.select(1, 0, 10) == []
    rows = timers.take(SOON_MS, 10)
    assert [timers.destination_of(number) for number in rows["destination"].tolist()] == [None, (2, 3), (2, 3)]
    put(timers, 1, 0, 40, SOON_MS)
    assert timers.select(1, 0, 10) == [(SOON_MS, 40, 40, 0)]
    folded = folded_again(timers)
    assert folded.live_count == 4
    assert folded.select(2, 0, 10) == timers.select(2, 0, 10)
    assert folded.digest() == timers.digest()


def folded_again(timers: TimerTable) -> TimerTable:
    """The rows of its checkpoint."""
    folded = TimerTable()
    for change in decode_changes(encode_changes(list(timers.checkpoint()))):
        fold(folded, change)
    return folded


def test_a_checkpoint_says_all_of_it_in_changes_that_are_not_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """One change has rows of several queues; folding it restores every timer."""
    monkeypatch.setattr(timers_module, "ROWS_PER_CHANGE", 2)
    timers = some()
    put(timers, 1, 5, 50, TOMORROW_MS, TOMORROW_MS)
    assert len(list(timers.checkpoint())) == 6
    folded = folded_again(timers)
    folded.advance(NOW_MS)
    assert folded.live_count == timers.live_count == 8
    for topic_id in (1, 2):
        assert folded.select(topic_id, 0, 10) == timers.select(topic_id, 0, 10)
    assert timers.select(1, TOMORROW_MS, 10) == [
        (TOMORROW_MS, 12, 12, 0),
        (TOMORROW_MS, 50, 50, 5),
        (TOMORROW_MS, 51, 51, 5),
    ]


def test_what_comes_near_while_a_checkpoint_is_drawn_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """G6: the leader splits far buckets between two changes of a checkpoint, and no timer may be missed."""
    monkeypatch.setattr(timers_module, "ROWS_PER_CHANGE", 1)
    for drawn_before in range(8):
        timers = some()
        put(timers, 1, 0, 60, LATER_MS + FAR_MS, LATER_MS + FAR_MS)
        drawing = timers.checkpoint()
        drawn = list(islice(drawing, drawn_before))
        timers.advance(NOW_MS + 200 * FAR_MS)
        folded = TimerTable()
        for change in decode_changes(encode_changes([*drawn, *drawing])):
            fold(folded, change)
        assert (folded.live_count, folded.digest()) == (8, timers.digest()), f"after {drawn_before} changes"


def test_timers_that_were_moved_out_of_order_end_also_where_their_move_is_folded_first() -> None:
    """G6: a checkpoint written after their end has none of them, and the move is folded after it."""
    folded = TimerTable()
    put(folded, 1, 0, 30, SOON_MS, SOON_MS, SOON_MS, ids=(12, 11, 10))
    put(folded, 1, 0, 33, SOON_MS, ids=(13,))
    put(folded, 1, 0, 34, SOON_MS, SOON_MS, SOON_MS, ids=(16, 15, 14))
    put(folded, 1, 0, 37, SOON_MS, SOON_MS, ids=(18, 17))
    assert [one for _, one, _, _ in folded.select(1, 0, 10)] == list(range(10, 19))
    assert [place for _, _, place, _ in folded.select(1, 0, 10)] == [32, 31, 30, 33, 36, 35, 34, 38, 37]
    end(folded, *((SOON_MS, number) for number in range(10, 19)))
    assert folded.live_count == 0


def test_a_digest_tells_any_difference_and_nothing_of_what_is_done_or_where_it_lies() -> None:
    """Leaders have split buckets and staged timers that followers have not."""
    timers, followers = some(), TimerTable()
    put(followers, 2, 3, 20, SOON_MS, SOON_MS + NEAR_MS, SOON_MS)
    put(followers, 1, 0, 10, NOW_MS, LATER_MS, TOMORROW_MS)
    timers.take(SOON_MS, 1)
    assert timers.digest() == followers.digest()
    assert 0 < timers.digest() < 1 << 64
    told = {timers.digest()}
    for topic_id, queue_id, place, due_ms, ids in (
        (1, 0, 60, NOW_MS, ()),
        (2, 0, 60, NOW_MS, ()),
        (1, 1, 60, NOW_MS, ()),
        (1, 0, 61, NOW_MS, ()),
        (1, 0, 61, NOW_MS, (60,)),
        (1, 0, 60, NOW_MS + 1, ()),
    ):
        other = some()
        put(other, topic_id, queue_id, place, due_ms, ids=ids)
        told.add(other.digest())
    assert len(told) == 7
    assert TimerTable().digest() == 0


def test_a_sixteenth_of_the_timers_counts_as_rows() -> None:
    """Because their digest is cheap."""
    timers = TimerTable()
    put(timers, 1, 0, 0, *range(NOW_MS, NOW_MS + 48))
    assert timers.rows == 3


def test_the_change_that_ends_timers_names_them() -> None:
    """Folded, it ends them."""
    timers = some()
    change = TimersDone(TimerEnd.LOST, *(one.tobytes() for one in times_and_ids(timers.take(SOON_MS, 2))))
    assert change == TimersDone(TimerEnd.LOST, column(NOW_MS, SOON_MS), column(10, 20))
    fold(timers, change)
    assert timers.live_count == 4
