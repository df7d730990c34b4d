"""Dropping a topic costs its own rows, however many other topics there are."""

import struct

from ortoo.enode.changes.groups import GroupMode, ModeSet, RetryCopiesStored
from ortoo.enode.changes.halves import HalfOpen
from ortoo.enode.changes.kinds import (
    IdsRemembered,
    LocksChanged,
    OffsetsCommitted,
    OffsetsSkipped,
    ProducerWindow,
    QueueEndSnapshot,
    TopicDeleted,
    TopicPut,
    WindowBatch,
)
from ortoo.enode.changes.pops import PopLeased, PopNote
from ortoo.enode.changes.schedules import SchedulePut
from ortoo.enode.changes.timers import TimersSet
from ortoo.enode.state.fold import State

TOPICS = 2_000
looked_at = 0


class CountedId(int):
    """A topic id that counts its comparisons and look-ups."""

    def __eq__(self, other: object) -> bool:
        global looked_at
        looked_at += 1
        return int(self) == other

    def __hash__(self) -> int:
        global looked_at
        looked_at += 1
        return int.__hash__(self)


def fill(state: State, topic_id: int) -> None:
    """Put rows of every table into a topic."""
    state.apply_all(
        [
            TopicPut(topic_id, 1, 4, f"t{topic_id}"),
            OffsetsCommitted(topic_id, "g", 2, ((0, 10), (1, 11))),
            LocksChanged(topic_id, "g", "c", "s", "i", ((0, 1),)),
            ProducerWindow(topic_id, 0, 7, 3, 1, (WindowBatch(0, 3, 0, 1, 5),)),
            QueueEndSnapshot(topic_id, 0, 3, 1),
            OffsetsSkipped(topic_id, 1, 5, 9),
            PopLeased(topic_id, "p", 0, 1, 10, 10, ((0, 2, 1),)),
            PopNote(topic_id, "p", 0, 0, "c", "e"),
            RetryCopiesStored(topic_id, "g", 0, ((12, 0),)),
            ModeSet(topic_id, "g", GroupMode.OFFSETS),
            IdsRemembered(topic_id, 0, 0, False, 1, 2, (b"a" * 16,)),
            SchedulePut(topic_id, 0, 1, 1, 0, 1_000, 1, False, b"m", "s", "", ""),
            HalfOpen(topic_id, topic_id, 0, topic_id, 1, 1, 1, 0, False, topic_id, "p"),
            TimersSet(topic_id, 0, topic_id, 8, 0, 1, 5, struct.pack("<q", 1_000)),
        ]
    )


def test_a_drop_looks_at_no_other_topic() -> None:
    """A topic among many is dropped completely, with a few dozen look-ups in all tables together."""
    global looked_at
    state = State()
    for number in range(1, TOPICS + 1):
        fill(state, CountedId(number))
    before = sum(1 for _ in state.checkpoint())
    looked_at = 0
    state.apply(TopicDeleted(CountedId(777)))
    assert 0 < looked_at < 100
    empty = State()
    fill(empty, 777)
    rows_of_timers = 1  # many timers share a row
    left = list(state.checkpoint())
    assert before - len(left) >= sum(1 for _ in empty.checkpoint()) - rows_of_timers
    its_id = struct.pack("<Q", 777)
    assert not [one for one in left if one[5:13] == its_id]
