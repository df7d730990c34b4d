"""Queries of single tables of the state."""

import pytest

from ortoo.common.errors import Conflict, Fenced
from ortoo.common.groups.sinks import sink_group
from ortoo.enode.changes.groups import GroupDeclared, GroupDeletionsDone, GroupMode, GroupUsed, RetryCopiesStored
from ortoo.enode.changes.halves import HalfOpen
from ortoo.enode.changes.kinds import (
    DirectoryTopicPut,
    ExpiredDropped,
    IdsRemembered,
    OffsetRows,
    OffsetsCommitted,
    OffsetsSkipped,
    QueueEndSnapshot,
    TopicPut,
)
from ortoo.enode.state.interval_map import DeliveryState, IntervalMap, Phase, Piece
from ortoo.enode.state.tables import groups, message_ids
from ortoo.enode.state.tables.ends import QueueEndTable
from ortoo.enode.state.tables.groups import GroupUseTable, check_mode
from ortoo.enode.state.tables.halves import HalfMessageTable
from ortoo.enode.state.tables.message_ids import MessageIdTable, RememberedId
from ortoo.enode.state.tables.offsets import GenerationReservations, GroupOffsetTable
from ortoo.enode.state.tables.sent_back import RetryMarkTable
from ortoo.enode.state.tables.topics import TopicTable
from tests.unit.enode.state.folding import fold

A, B, C = (bytes([number]) * 16 for number in range(3))


def test_offsets_are_those_of_the_last_commit_and_a_generation_stays_until_another_comes() -> None:
    """Of some or all queues; and whether all groups have passed an offset, for retention."""
    offsets = GroupOffsetTable()
    fold(offsets, OffsetsCommitted(1, "g", 4, ((2, 20), (0, 5))))
    fold(offsets, OffsetsCommitted(1, "g", 0, ((2, 30),)))
    fold(offsets, OffsetRows(1, "h", ((2, 7, 9),)))
    offsets.set_floor(1, "h", 3, 11)
    offsets.set_floor(1, "h", 2, 8)
    assert offsets.of(1, "g") == {0: 5, 2: 30}
    assert list(offsets.of(1, "g")) == [0, 2]
    assert offsets.of(1, "g", (2, 9)) == {2: 30}
    assert offsets.of(1, "nobody") == offsets.of(2, "g") == {}
    assert [offsets.generation(1, *where) for where in (("g", 2), ("g", 0), ("h", 2), ("h", 3), ("g", 9))] == [
        4,
        4,
        9,
        0,
        0,
    ]
    assert (offsets.groups(1), offsets.groups(2), offsets.rows) == (["g", "h"], [], 4)
    offsets.set_floor(2, "g", 3, 11)
    offsets.set_floor(2, "h", 3, 12)
    passed = [offsets.is_passed_by_all(*where) for where in ((1, 2, 8), (1, 2, 9), (1, 0, 5), (2, 3, 11), (2, 3, 12))]
    assert passed == [True, False, False, True, False]
    offsets.set_floor(1, "h", 0, 6)
    assert [offsets.is_passed_by_all(1, 0, offset) for offset in (5, 6)] == [True, False]
    assert offsets.is_passed_by_all(9, 0, 1 << 40)
    offsets.set_floor(1, sink_group("copy"), 0, 1)
    assert offsets.is_passed_by_all(1, 0, 5)
    assert [offsets.is_passed_by_all(9, 0, 5, owner) for owner in (None, "g", "dropped")] == [True, False, True]
    offsets.set_floor(9, "g", 0, 5)
    assert [offsets.is_passed_by_all(9, 0, offset, "g") for offset in (5, 6)] == [True, False]


def test_a_commit_by_an_older_generation_is_refused_also_while_the_newer_is_on_its_way() -> None:
    """The error has the queue and both generations; without a generation no commit is refused."""
    offsets, on_the_way = GroupOffsetTable(), GenerationReservations()
    fold(offsets, OffsetsCommitted(1, "g", 4, ((0, 5),)))
    on_the_way.reserve(1, "g", {1: 7}, 6)
    on_the_way.reserve(1, "g", {1: 8}, 5)
    on_the_way.reserve(1, "g", {2: 8}, 0)
    on_the_way.check(offsets, 1, "g", (0, 1, 2), 6)
    on_the_way.check(offsets, 1, "g", (0, 1, 2), 0)
    on_the_way.check(offsets, 1, "g", (0,), 4)
    on_the_way.check(offsets, 1, "g", (2,), 1)
    for queue_ids, generation, newest in (((0,), 3, 4), ((2, 1), 5, 6)):
        with pytest.raises(Fenced) as refused:
            on_the_way.check(offsets, 1, "g", queue_ids, generation)
        assert (refused.value.field, refused.value.message) == (
            "generation",
            f"queue {queue_ids[-1]} was committed by generation {newest}, this commit is of {generation}: another "
            "group member owns the queue now",
        )
    on_the_way.release(OffsetsCommitted(1, "g", 6, ((1, 7), (5, 1))))
    on_the_way.check(offsets, 1, "g", (1,), 5)
    with pytest.raises(Fenced):
        on_the_way.check(offsets, 1, "g", (1,), 4)
    on_the_way.release(OffsetsCommitted(1, "g", 0, ((1, 7),)))
    on_the_way.release(OffsetsCommitted(1, "g", 5, ((1, 8),)))
    on_the_way.check(offsets, 1, "g", (1,), 1)
    assert on_the_way._generations == {}


def test_ends_only_grow_and_remember_what_was_skipped() -> None:
    """Each hole once; for unknown queues, the first offset of new ones."""
    ends = QueueEndTable()
    assert ends.extend((1, 0), 5, 100).offset == 5
    ends.extend((1, 0), 3, 200)
    fold(ends, QueueEndSnapshot(1, 0, 5, 300))
    ends.extend((1, 0), 7)
    for skipped in ((1, 0, 9, 12), (1, 0, 9, 12), (1, 1, 4, 4), (0, 0, 0, 40), (0, 0, 0, 30)):
        fold(ends, OffsetsSkipped(*skipped))
    assert {key: (end.offset, end.stored_at_ms, end.skipped) for key, end in ends.all()} == {
        (1, 0): (12, 100, ((9, 12),)),
        (1, 1): (4, 0, ()),
    }
    assert (ends.floor, ends.skipped((1, 0)), ends.skipped((1, 1)), ends.skipped((2, 0))) == (40, ((9, 12),), (), ())


def test_of_a_topic_the_newest_version_in_the_directory_that_spoke_last_counts() -> None:
    """The same version again is accepted, because it is equal."""
    topics = TopicTable()
    fold(topics, DirectoryTopicPut(1, 5, 4, "d", "a"))
    fold(topics, DirectoryTopicPut(1, 4, 9, "d", "old"))
    fold(topics, DirectoryTopicPut(1, 5, 6, "d", "a"))
    assert [(one.name, one.queue_count, one.version, one.directory_id) for one in topics.all()] == [("a", 6, 5, "d")]
    fold(topics, DirectoryTopicPut(1, 2, 3, "e", "a"))
    fold(topics, TopicPut(2, 1, 1, "b"))
    assert [(one.version, one.directory_id) for one in topics.all()] == [(2, "e"), (1, "")]
    assert topics.get(3) is None


def test_ids_are_remembered_for_their_window_the_longest_remembered_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded by time and by count."""
    ids = MessageIdTable()
    fold(ids, IdsRemembered(1, 2, 10, False, 5, 100, (A, B)))
    assert ids.of(1, B, 99) == RememberedId(2, 11, False, 5, 100)
    assert (ids.of(1, B, 100), ids.of(1, C, 9), ids.of(2, A, 9)) == (None, None, None)
    assert (ids.has_expired(99), ids.has_expired(100), len(ids), ids.rows) == (False, True, 2, 2)
    fold(ids, IdsRemembered(1, 3, 0, True, 6, 200, (A,)))
    assert [offset for offset, _ in enumerate(ids.checkpoint())] == [0, 1]
    fold(ids, ExpiredDropped(0, 100))
    assert (ids.of(1, B, 9), ids.of(1, A, 9)) == (None, RememberedId(3, 0, True, 6, 200))
    fold(ids, IdsRemembered(1, 3, 1, True, 200, 300, (B,)))
    assert ids.of(1, A, 9) is None
    monkeypatch.setattr(message_ids, "IDS_MAX", 2)
    fold(ids, IdsRemembered(1, 3, 2, True, 201, 300, (A, C)))
    assert [ids.of(1, one, 9) is None for one in (B, A, C)] == [True, False, False]
    fold(ids, ExpiredDropped(0, 300))
    assert (len(ids), list(ids.checkpoint()), ids.has_expired(999)) == (0, [], False)


def test_a_mark_lives_until_its_message_is_passed() -> None:
    """Marks of other queues and of later messages stay."""
    marks = RetryMarkTable()
    fold(marks, RetryCopiesStored(1, "g", 0, ((3, 0), (4, 1))))
    fold(marks, RetryCopiesStored(1, "g", 1, ((3, 0),)))
    assert marks.has((1, "g", 0), (4, 1))
    assert not marks.has((1, "g", 0), (4, 0))
    fold(marks, OffsetsCommitted(1, "g", 0, ((0, 4),)))
    assert [marks.count((1, "g", queue)) for queue in range(3)] == [1, 1, 0]
    fold(marks, OffsetsCommitted(1, "g", 0, ((0, 5), (2, 9))))
    assert (marks.rows, list(marks._topics[1])) == (1, [("g", 1)])


def test_when_a_group_used_a_topic_counts_once_a_directory_was_heard() -> None:
    """The latest time counts; the number of directories is limited."""
    table = GroupUseTable()
    table.record_use(1, "g", 50)
    assert (list(table.entries()), table.last_used_ms(1, "g"), table.last_used_ms(1, "h")) == ([(1, "g", 0)], 0, None)
    fold(table, GroupDeletionsDone(7, "d"))
    table.record_use(1, "g", 60)
    table.record_use(1, "g", 55)
    fold(table, GroupUsed(1, "g", 58))
    assert table.last_used_ms(1, "g") == 60
    fold(table, GroupUsed(1, "g", 61))
    assert table.last_used_ms(1, "g") == 61
    fold(table, GroupDeletionsDone(6, "d"))
    assert (table.deletions_done("d"), table.deletions_done("e")) == (7, None)
    for number in range(groups.DIRECTORIES_MAX):
        fold(table, GroupDeletionsDone(number, f"d{number}"))
    assert (table.deletions_done("d"), table.deletions_done("d0")) == (None, 0)
    fold(table, GroupDeclared(True, "g"))
    fold(table, GroupDeclared(True, "h"))
    fold(table, GroupDeclared(False, "g"))
    assert table.declared == {"h"}


def test_open_transactions_are_found_by_topic_group_place_and_key_the_oldest_first() -> None:
    """With `parked_only` only parked ones; never more than the limit."""
    halves = HalfMessageTable()
    rows = [(1, 7, 5, 300, False, 0, "p"), (2, 8, 6, 200, True, 44, "p"), (3, 7, 9, 200, True, 0, "q")]
    for number, topic, place, stored_at_ms, parked, key, group in rows:
        fold(halves, HalfOpen(number, topic, 0, place, 1, stored_at_ms, 9_000, 0, parked, key, group))
    assert [one.number for one in halves.select()] == [2, 3, 1]
    assert [one.number for one in halves.select(limit=2)] == [2, 3]
    assert [one.number for one in halves.select(topic_id=7)] == [3, 1]
    assert [one.number for one in halves.select(producer_group="p")] == [2, 1]
    assert [one.number for one in halves.select(parked_only=True, topic_id=7)] == [3]
    assert [one.number for one in halves.in_places(5, 9)] == [1, 2]
    found = halves.of_key(44)
    assert found is not None
    assert (found.number, halves.of_key(0), halves.of_key(45)) == (2, None, None)
    halves.drop_topic(8)
    assert (halves.of_key(44), halves.rows) == (None, 2)


def test_a_use_that_does_not_fit_is_refused_with_what_to_do() -> None:
    """The message has the command for operators."""
    for stored in (GroupMode.UNDECIDED, GroupMode.POP):
        check_mode(stored, GroupMode.POP, group="g", topic="t")
    with pytest.raises(Conflict) as refused:
        check_mode(GroupMode.OFFSETS, GroupMode.POP_IN_ORDER, group="g", topic="t")
    assert refused.value.field == "group"
    assert refused.value.message == (
        "group g consumes topic t by offsets (push sessions and pulls); this request consumes it by pop, in the "
        "order of message groups. Both at once would deliver messages twice or never. Use another group, or stop its "
        "consumers and change the mode: ortoo group mode g t --set pop-in-order (AdminService/SetDeliveryMode)"
    )


def test_intervals_are_given_in_pieces_from_an_offset_on() -> None:
    """The first piece holds the offset; never more than the limit."""
    held, intervals = DeliveryState(Phase.LEASED, 1, 5, 100, 10), IntervalMap(2)
    intervals.set_state(3, 6, held)
    intervals.finish(8, 9)
    intervals.set_state(9, 12, held)
    assert intervals.rows(0, 9) == [Piece(3, 6, held), Piece(8, 9, None), Piece(9, 12, held)]
    assert intervals.rows(5, 1) == [Piece(3, 6, held)]
    assert intervals.rows(6, 9) == [Piece(8, 9, None), Piece(9, 12, held)]
    assert intervals.rows(12, 9) == []
