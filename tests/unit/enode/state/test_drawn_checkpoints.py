"""A checkpoint is written in parts while changes are folded; with the changes since its begin it is complete."""

import struct
from collections.abc import Callable

import pytest

from ortoo.common.process.randomness import Randomness
from ortoo.enode.changes.groups import RetryCopiesStored
from ortoo.enode.changes.halves import HalfEnded, HalfOpen, HalfVerdict, VerdictOrigin
from ortoo.enode.changes.kinds import OffsetsCommitted, StateChange, TopicDeleted, decode_changes, encode_changes
from ortoo.enode.changes.pops import PopFinished, PopLeased, PopReturned
from ortoo.enode.changes.schedules import ScheduleAdvanced, ScheduleDeleted, SchedulePut
from ortoo.enode.changes.timers import TimerEnd, TimersDone, TimersSet
from ortoo.enode.state import table, timer_bucket
from ortoo.enode.state.fold import State
from ortoo.enode.state.tables import halves, pops, timers
from ortoo.enode.state.tables.timers import FAR_MS

NOW_MS = 3_000 * FAR_MS
Step = Callable[[State, Randomness, int], StateChange | None]
"""Returns the next change of a state, from its number; None = no change of the log."""


def _popped(state: State, chance: Randomness, count: int) -> StateChange:
    queue_id, first, number = chance.below(2), chance.below(12), chance.below(9)
    rows = ((first, 1 + chance.below(3), 1 + chance.below(3)),)
    match chance.below(20):
        case 0:
            return OffsetsCommitted(1, "g", 0, ((queue_id, first),))
        case 1:
            return RetryCopiesStored(1, "g", queue_id, ((first, 0),))
        case kind if kind < 8:
            return PopLeased(1, "g", queue_id, number, 5, 5, rows)
        case kind if kind < 11:
            return PopReturned(1, "g", queue_id, number, 5, 5, rows)
    return PopFinished(1, "g", queue_id, 1, (rows[0][:2],))


def _delayed(state: State, chance: Randomness, count: int) -> StateChange | None:
    topic_id, listed = 1 + chance.below(2), state.timers.select(1 + chance.below(2), 0, 999)
    some = [one for one in listed if one[3] == listed[0][3] and not chance.below(3)]
    times, ids = (struct.pack(f"<{len(some)}q", *(one[column] for one in some)) for column in (0, 1))
    match chance.below(12):
        case 0:
            state.timers.advance(NOW_MS + count * FAR_MS // 4)
            return None
        case kind if kind < 4 and some:
            moved_to = topic_id if some[0] in state.timers.select(topic_id, 0, 999) else 3 - topic_id
            flipped = times[-8:] + times[:-8], ids[-8:] + ids[:-8]
            return TimersSet(moved_to, some[0][3], 3 * count, 0, 0, 5, 6, *flipped)
        case kind if kind < 8 and some:
            return TimersDone(TimerEnd.DELIVERED, times, ids)
    due = [NOW_MS + count * FAR_MS // 4 + chance.below(8) * FAR_MS for _ in range(1 + chance.below(3))]
    return TimersSet(topic_id, chance.below(2), 3 * count, 0, 0, 5, 6, struct.pack(f"<{len(due)}q", *due))


def _transacted(state: State, chance: Randomness, count: int) -> StateChange:
    still_open = list(state.halves.open.values())
    one = still_open[chance.below(len(still_open))] if still_open else None
    match chance.below(10):
        case 0:
            return TopicDeleted(chance.below(3))
        case kind if kind < 5 and one is not None:
            return HalfEnded(one.number, one.topic_id, HalfVerdict.COMMITTED, VerdictOrigin.CHECK, 5)
        case kind if kind < 7 and one is not None:
            return HalfOpen(one.number, one.topic_id, 0, 3 * count, 1, 1, 1, count, count % 2 == 0, one.key, "p")
    return HalfOpen(count, chance.below(3), 0, 3 * count, 1, 1, 1, 0, False, count, "p")


def _scheduled(state: State, chance: Randomness, count: int) -> StateChange:
    topic_id, name = 1 + chance.below(2), f"s{chance.below(3)}"
    match chance.below(10):
        case 0:
            return TopicDeleted(topic_id)
        case 1:
            return ScheduleDeleted(topic_id, name)
        case kind if kind < 7:
            return ScheduleAdvanced(topic_id, count, count, name)
    return SchedulePut(topic_id, 0, count, count, 0, 1_000, 1, count % 2 == 0, b"m", name, "", "")


@pytest.mark.parametrize("step", [_popped, _delayed, _transacted, _scheduled])
def test_what_changes_while_a_checkpoint_is_drawn_is_neither_lost_nor_told_twice(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G6 to G10: finished messages, timers and open transactions are the same after a start."""
    for module in (table, pops, timers):
        monkeypatch.setattr(module, "ROWS_PER_CHANGE", 1)
    monkeypatch.setattr(halves, "ENDED_MAX", 3)
    monkeypatch.setattr(timer_bucket, "_COMPACT_MIN", 2)
    for seed in range(200):
        chance, state, log = Randomness(seed), State(), list[StateChange]()
        state.timers.advance(NOW_MS)

        def go_on(
            steps: int, *, chance: Randomness = chance, state: State = state, log: list[StateChange] = log
        ) -> None:
            for _ in range(steps):
                change = step(state, chance, len(log))
                if change is not None:
                    log.append(change)
                    state.apply(change, 7)

        go_on(chance.below(25))
        begin, drawn, drawing = len(log), list[bytes](), state.checkpoint()
        while True:
            go_on(chance.below(3))
            encoded = next(drawing, None)
            if encoded is None:
                break
            drawn.append(encoded)
        go_on(chance.below(6))
        again = State()
        again.apply_all(decode_changes(encode_changes(drawn)))
        again.apply_all(log[begin:], 7)
        assert again.differing_tables(again.digests(-1), state.digests(-1)) == [], f"seed {seed}"
