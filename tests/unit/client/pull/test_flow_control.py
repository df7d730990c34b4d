"""The limits at which a consumer stops pulling."""

from functools import partial

import pytest

from ortoo.client.pull.flow_control import MIB, BufferedMessages, FlowControlCounts, FlowControlReason, FlowLimits
from ortoo.client.pull.process_queue import ProcessQueue
from tests.unit.client.made_batches import QUEUE, made_batch


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (BufferedMessages(1000, 0, 0), None),
        (BufferedMessages(1001, 0, 0), FlowControlReason.MESSAGES),
        (BufferedMessages(0, 101 * MIB - 1, 0), None),
        (BufferedMessages(0, 101 * MIB, 0), FlowControlReason.BYTES),
        (BufferedMessages(0, 0, 2000), None),
        (BufferedMessages(0, 0, 2001), FlowControlReason.SPAN),
        (BufferedMessages(1001, 101 * MIB, 2001), FlowControlReason.MESSAGES),
    ],
)
def test_each_limit_is_exceeded_strictly(held: BufferedMessages, expected: FlowControlReason | None) -> None:
    """E-140, E-141, E-142: more than 1,000 messages, than 100 whole MiB, than a span of 2,000, in this order."""
    assert FlowLimits().exceeded(held) is expected


def test_in_order_the_span_does_not_count() -> None:
    """E-142: in ordered processing no message can be stuck before finished ones."""
    assert FlowLimits(span_max=None).exceeded(BufferedMessages(0, 0, 1 << 40)) is None


def test_limits_of_a_topic_are_spread_over_the_queues_owned() -> None:
    """E-146: a topic limit of 1,000 is 100 for each of ten queues, and never less than one message or MiB."""
    limits = FlowLimits(topic_messages_max=1000, topic_bytes_max=50 * MIB)
    assert (limits.per_queue(10).messages_max, limits.per_queue(10).bytes_max) == (100, 5 * MIB)
    assert (limits.per_queue(5000).messages_max, limits.per_queue(5000).bytes_max) == (1, MIB)
    assert (FlowLimits().per_queue(10).messages_max, FlowLimits().per_queue(10).bytes_max) == (1000, 100 * MIB)


def test_the_log_tells_of_one_time_in_a_thousand() -> None:
    """Each limit has its own count; the first time and each thousandth after it are logged."""
    counts = FlowControlCounts()
    told = [number for number in range(1, 2502) if counts.count(FlowControlReason.SPAN)]
    assert told == [1, 1001, 2001]
    assert (counts[FlowControlReason.SPAN], counts[FlowControlReason.BYTES]) == (2501, 0)


def test_a_queue_says_what_it_holds() -> None:
    """E-142: with one stuck message the count is small and the span is large. When all are finished both are 0."""
    queue = ProcessQueue(QUEUE, 0)
    batches = [made_batch(at, 32, finished=partial(queue.on_finished, 0)) for at in range(0, 2048, 32)]
    for batch in batches:
        queue.put(batch)
    assert queue.buffered == BufferedMessages(2048, sum(it.size_bytes for it in batches), 2047)
    for batch in batches[1:]:
        batch.ack()
    for message in list(batches[0])[1:]:
        message.ack()
    held = queue.buffered
    assert (held.messages, held.span, queue.commit_offset) == (1, 2047, 0)
    newer = made_batch(2048, 32, finished=partial(queue.on_finished, 0))
    queue.put(newer)
    assert (queue.buffered.messages, queue.buffered.span) == (33, 2079)
    assert FlowLimits().exceeded(queue.buffered) is FlowControlReason.SPAN
    batches[0].ack()
    newer.ack()
    assert (queue.buffered, queue.commit_offset) == (BufferedMessages(0, 0, 0), 2080)
