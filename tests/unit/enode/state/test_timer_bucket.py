"""Timers of one time span: found by id, returned when due, and compacted when many are deleted."""

import numpy as np

from ortoo.enode.state.timer_bucket import ROW, TimerArray, TimerBucket, TimerStatus

NO_MORE = 255


def timers(ids: range | list[int], *, place: int = 0, destination: int = 7) -> TimerArray:
    """Timers with these ids; each is due at ten times its id, and its place is `place` plus its id."""
    rows = np.zeros(len(ids), ROW)
    rows["timer_id"] = ids
    rows["deliver_at_ms"] = np.array(ids, "<i8") * 10
    rows["place"] = np.array(ids, "<i8") + place
    rows["destination"] = destination
    return rows


def bucket_of(ids: range | list[int]) -> TimerBucket:
    """A bucket with these timers."""
    bucket = TimerBucket()
    bucket.put(timers(ids))
    return bucket


def ids_of(rows: TimerArray) -> list[int]:
    """The timers' ids, in the order of the rows."""
    found: list[int] = rows["timer_id"].tolist()
    return found


def int64s(*numbers: int) -> "np.ndarray":
    """Ids or times."""
    return np.array(numbers, "<i8")


def test_a_new_bucket_has_nothing() -> None:
    """All its queries work."""
    bucket = TimerBucket()
    assert (bucket.rows, bucket.live_count) == (0, 0)
    assert ids_of(bucket.live_rows()) == []
    assert len(bucket.end(int64s(0, 3))) == 0
    assert bucket.statuses(int64s(0, 3)).tolist() == [NO_MORE, NO_MORE]
    assert bucket.destination(0) is None
    assert ids_of(bucket.due(1 << 62, 10)) == []


def test_what_was_put_is_there_with_all_its_columns() -> None:
    """The first timer may have id 0."""
    bucket = bucket_of([0])
    assert bucket.live_rows().tolist() == timers([0]).tolist()
    bucket.put(timers([2, 5], place=100, destination=9))
    assert (bucket.rows, bucket.live_count) == (3, 3)
    assert bucket.live_rows().tolist() == [*timers([0]).tolist(), *timers([2, 5], place=100, destination=9).tolist()]
    assert bucket.destination(0) == 7
    assert bucket.destination(5) == 9
    assert bucket.destination(4) is None
    assert bucket.destination(6) is None


def test_rows_are_given_from_one_to_another() -> None:
    """Deleted rows count as rows, but are not returned."""
    bucket = bucket_of(range(10))
    assert len(bucket.end(int64s(4))) == 1
    assert ids_of(bucket.live_rows(3, 6)) == [3, 5]
    assert ids_of(bucket.live_rows(8)) == [8, 9]
    assert ids_of(bucket.live_rows(stop=2)) == [0, 1]


def test_a_timer_that_is_there_gets_its_new_place_and_nothing_else() -> None:
    """It is not counted twice, and keeps its hold."""
    bucket = bucket_of([1, 2, 3])
    bucket.set_status(int64s(2), TimerStatus.STAGED)
    bucket.put(timers([2, 3], place=50, destination=1))
    assert (bucket.rows, bucket.live_count) == (3, 3)
    assert bucket.live_rows()["place"].tolist() == [1, 52, 53]
    assert bucket.live_rows()["destination"].tolist() == [7, 7, 7]
    assert bucket.statuses(int64s(1, 2, 3)).tolist() == [TimerStatus.FREE, TimerStatus.STAGED, TimerStatus.FREE]


def test_timers_that_come_out_of_order_are_put_between_the_others() -> None:
    """Known ones get their new place, deleted ones stay deleted, and the count stays correct."""
    bucket = bucket_of([10, 20, 30])
    assert len(bucket.end(int64s(10))) == 1
    bucket.put(timers([5, 20, 25, 40], place=1000))
    assert (bucket.rows, bucket.live_count) == (6, 5)
    assert ids_of(bucket.live_rows()) == [5, 20, 25, 30, 40]
    assert bucket.live_rows()["place"].tolist() == [1005, 1020, 1025, 30, 1040]
    assert bucket.live_rows()["deliver_at_ms"].tolist() == [50, 200, 250, 300, 400]
    assert bucket.statuses(int64s(10, 40)).tolist() == [NO_MORE, TimerStatus.FREE]
    bucket.put(timers([41]))
    assert ids_of(bucket.live_rows()) == [5, 20, 25, 30, 40, 41]


def test_the_newest_id_is_remembered_by_whichever_way_timers_came() -> None:
    """Otherwise later timers would be inserted where they are not found."""
    bucket = bucket_of([10, 20])
    bucket.put(timers([5]))
    bucket.put(timers([15]))
    bucket.put(timers([30]))
    bucket.put(timers([20, 25]))
    assert ids_of(bucket.live_rows()) == [5, 10, 15, 20, 25, 30]
    assert bucket.statuses(int64s(5, 10, 15, 20, 25, 30)).tolist() == [TimerStatus.FREE] * 6


def test_a_timer_ends_once() -> None:
    """Unknown ids are skipped, whether between known ones or behind the last."""
    bucket = bucket_of([1, 3, 5])
    assert len(bucket.end(int64s(0, 1, 2, 3, 9))) == 2
    assert len(bucket.end(int64s(1, 3))) == 0
    assert (bucket.rows, bucket.live_count) == (3, 1)
    assert ids_of(bucket.live_rows()) == [5]
    assert bucket.statuses(int64s(0, 1, 3, 5, 9)).tolist() == [NO_MORE, NO_MORE, NO_MORE, TimerStatus.FREE, NO_MORE]


def test_the_dead_go_when_they_are_more_than_half_of_many() -> None:
    """A small table keeps them, and so does a large one of which half exists."""
    small = bucket_of(range(64))
    small.end(int64s(*range(60)))
    assert (small.rows, small.live_count) == (64, 4)
    large = bucket_of(range(66))
    large.end(int64s(*range(33)))
    assert (large.rows, large.live_count) == (66, 33)
    large.set_status(int64s(40), TimerStatus.FIRING)
    large.end(int64s(33))
    assert (large.rows, large.live_count) == (32, 32)
    assert ids_of(large.live_rows()) == list(range(34, 66))
    assert large.statuses(int64s(33, 40, 41)).tolist() == [NO_MORE, TimerStatus.FIRING, TimerStatus.FREE]
    odd = bucket_of(range(65))
    odd.end(int64s(*range(34)))
    assert (odd.rows, odd.live_count) == (31, 31)


def test_due_are_those_that_are_free_up_to_a_time_and_no_more_than_asked_for() -> None:
    """Deleted timers are never due."""
    bucket = bucket_of(range(6))
    bucket.end(int64s(1))
    bucket.set_status(int64s(2), TimerStatus.MOVING)
    assert ids_of(bucket.due(40, 10)) == [0, 3, 4]
    assert ids_of(bucket.due(39, 10)) == [0, 3]
    assert ids_of(bucket.due(40, 2)) == [0, 3]
    assert bucket.due(0, 1).tolist() == timers([0]).tolist()


def test_whoever_begins_finds_every_timer_free() -> None:
    """Whatever their holds were; unknown timers are not touched."""
    bucket = bucket_of([1, 2, 3])
    bucket.set_status(int64s(0, 1, 3, 8), TimerStatus.RECALLING)
    assert bucket.statuses(int64s(1, 2, 3)).tolist() == [TimerStatus.RECALLING, TimerStatus.FREE, TimerStatus.RECALLING]
    assert bucket.live_rows()["status"].tolist() == [TimerStatus.RECALLING, TimerStatus.FREE, TimerStatus.RECALLING]
    bucket.reset_statuses()
    assert bucket.statuses(int64s(1, 2, 3)).tolist() == [TimerStatus.FREE] * 3


def test_drawing_goes_on_where_it_was_while_timers_come_and_go() -> None:
    """Compaction and rows inserted between others cause no skipped and no repeated timer."""
    bucket = bucket_of(range(0, 400, 2))
    drawing = bucket.drawn(10)
    found = [ids_of(next(drawing)), ids_of(next(drawing))]
    bucket.end(np.arange(0, 240, 2))
    assert bucket.rows < 200
    bucket.put(timers([1, 301, 401]))
    found += [ids_of(rows) for rows in drawing]
    assert [one for rows in found for one in rows] == [*range(0, 40, 2), *sorted([*range(240, 400, 2), 301, 401])]
    assert max(map(len, found)) == 10
    assert [ids_of(rows) for rows in TimerBucket().drawn(10)] == []
