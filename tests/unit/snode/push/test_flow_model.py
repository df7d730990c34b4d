"""The credit of a push session and the positions of its queues, against models that keep every message."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.errors import Invalid
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.push.flow import CREDIT_BYTES_MAX, CREDIT_MESSAGES_MAX, MERGED_BYTES_MAX, Credit, QueueCursor

QUEUE = Queue("t", "e", 3)
SINCE = 5
AMOUNTS = st.sampled_from([0, 1, 7, CREDIT_MESSAGES_MAX, CREDIT_BYTES_MAX, 2 * CREDIT_BYTES_MAX])


@given(st.lists(st.tuples(st.booleans(), AMOUNTS, AMOUNTS), max_size=12))
def test_credit_is_what_was_granted_less_what_was_charged_up_to_a_limit(steps: list[tuple[bool, int, int]]) -> None:
    """Open while something of both is left."""
    credit, messages, size_bytes = Credit(), 0, 0
    assert not credit.is_available
    for is_grant, count, length in steps:
        if is_grant:
            credit.grant(count, length)
            messages = min(messages + count, CREDIT_MESSAGES_MAX)
            size_bytes = min(size_bytes + length, CREDIT_BYTES_MAX)
        else:
            credit.charge(count, length)
            messages, size_bytes = messages - count, size_bytes - length
        assert (credit.messages, credit.size_bytes) == (messages, size_bytes)
        assert credit.is_available == (messages > 0 and size_bytes > 0)


class Model:
    """The messages that were read, reported and acknowledged."""

    def __init__(self) -> None:
        self.read = self.sent = -1
        self.acknowledged: int | None = None
        self.waiting_since_s: float | None = None
        self.open: list[tuple[int, int]] = []
        """(next offset, bytes) of unacknowledged deliveries, some combined."""

    def same_as(self, cursor: QueueCursor) -> bool:
        """Whether a cursor has the same state."""
        said = (cursor.next_offset, cursor.sent_offset, cursor.committed_offset, cursor.waiting_since_s)
        return (
            said == (self.read, self.sent, self.acknowledged, self.waiting_since_s)
            and cursor.unreported_count == self.read - self.sent
            and cursor.unacknowledged_bytes == sum(size_bytes for _, size_bytes in self.open)
        )


STEPS = st.one_of(
    st.tuples(st.just("start"), st.integers(0, 20), st.booleans()),
    st.tuples(st.just("jump"), st.integers(0, 40), st.none()),
    st.tuples(st.just("advance"), st.integers(0, 10), st.none()),
    st.tuples(st.just("told"), st.integers(-2, 10), st.sampled_from([0, 1, 3, MERGED_BYTES_MAX - 1, MERGED_BYTES_MAX])),
    st.tuples(st.just("wait again"), st.none(), st.none()),
    st.tuples(st.just("acknowledge"), st.integers(-1, 45), st.sampled_from([0, 1, SINCE - 1, SINCE, SINCE + 1])),
)


@given(st.lists(STEPS, max_size=40))
def test_a_cursor_says_how_far_its_queue_is(steps: list[tuple[str, Any, Any]]) -> None:
    """Read, reported and acknowledged, in any order; invalid calls change nothing."""
    cursor, model = QueueCursor(QUEUE, SINCE), Model()
    assert (cursor.queue, cursor.since_generation, cursor.end_offset) == (QUEUE, SINCE, 0)
    for second, (what, number, more) in enumerate(steps):
        now_s = float(second)
        if what == "start":
            cursor.start(number, is_committed=more)
            model.read = model.sent = number
            model.acknowledged = number if more else None
        elif what == "jump":
            cursor.jump(number)
            model.read = model.sent = number
            model.acknowledged = None if model.acknowledged is None else min(model.acknowledged, number)
        elif what == "advance":
            cursor.advance(model.read + number - 2)
            model.read = max(model.read, model.read + number - 2)
        elif what == "told":
            told(cursor, model, model.sent + number, more, now_s)
        elif what == "wait again":
            cursor.restart_wait(now_s)
            model.waiting_since_s = None if model.waiting_since_s is None else now_s
        else:
            acknowledge(cursor, model, number, more, now_s)
        assert model.same_as(cursor)


def told(cursor: QueueCursor, model: Model, next_offset: int, size_bytes: int, now_s: float) -> None:
    """Report a delivery to both."""
    cursor.on_sent(next_offset, now_s, size_bytes)
    if size_bytes and model.open and model.open[-1][1] < MERGED_BYTES_MAX:
        model.open[-1] = (next_offset, model.open[-1][1] + size_bytes)
    elif size_bytes:
        model.open.append((next_offset, size_bytes))
    model.sent = max(model.sent, next_offset)
    model.waiting_since_s = now_s if model.waiting_since_s is None else model.waiting_since_s


def acknowledge(cursor: QueueCursor, model: Model, offset: int, generation: int, now_s: float) -> None:
    """Acknowledge to both."""
    if model.sent < 0 or 0 < generation < SINCE:
        assert not cursor.commit(offset, generation, now_s)
    elif not 0 <= offset <= model.sent:
        with pytest.raises(Invalid) as refused:
            cursor.commit(offset, generation, now_s)
        assert refused.value.field == "commit.offsets.offset"
        assert refused.value.message == (
            f"offset {offset} of queue {QUEUE} was never delivered; give at most {model.sent}"
        )
    elif model.acknowledged is not None and offset <= model.acknowledged:
        assert not cursor.commit(offset, generation, now_s)
    else:
        assert cursor.commit(offset, generation, now_s)
        model.acknowledged = offset
        while model.open and model.open[0][0] <= offset:
            model.open.pop(0)
        model.waiting_since_s = None if offset == model.sent else now_s
