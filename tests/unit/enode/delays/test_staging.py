"""Delayed messages in memory: taken in the order of their due times, by queue, and packed into batches."""

import numpy as np

from ortoo.common.arrays.opened_batch import OpenedBatch
from ortoo.common.records.batch import encode, open_batch
from ortoo.common.records.columns import MESSAGE_ID
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import RECORDS_BYTES_MAX
from ortoo.enode.delays.staging import DueMessages, Staging, StagingBuffer, sort_by_time


def due(destination: int, *at_ms: int, first_id: int = 0, **fields: object) -> DueMessages:
    """Messages due at these times, with the times as bodies."""
    messages = [Message(b"%d" % at, deliver_at_ms=at, **fields) for at in at_ms]  # type: ignore[arg-type]
    ids = np.arange(first_id, first_id + len(at_ms), dtype="<i8")
    opened = OpenedBatch(encode(messages, now_ms=1))
    rows = np.arange(len(at_ms), dtype="<i4")
    return sort_by_time(destination, np.array(at_ms, "<i8"), ids, opened, rows)


def bodies(one: DueMessages) -> list[bytes]:
    """The bodies of all its batches."""
    return [body for batch, _, _ in one.batches("made-") for body in open_batch(batch, verify_crc=True).bodies()]


def test_what_is_due_comes_by_queue_in_the_order_of_time() -> None:
    """Also from several reads; messages that are not due stay."""
    staging = Staging()
    staging.add(due(1, 30, 10, 50))
    staging.add(due(1, 20, 60, first_id=10))
    staging.add(due(2, 40, first_id=20))
    assert staging.next_ms == 10
    found = {one.destination: one for one in staging.take(45, 100)}
    assert {destination: bodies(one) for destination, one in found.items()} == {1: [b"10", b"20", b"30"], 2: [b"40"]}
    assert found[1].timer_ids.tolist() == [1, 10, 0]
    assert (staging.count, staging.next_ms) == (2, 50)
    assert [bodies(one) for one in staging.take(60, 100)] == [[b"50", b"60"]]
    assert (staging.count, staging.bytes) == (0, 0)
    assert staging.next_ms is None


def test_no_more_is_taken_than_asked_for() -> None:
    """The rest is taken by the next call."""
    staging = Staging()
    staging.add(due(1, *range(10)))
    assert [bodies(one) for one in staging.take(100, 3)] == [[b"0", b"1", b"2"]]
    assert [len(one) for one in staging.take(100, 100)] == [7]


def test_each_message_has_the_id_of_its_producer_or_that_of_its_timer() -> None:
    """A delivered message has the id that was returned to its producer."""
    staging = Staging()
    staging.add(due(1, 10, 20, first_id=41))
    staging.add(due(1, 15, message_id="chosen"))
    [one] = staging.take(100, 100)
    [(batch, _, _)] = one.batches("made-")
    assert open_batch(batch).values(MESSAGE_ID) == ["made-41", "chosen", "made-42"]


def test_messages_with_and_without_priority_travel_apart() -> None:
    """A batch has priorities for all of its messages or none."""
    staging, buffer = Staging(), StagingBuffer()
    buffer.add(due(1, 10))
    buffer.add(due(1, 20, priority=3))
    assert buffer.first_ms == 10
    buffer.move_to(staging)
    assert sorted(len(one) for one in staging.take(100, 100)) == [1, 1]


def test_what_is_too_much_for_one_batch_goes_in_several() -> None:
    """Each within the limit, in order, and all messages together."""
    messages = [Message(b"%04d" % number + bytes(300_000), deliver_at_ms=number) for number in range(9)]
    opened = [OpenedBatch(encode([message], now_ms=1)) for message in messages]
    staging, buffer = Staging(), StagingBuffer()
    for number, one in enumerate(opened):
        at, row = np.array([number], "<i8"), np.zeros(1, "<i4")
        buffer.add(sort_by_time(1, at, at, one, row))
    buffer.move_to(staging)
    [together] = staging.take(100, 100)
    parts = list(together.batches(""))
    assert len(parts) > 3
    assert all(len(batch.records) <= RECORDS_BYTES_MAX for batch, _, _ in parts)
    assert [int(body[:4]) for body in bodies(together)] == list(range(9))
    assert [number for _, _, ids in parts for number in ids.tolist()] == list(range(9))
