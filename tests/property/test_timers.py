"""Packed timers behave like a dictionary of timers; folding a checkpoint and the rest gives the same."""

import struct
from collections.abc import Iterable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ortoo.enode.changes.kinds import StateChange, TopicDeleted, decode_changes, encode_changes
from ortoo.enode.changes.timers import TimerEnd, TimersDone, TimersSet
from ortoo.enode.state.tables.timers import FAR_MS, TimerTable
from ortoo.enode.state.timer_bucket import TimerStatus
from tests.unit.enode.state.folding import fold

NOW_MS = 1_800_000_000_000
times = st.one_of(
    st.integers(NOW_MS - 5_000, NOW_MS + 5_000),
    st.integers(NOW_MS, NOW_MS + 3 * FAR_MS),
    st.integers(NOW_MS, NOW_MS + 366 * 86_400_000),
)


def int64s(numbers: Iterable[int]) -> bytes:
    """A column."""
    several = list(numbers)
    return struct.pack(f"<{len(several)}q", *several)


class TimersAgainstADictionary(RuleBasedStateMachine):
    """Timers are set, moved, taken and ended. Topics are deleted. State is written and folded again at any time."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.timers = TimerTable()
        self.model: dict[int, tuple[int, int, int, int]] = {}
        self.taken: set[int] = set()
        self.next_place = 0
        self.now_ms = NOW_MS
        self.topics = [1, 2, 3]
        self.since: list[StateChange] = []
        self.checkpoint: list[bytes] = []

    def apply(self, change: StateChange) -> None:
        """Fold and record."""
        decoded = list(decode_changes(encode_changes([change.encoded()])))
        assert decoded == [change]
        fold(self.timers, change)
        self.since.append(change)

    @rule(number=st.integers(0, 2), queue=st.integers(0, 2), due=st.lists(times, min_size=1, max_size=8))
    def set_some(self, number: int, queue: int, due: list[int]) -> None:
        """Set the timers of a batch."""
        topic = self.topics[number]
        self.apply(TimersSet(topic, queue, self.next_place, 0, 0, 5, 6, int64s(due)))
        for at in due:
            self.model[self.next_place] = (at, self.next_place, topic, queue)
            self.next_place += 1

    @rule(data=st.data())
    def move_some(self, data: st.DataObject) -> None:
        """Messages are stored again elsewhere and keep their ids."""
        by_queue: dict[tuple[int, int], list[int]] = {}
        for timer_id, (_, _, topic, queue) in self.model.items():
            by_queue.setdefault((topic, queue), []).append(timer_id)
        if not by_queue:
            return
        (topic, queue), several = data.draw(st.sampled_from(sorted(by_queue.items())))
        ids = sorted(data.draw(st.sets(st.sampled_from(several), min_size=1, max_size=5)))
        due = [self.model[one][0] for one in ids]
        self.apply(TimersSet(topic, queue, self.next_place, 0, 0, 5, 6, int64s(due), int64s(ids)))
        for timer_id in ids:
            self.model[timer_id] = (self.model[timer_id][0], self.next_place, topic, queue)
            self.next_place += 1

    @rule(data=st.data(), end=st.sampled_from(TimerEnd))
    def end_some(self, data: st.DataObject, end: TimerEnd) -> None:
        """Timers end, some of them for the second time."""
        if not self.model:
            return
        ids = sorted(data.draw(st.sets(st.sampled_from(sorted(self.model)), min_size=1, max_size=6)))
        change = TimersDone(end, int64s(self.model[one][0] for one in ids), int64s(ids))
        self.apply(change)
        self.apply(change)
        for timer_id in ids:
            del self.model[timer_id]
            self.taken.discard(timer_id)

    @rule(step_ms=st.sampled_from([1, 900, 60_000, FAR_MS, -3_600_000, 30 * 86_400_000]), limit=st.integers(1, 20))
    def pass_time_and_take(self, step_ms: int, limit: int) -> None:
        """Taken timers are due and free, and all due ones are taken when there is room."""
        self.now_ms += step_ms
        self.timers.advance(self.now_ms)
        rows = self.timers.take(self.now_ms, limit)
        due = {one for one, entry in self.model.items() if entry[0] <= self.now_ms and one not in self.taken}
        assert len(rows) == min(limit, len(due))
        for at, timer_id, place, destination, hold in rows.tolist():
            assert timer_id in due
            assert hold == TimerStatus.FREE
            assert self.model[timer_id] == (at, place, *(self.timers.destination_of(destination) or ()))
            self.taken.add(timer_id)

    @rule()
    def give_back(self) -> None:
        """Taken timers may be taken again."""
        ids = sorted(self.taken)
        if ids:
            due = np.array([self.model[one][0] for one in ids], "<i8")
            assert self.timers.statuses(due, np.array(ids, "<i8")).tolist() == [TimerStatus.STAGED] * len(ids)
            self.timers.set_status(due, np.array(ids, "<i8"), TimerStatus.FREE)
        self.taken.clear()

    @rule(number=st.integers(0, 2))
    def drop_topic(self, number: int) -> None:
        """Delete a topic: its timers have no destination and are in no checkpoint. Its id is not used again."""
        topic = self.topics[number]
        self.topics[number] = max(self.topics) + 1
        gone = [one for one, entry in self.model.items() if entry[2] == topic]
        due = {one: self.model[one][0] for one in gone}
        self.apply(TopicDeleted(topic))
        if gone:
            self.apply(TimersDone(TimerEnd.LOST, int64s(due[one] for one in gone), int64s(gone)))
        for one in gone:
            del self.model[one]
            self.taken.discard(one)

    @rule()
    def write(self) -> None:
        """Write a checkpoint; from now on it and later changes are the state."""
        self.checkpoint = list(self.timers.checkpoint())
        self.since = self.since[-2:]  # the fold begins a little before the checkpoint

    @rule()
    def restart(self) -> None:
        """Restore the state from the checkpoint and the log behind it."""
        self.timers = TimerTable()
        for change in decode_changes(encode_changes(self.checkpoint)):
            fold(self.timers, change)
        for change in self.since:
            fold(self.timers, change)
        self.taken.clear()
        self.timers.advance(self.now_ms)

    @invariant()
    def the_same_timers(self) -> None:
        """Listing returns the dictionary's timers, by time."""
        assert self.timers.live_count == len(self.model)
        for topic in self.topics:
            wanted = sorted(
                (at, one, place, queue) for one, (at, place, where, queue) in self.model.items() if where == topic
            )
            assert self.timers.count_of(topic) == len(wanted)
            assert self.timers.select(topic, 0, 1000) == wanted
            assert self.timers.select(topic, NOW_MS + 1000, 3) == [it for it in wanted if it[0] >= NOW_MS + 1000][:3]
        middle = self.next_place // 2
        rows = self.timers.in_places(middle, self.next_place)
        assert rows["timer_id"].tolist() == [
            one for _, one in sorted((entry[1], one) for one, entry in self.model.items() if entry[1] >= middle)
        ]


TestTimers = TimersAgainstADictionary.TestCase
TestTimers.settings = settings(max_examples=40, stateful_step_count=30)


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), max_size=5))
def test_ending_unknown_timers_does_nothing(several: list[tuple[int, int]]) -> None:
    """The fold ignores unknown timers: a stretch of the log may be folded twice."""
    timers = TimerTable()
    fold(timers, TimersDone(TimerEnd.DELIVERED, int64s(at for at, _ in several), int64s(one for _, one in several)))
    assert timers.live_count == 0
