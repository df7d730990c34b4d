"""The whole state: checkpoints, and deletion of topics and groups."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ortoo.enode.changes.groups import (
    GroupDeclared,
    GroupDeletionsDone,
    GroupDropped,
    GroupMode,
    GroupUsed,
    ModeSet,
    RetryCopiesStored,
    RetryMarksDropped,
)
from ortoo.enode.changes.halves import HalfEnded, HalfOpen, HalfVerdict, VerdictOrigin
from ortoo.enode.changes.kinds import (
    DirectoryTopicPut,
    IdsRemembered,
    LocksChanged,
    OffsetsCommitted,
    OffsetsSkipped,
    SinkCommitted,
    StateChange,
    TopicDeleted,
    TopicPut,
    decode_changes,
    encode_changes,
)
from ortoo.enode.changes.pops import LeasesInvalidated, PopFinished, PopLeased, PopNote, PopReturned
from ortoo.enode.changes.schedules import ScheduleAdvanced, ScheduleDeleted, SchedulePut
from ortoo.enode.state.fold import State

SMALL = st.integers(0, 3)
TOPIC = st.integers(1, 2)
GROUP = st.sampled_from(["g", "h"])
COUNT = st.integers(1, 3)
PLACE = (TOPIC, GROUP, SMALL)
DELIVERED = st.lists(st.tuples(SMALL, COUNT, COUNT), min_size=1, max_size=2).map(tuple)
NUMBER = st.integers(1, 4)
ID = st.sampled_from([bytes([number]) * 16 for number in range(4)])
CHANGES = st.one_of(
    st.builds(TopicPut, TOPIC, SMALL, COUNT, GROUP),
    st.builds(DirectoryTopicPut, TOPIC, SMALL, COUNT, GROUP, GROUP),
    st.builds(OffsetsCommitted, TOPIC, GROUP, SMALL, st.lists(st.tuples(SMALL, SMALL), max_size=2).map(tuple)),
    st.builds(
        LocksChanged, TOPIC, GROUP, GROUP, GROUP, GROUP, st.lists(st.tuples(SMALL, SMALL), max_size=2).map(tuple)
    ),
    st.builds(OffsetsSkipped, st.integers(0, 2), SMALL, SMALL, SMALL),
    st.builds(ModeSet, TOPIC, GROUP, st.sampled_from(GroupMode)),
    st.builds(
        RetryCopiesStored, TOPIC, GROUP, SMALL, st.lists(st.tuples(SMALL, st.integers(0, 1)), max_size=2).map(tuple)
    ),
    st.builds(RetryMarksDropped, TOPIC, GROUP, st.lists(SMALL, max_size=2).map(tuple)),
    st.builds(IdsRemembered, TOPIC, SMALL, SMALL, st.booleans(), SMALL, NUMBER, st.lists(ID, unique=True).map(tuple)),
    st.builds(GroupUsed, TOPIC, GROUP, SMALL),
    st.builds(GroupDeclared, st.booleans(), GROUP),
    st.builds(GroupDeletionsDone, SMALL, GROUP),
    st.builds(PopLeased, *PLACE, NUMBER, SMALL, SMALL, DELIVERED),
    st.builds(PopReturned, *PLACE, NUMBER, SMALL, SMALL, DELIVERED),
    st.builds(PopFinished, *PLACE, st.just(1), st.lists(st.tuples(SMALL, COUNT), max_size=2).map(tuple)),
    st.builds(LeasesInvalidated, NUMBER),
    st.builds(PopNote, *PLACE, SMALL, GROUP, GROUP),
    st.builds(HalfOpen, SMALL, TOPIC, SMALL, SMALL, COUNT, SMALL, SMALL, SMALL, st.booleans(), SMALL, GROUP),
    st.builds(HalfEnded, SMALL, TOPIC, st.just(int(HalfVerdict.COMMITTED)), st.just(int(VerdictOrigin.CHECK)), SMALL),
    st.builds(SchedulePut, TOPIC, SMALL, SMALL, SMALL, SMALL, SMALL, SMALL, st.booleans(), ID, GROUP, GROUP, GROUP),
    st.builds(ScheduleAdvanced, TOPIC, SMALL, SMALL, GROUP),
    st.builds(ScheduleDeleted, TOPIC, GROUP),
    st.builds(SinkCommitted, TOPIC, GROUP, SMALL, GROUP, GROUP),
    st.builds(TopicDeleted, TOPIC),
    st.builds(GroupDropped, TOPIC, GROUP),
)


def known(one: Any) -> Any:
    """The contents of a value, comparable, without empty ones."""
    if isinstance(one, Mapping):
        found = [(key, known(value)) for key, value in one.items()]
        return sorted((pair for pair in found if pair[1] not in (0, [], None)), key=repr)
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        return [known(getattr(one, field.name)) for field in dataclasses.fields(one)]
    if isinstance(one, set | frozenset):
        return sorted(one)
    if type(one).__name__ == "IntervalMap":
        return [one.floor, one.delivered_count, one.rows(0, 99)]
    return one


def knows(state: State) -> dict[str, Any]:
    """The contents of each table except timers, whose buckets differ between leader and followers."""
    found = {name: known(vars(table)) for name, table in state.tables.items() if name not in ("timers", "pops")}
    pops = {key: [known(queue.intervals), known(queue.notes)] for key, queue in state.pops.all()}
    return found | {"pops": known(pops), "first lease number": state.pops.first_lease_number}


def loaded(state: State) -> State:
    """A state made from another one's checkpoint."""
    again = State()
    again.apply_all(decode_changes(encode_changes(list(state.checkpoint()))))
    return again


@given(st.lists(CHANGES, max_size=25), st.integers(0, 25), st.integers(0, 25))
def test_a_checkpoint_and_what_came_since_say_what_the_log_says(
    changes: list[StateChange], begin: int, end: int
) -> None:
    """Also if the checkpoint includes a part of the later changes."""
    state, middle = State(), State()
    state.apply_all(changes)
    assert knows(loaded(state)) == knows(state)
    middle.apply_all(changes[: max(begin, end)])
    before = copy.deepcopy(changes)
    again = loaded(middle)
    again.apply_all(changes[max(begin, end) :])
    assert knows(again) == knows(state)
    assert changes == before


@given(st.lists(CHANGES, max_size=25), TOPIC, GROUP)
def test_nothing_of_a_group_or_a_topic_that_is_gone_is_left(
    changes: list[StateChange], topic_id: int, group: str
) -> None:
    """And all other rows stay."""
    state, others = State(), State()
    state.apply_all(changes)
    state.apply(GroupDropped(topic_id, group))
    assert group not in state.offsets.groups(topic_id)
    assert state.groups.last_used_ms(topic_id, group) is None
    assert state.modes.of(topic_id, group) is GroupMode.UNDECIDED
    assert not [key for key, _ in state.pops.all() if key[:2] == (topic_id, group)]
    assert not [key for key, _ in state.locks.all() if key[:2] == (topic_id, group)]
    assert not [queue for queue in range(4) if state.sent_back.count((topic_id, group, queue))]
    state.apply(TopicDeleted(topic_id))
    others.apply_all(changes)
    others.apply(TopicDeleted(topic_id))
    assert knows(state) == knows(others)
    assert state.topics.get(topic_id) is None
    assert not state.schedules.of_topic(topic_id)
    assert not [half for half in state.halves.open.values() if half.topic_id == topic_id]
    assert not [key for key, _ in state.ends.all() if key[0] == topic_id]


@given(st.lists(CHANGES, max_size=25))
def test_rows_are_counted_as_a_checkpoint_has_them(changes: list[StateChange]) -> None:
    """An empty table has none."""
    state = State()
    state.apply_all(changes)
    for name, table in state.tables.items():
        if name not in ("groups", "ends"):
            assert (table.rows > 0) >= bool(list(table.checkpoint())), name
    places = [(topic_id, group, queue) for topic_id in (1, 2) for group in ("g", "h") for queue in range(4)]
    assert state.sent_back.rows == sum(map(state.sent_back.count, places))
    assert state.halves.rows == len(state.halves.open) + len(state.halves.ended)
    in_queues = sum(len(queue.intervals) + 1 for _, queue in state.pops.all())
    assert state.pops.rows == in_queues + bool(state.pops.first_lease_number)
