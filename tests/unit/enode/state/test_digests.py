"""Digests by which replicas compare their states."""

from ortoo.enode.changes.groups import RetryCopiesStored
from ortoo.enode.changes.kinds import ExpiredDropped, IdsRemembered, OffsetsCommitted, WindowBatch
from ortoo.enode.changes.timers import TimersSet
from ortoo.enode.state.fold import DIGEST_ROWS_MAX, State

ALL_TABLES = (1 << 32) - 1
DUE_MS = (5_000_000).to_bytes(8, "little")


def filled(queues: range) -> State:
    """Changes of a few tables, for the queues in this order."""
    state = State()
    for queue_id in queues:
        state.apply(OffsetsCommitted(1, "g", 0, ((queue_id, 10 + queue_id),)))
        state.windows.add((1, queue_id, 7), WindowBatch(0, 2, queue_id, 100 + queue_id, 0))
        state.apply(IdsRemembered(1, queue_id, 0, False, 1, 1_000, (bytes([queue_id]) * 16,)))
        state.apply(TimersSet(1, queue_id, 50 + queue_id, 0, 0, 1, 0, DUE_MS))
    return state


def test_the_order_does_not_matter_and_everything_else_does() -> None:
    """The order of folding is irrelevant; another row or value is found, with its table."""
    one, other = filled(range(5)), filled(range(4, -1, -1))
    assert one.digests(ALL_TABLES) == other.digests(ALL_TABLES)
    other.timers.advance(4_999_000)  # as a leader does when they are due soon
    assert one.digests(ALL_TABLES) == other.digests(ALL_TABLES)
    other.apply(OffsetsCommitted(1, "g", 0, ((3, 14),)))
    other.apply(TimersSet(1, 0, 70, 0, 0, 1, 0, DUE_MS))
    assert one.differing_tables(one.digests(ALL_TABLES), other.digests(ALL_TABLES)) == ["offsets", "timers"]


def test_forgetting_is_the_same_however_often_it_is_folded() -> None:
    """A state that is ahead of the frame, as one from a checkpoint, loses no later rows."""
    one, ahead = filled(range(5)), filled(range(5))
    forget = ExpiredDropped(one.windows.idle_before_ms(0, 3), 0)
    later = WindowBatch(0, 1, 90, 900, 0)
    for state in (one, ahead):
        state.apply(forget)
        state.windows.add((1, 0, 8), later)
    ahead.apply(forget)
    ahead.windows.add((1, 0, 8), later)
    assert len(one.windows) == 4
    assert one.digests(ALL_TABLES) == ahead.digests(ALL_TABLES)


def test_a_table_that_is_too_large_is_not_compared() -> None:
    """Its bit is not set, and its digest is 0."""
    state = State()
    assert state.differing_tables(state.digests(ALL_TABLES), state.digests(state.comparable_tables())) == []
    for number in range(DIGEST_ROWS_MAX + 1):
        state.windows.add((1, 0, number + 1), WindowBatch(0, 1, number, number, 0))
    tables = list(state.tables)
    assert state.comparable_tables() == (1 << len(tables)) - 1 - (1 << tables.index("windows"))
    assert state.digests(state.comparable_tables())[tables.index("windows")] == 0


def test_many_messages_sent_back_count_one_by_one() -> None:
    """They are in few queues: if queues were counted, the digest would block the event loop."""
    state = State()
    for number in range(0, DIGEST_ROWS_MAX + 1, 1_000):
        state.apply(RetryCopiesStored(1, "g", 0, tuple((offset, 1) for offset in range(number, number + 1_000))))
    assert not state.comparable_tables() >> list(state.tables).index("sent_back") & 1
