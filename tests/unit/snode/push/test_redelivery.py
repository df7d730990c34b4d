"""The limit of a session that redelivers messages that ended earlier sessions."""

from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import Interruption
from ortoo.snode.push.redelivery import STALL_S, RedeliveryLimit

A, B, C = (Queue("t", "e", number) for number in range(3))


def interruption(offset: int, end_offset: int, *, attempts: int = 0, repeats: int = 2) -> Interruption:
    """An interrupted delivery."""
    return Interruption(0, offset, end_offset, attempts, repeats)


def test_one_interruption_limits_nothing() -> None:
    """An ordinary crash, or a new version of a consumer, does not slow the next session."""
    limit = RedeliveryLimit()
    limit.add(A, None, 5, 0.0)
    limit.add(A, interruption(5, 100, repeats=1), 5, 0.0)
    assert limit.messages_max(A, lambda: 0) is None
    limit.add(A, interruption(5, 6, attempts=1, repeats=1), 5, 0.0)
    assert limit.messages_max(A, lambda: 0) == 1


def test_a_sixteenth_of_the_messages_is_redelivered_at_a_time_and_first() -> None:
    """Over all queues of the session; other queues wait, and nothing is limited when all are acknowledged."""
    limit = RedeliveryLimit()
    limit.add(A, interruption(0, 100), 0, 0.0)
    limit.add(B, interruption(10, 70), 10, 0.0)
    assert [limit.messages_max(queue, lambda: 0) for queue in (A, B, C)] == [10, 10, 0]
    assert [limit.messages_max(queue, lambda: 7) for queue in (A, B, C)] == [3, 3, 0]
    assert limit.messages_max(A, lambda: 12) == 0
    limit.on_committed(A, 100, 1.0)
    assert limit.messages_max(A, lambda: 0) == 0
    limit.on_committed(B, 69, 1.0)
    assert limit.messages_max(B, lambda: 0) == 10
    limit.on_committed(B, 70, 1.0)
    assert limit.messages_max(C, lambda: 1_000) is None


def test_a_few_messages_are_redelivered_alone() -> None:
    """So that the message that ends its consumer is known."""
    limit = RedeliveryLimit()
    limit.add(A, interruption(0, 20), 0, 0.0)
    assert (limit.messages_max(A, lambda: 0), limit.messages_max(A, lambda: 1)) == (1, 0)


def test_released_and_suspended_queues_are_not_waited_for() -> None:
    """And a session that acknowledges nothing gets its other messages after a while."""
    limit = RedeliveryLimit()
    limit.add(A, interruption(0, 20), 0, 0.0)
    limit.discard(A)
    assert limit.messages_max(B, lambda: 5) is None
    limit.add(A, interruption(0, 20), 0, 0.0)
    limit.on_committed(A, 1, 10.0)
    assert not limit.end_if_stalled(STALL_S)
    assert limit.end_if_stalled(10.0 + STALL_S)
    assert limit.messages_max(B, lambda: 5) is None
    assert not limit.end_if_stalled(1_000.0)
