"""Credit and cursors of a push session."""

import pytest

from ortoo.common.errors import Invalid
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.membership.group_members import SlowConsumerRule
from ortoo.snode.push.flow import MERGED_BYTES_MAX, Credit, QueueCursor

QUEUE = Queue("t", "e", 0)


def test_a_batch_goes_whole_and_the_rest_is_owed() -> None:
    """Credit may be overdrawn by one batch; nothing more is sent until it is positive again."""
    credit = Credit()
    assert not credit.is_available
    credit.grant(10, 1000)
    assert credit.is_available
    credit.charge(25, 500)
    assert not credit.is_available
    credit.grant(15, 0)
    assert not credit.is_available
    credit.grant(1, 0)
    assert credit.is_available


def test_both_kinds_of_credit_are_needed() -> None:
    """Messages without bytes, or bytes without messages, are not enough."""
    messages, size = Credit(), Credit()
    messages.grant(5, 0)
    size.grant(0, 5)
    assert not messages.is_available
    assert not size.is_available


def test_acknowledgements_move_forward_only() -> None:
    """A smaller or equal offset changes nothing; one that was never sent is an error."""
    cursor = QueueCursor(QUEUE, generation=7)
    assert not cursor.commit(0, 7, 0.0)
    cursor.start(100, is_committed=False)
    cursor.advance(110)
    cursor.on_sent(110, now_s=1.0, size_bytes=0)
    assert cursor.waiting_since_s == 1.0
    assert cursor.commit(105, 7, now_s=2.0)
    assert cursor.waiting_since_s == 2.0
    assert not cursor.commit(103, 7, now_s=3.0)
    assert not cursor.commit(105, 7, now_s=3.0)
    assert cursor.waiting_since_s == 2.0
    assert cursor.commit(110, 7, now_s=4.0)
    assert cursor.waiting_since_s is None
    with pytest.raises(Invalid, match="was never delivered; give at most 110"):
        cursor.commit(111, 7, now_s=5.0)


def test_acknowledgements_from_before_the_assignment_are_dropped() -> None:
    """A generation older than that of the assignment is ignored; a newer one, or none, is not."""
    cursor = QueueCursor(QUEUE, generation=7)
    cursor.start(0, is_committed=True)
    cursor.on_sent(10, now_s=0.0, size_bytes=0)
    assert not cursor.commit(5, 6, now_s=0.0)
    assert cursor.commit(5, 8, now_s=0.0)
    assert cursor.commit(6, 0, now_s=0.0)


def test_a_group_without_an_offset_may_acknowledge_nothing() -> None:
    """Then it has the offset 0, and continues from there."""
    cursor = QueueCursor(QUEUE, generation=1)
    cursor.start(0, is_committed=False)
    assert cursor.commit(0, 1, now_s=0.0)
    assert cursor.committed_offset == 0


def test_a_jump_back_takes_the_acknowledged_offset_along() -> None:
    """If the queue's end was lost, acknowledgements count again from the new end."""
    cursor = QueueCursor(QUEUE, generation=1)
    cursor.start(50, is_committed=True)
    cursor.jump(40)
    cursor.on_sent(45, now_s=0.0, size_bytes=0)
    assert cursor.commit(45, 1, now_s=0.0)


def test_what_is_not_acknowledged_is_remembered_in_few_steps_however_small_the_deliveries_are() -> None:
    """A client that acknowledges nothing could make a snode remember a million; all are released with the last."""
    cursor = QueueCursor(QUEUE, generation=1)
    cursor.start(0, is_committed=True)
    for offset in range(10_000):
        cursor.on_sent(offset + 1, now_s=0.0, size_bytes=100)
    assert cursor.unacknowledged_bytes == 1_000_000
    assert len(cursor._sent) == -(-1_000_000 // (MERGED_BYTES_MAX + 64))
    assert cursor.commit(9_999, 1, now_s=0.0)
    assert 100 <= cursor.unacknowledged_bytes <= MERGED_BYTES_MAX + 100
    assert cursor.commit(10_000, 1, now_s=0.0)
    assert cursor.unacknowledged_bytes == 0


@pytest.mark.parametrize(
    ("newest", "acknowledged", "waited_s", "slow"),
    [
        (200, 100, 10.0, False),
        (201, 100, 10.0, True),
        (201, 100, 9.9, False),
        (10_000_000, None, 999.0, False),
        (10_000_000, 0, None, False),
    ],
)
def test_slow_is_strictly_more_than_the_threshold_for_the_whole_grace(
    newest: int, acknowledged: int | None, waited_s: float | None, slow: bool
) -> None:
    """The limits of the rule; a group without an offset is never slow (E-082, E-085)."""
    rule = SlowConsumerRule(threshold_messages=100, grace_s=10.0)
    since_s = None if waited_s is None else 1000.0 - waited_s
    assert (
        rule.is_slow(newest_offset=newest, acknowledged_offset=acknowledged, waiting_since_s=since_s, now_s=1000.0)
        is slow
    )


def test_without_grace_the_rule_is_bare() -> None:
    """Grace 0 evicts at the first message too many."""
    rule = SlowConsumerRule(threshold_messages=1024, grace_s=0.0)
    assert rule.is_slow(newest_offset=1025, acknowledged_offset=0, waiting_since_s=5.0, now_s=5.0)
    assert not rule.is_slow(newest_offset=1024, acknowledged_offset=0, waiting_since_s=5.0, now_s=5.0)
