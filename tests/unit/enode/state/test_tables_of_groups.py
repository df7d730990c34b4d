"""Tables of groups: their rows, their dependencies and their limits."""

import pytest

from ortoo.enode.changes.groups import GroupDropped, GroupMode, ModeSet
from ortoo.enode.changes.halves import HalfEnded
from ortoo.enode.changes.kinds import IdsRemembered, OffsetsCommitted, WindowBatch
from ortoo.enode.changes.pops import PopIntervals, PopLeased
from ortoo.enode.log.frame import FrameHeader, FrameKind
from ortoo.enode.state.fold import State
from ortoo.enode.state.interval_map import DeliveryState, Phase, Piece
from ortoo.enode.state.tables import halves
from ortoo.enode.state.tables.ends import TrimTable
from ortoo.enode.state.tables.groups import ModeTable
from ortoo.enode.state.tables.halves import HalfMessageTable
from ortoo.enode.state.tables.message_ids import IDS_PER_CHANGE, MessageIdTable
from ortoo.enode.state.tables.offsets import GroupOffsetTable
from ortoo.enode.state.tables.pops import PopTable
from tests.unit.enode.state.folding import fold

HOLD = DeliveryState(Phase.LEASED, 1, 7, 100, 10)


def leased(group: str, queue_id: int, first: int, count: int = 1) -> PopLeased:
    """Some messages of topic 1 were leased."""
    return PopLeased(1, group, queue_id, HOLD.number, HOLD.until_ms, HOLD.duration_ms, ((first, count, 1),))


def held(pops: PopTable, group: str, queue_id: int) -> list[Piece]:
    """The intervals above the floor."""
    queue = pops.get((1, group, queue_id))
    assert queue is not None
    return queue.intervals.rows(0, 100)


def test_a_group_that_is_gone_takes_nothing_of_others_with_it() -> None:
    """All of its queues are dropped, only in this topic."""
    pops = PopTable(GroupOffsetTable(), TrimTable())
    for change in (leased("g", 0, 5), leased("g", 1, 6), leased("h", 0, 7)):
        fold(pops, change)
    pops.drop_group(2, "g")
    assert len(list(pops.all())) == 3
    pops.drop_group(1, "g")
    assert [key for key, _ in pops.all()] == [(1, "h", 0)]
    state = State()
    state.apply_all([leased("g", 0, 5), leased("h", 0, 7), GroupDropped(1, "g")])
    assert [key for key, _ in state.pops.all()] == [(1, "h", 0)]


def test_a_group_that_pops_begins_where_its_offset_is() -> None:
    """From then on it has an offset, although it never committed one."""
    offsets = GroupOffsetTable()
    pops = PopTable(offsets, TrimTable())
    fold(offsets, OffsetsCommitted(1, "g", 0, ((2, 40), (3, 50))))
    fold(pops, leased("g", 2, 38, 5))
    assert held(pops, "g", 2) == [Piece(40, 43, HOLD)]
    fold(pops, leased("h", 2, 0))
    assert offsets.of(1, "h") == {2: 0}


def test_rows_of_a_checkpoint_replace_what_was_known_when_they_are_the_first() -> None:
    """Later rows are added; an unknown queue begins with whichever rows come first."""
    pops = PopTable(GroupOffsetTable(), TrimTable())
    fold(pops, leased("g", 0, 90))
    row = (int(HOLD.phase), HOLD.attempt, HOLD.number, HOLD.until_ms, HOLD.duration_ms)
    fold(pops, PopIntervals(1, "g", 0, 10, True, ((12, 2, *row),)))
    fold(pops, PopIntervals(1, "g", 0, 10, False, ((20, 1, *row), (21, 1, 0, 0, 0, 0, 0))))
    assert held(pops, "g", 0) == [Piece(12, 14, HOLD), Piece(20, 21, HOLD), Piece(21, 22, None)]
    fold(pops, PopIntervals(1, "g", 5, 3, False, ((4, 1, *row),)))
    assert held(pops, "g", 5) == [Piece(4, 5, HOLD)]


def test_ids_in_a_row_share_changes_of_a_checkpoint() -> None:
    """A gap, another queue or the limit begins the next change; all ids are restored."""
    ids = MessageIdTable()
    several = tuple(number.to_bytes(16, "big") for number in range(2 * IDS_PER_CHANGE + 3))
    fold(ids, IdsRemembered(1, 2, 0, False, 5, 100, several))
    fold(ids, IdsRemembered(1, 2, 9_000, False, 5, 100, (b"after a gap.....",)))
    fold(ids, IdsRemembered(1, 3, 9_001, False, 5, 100, (b"in another queue",)))
    written = list(ids.checkpoint())
    assert len(written) == 5
    assert len(written[0]) == len(written[1]) > len(written[2]) > len(written[3])


def test_the_longest_ended_transactions_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first verdict is final."""
    monkeypatch.setattr(halves, "ENDED_MAX", 2)
    known = HalfMessageTable()
    for number, verdict in ((1, 1), (2, 1), (2, 2), (3, 1)):
        fold(known, HalfEnded(number, 1, verdict, 1, 5))
    assert list(known.ended) == [2, 3]
    assert known.ended[2].verdict == 1
    assert known.of_key(0) is None
    assert known.of_key(17) is None


def test_a_mode_that_is_undecided_again_is_none() -> None:
    """The modes of other groups stay."""
    modes = ModeTable()
    for group in ("g", "h"):
        fold(modes, ModeSet(1, group, GroupMode.POP))
    fold(modes, ModeSet(1, "g", GroupMode.UNDECIDED))
    fold(modes, ModeSet(2, "g", GroupMode.UNDECIDED))
    assert (modes.of(1, "g"), modes.of(1, "h")) == (GroupMode.UNDECIDED, GroupMode.POP)
    assert (modes.of_group("g"), modes.of_group("h")) == ([], [(1, GroupMode.POP)])


def test_a_commit_without_a_generation_has_none_unless_there_was_one() -> None:
    """Generations belong to locks: a group without locks is never fenced."""
    offsets = GroupOffsetTable()
    fold(offsets, OffsetsCommitted(1, "g", 0, ((0, 5),)))
    assert offsets.generation(1, "g", 0) == 0


def test_a_frame_of_messages_says_where_its_queue_ends_and_when_it_was_stored() -> None:
    """If the frame has a producer id, that producer's window is updated."""
    state = State()
    header = FrameHeader(
        kind=FrameKind.MESSAGES,
        topic_id=1,
        queue_id=2,
        first_offset=10,
        item_count=3,
        stored_at_ms=77,
        producer_id=9,
        first_sequence=4,
        payload_crc=5,
    )
    state.apply_messages(header)
    assert [(key, end.offset, end.stored_at_ms) for key, end in state.ends.all()] == [((1, 2), 13, 77)]
    window = state.windows.get((1, 2, 9))
    assert window is not None
    assert (window.next_sequence, window.used_at_ms, list(window.batches)) == (7, 77, [WindowBatch(4, 3, 10, 77, 5)])
