"""Messages of a batch with all rows, with some rows, or gathered."""

import struct

import pytest

from ortoo.client.core.queues import Queue
from ortoo.client.core.received import ReceivedBatch
from ortoo.common.records.batch import Message, encode
from ortoo.common.records.text_rules import COPY_LIMITS
from tests.unit.client.made_batches import made_batch


def test_a_whole_batch_gives_all_its_messages() -> None:
    """Offsets are dense from the first one."""
    batch = made_batch(10, 4)
    assert [(it.offset, it.body) for it in batch] == [(10, b"10"), (11, b"11"), (12, b"12"), (13, b"13")]
    assert batch.bodies() == [it.body for it in batch.messages()]
    assert batch[-1].offset == 13
    with pytest.raises(IndexError):
        _ = batch[4]


@pytest.mark.parametrize("gathered", [False, True])
def test_chosen_rows_have_the_offsets_they_were_stored_at(gathered: bool) -> None:
    """Message i has the offset first offset + rows[i], whether other rows are in the batch or not."""
    batch = made_batch(100, 10, rows=[1, 4, 9], gathered=gathered)
    assert len(batch) == 3
    assert list(batch.offsets) == [101, 104, 109]
    assert [(it.offset, it.body) for it in batch] == [(101, b"101"), (104, b"104"), (109, b"109")]
    assert batch.bodies() == [b"101", b"104", b"109"]
    assert [it.body for it in batch.messages()] == batch.bodies()
    assert [batch.row(index) for index in range(3)] == ([0, 1, 2] if gathered else [1, 4, 9])


@pytest.mark.parametrize("gathered", [False, True])
def test_rows_without_a_gap_are_a_range(gathered: bool) -> None:
    """The ends of a bounded read are parts of stored batches, whose thousands of offsets need no loop."""
    batch = made_batch(100, 10, rows=[3, 4, 5], gathered=gathered)
    assert batch.offsets == range(103, 106)
    assert [(it.offset, it.body) for it in batch] == [(103, b"103"), (104, b"104"), (105, b"105")]
    assert batch.bodies() == [it.body for it in batch.messages()]
    assert [batch.row(index) for index in range(3)] == ([0, 1, 2] if gathered else [3, 4, 5])


@pytest.mark.parametrize("rows", [[2, 3, 5], [2, 2, 4], [3, 1, 5]])
def test_other_rows_stay_as_they_are(rows: list[int]) -> None:
    """Only rows in order and without a gap are a range, even if the first and the last one suggest it."""
    assert list(made_batch(100, 10, rows=rows).offsets) == [100 + row for row in rows]


def test_acknowledging_is_heard_once() -> None:
    """Each acknowledgement reports the number of newly finished messages."""
    heard: list[int] = []
    batch = made_batch(0, 5, finished=lambda _, count: heard.append(count))
    batch[3].ack()
    batch[3].ack()
    batch.ack()
    batch.ack()
    assert heard == [1, 4]
    assert batch.progress.first_unfinished_offset == 5


def test_the_first_unfinished_offset_is_that_of_a_chosen_row() -> None:
    """Acknowledgements in any order move it to the next unfinished row, and at the end to the next delivery."""
    batch = made_batch(100, 10, rows=[1, 4, 9])
    firsts = []
    for index in (1, 0, 0, 2):
        firsts.append(batch.progress.first_unfinished_offset)
        batch[index].ack()
    assert [*firsts, batch.progress.first_unfinished_offset] == [101, 101, 109, 109, 110]


def test_a_message_without_an_id_is_named_by_its_place() -> None:
    """Two messages have two ids, the same ones in each delivery."""
    ids = [it.message_id for it in made_batch(0, 2)]
    assert len(set(ids)) == 2
    assert ids == [it.message_id for it in made_batch(0, 2)]


def test_rows_of_several_stored_batches_have_their_own_times() -> None:
    """A message has its own store time, not that of the first batch that was merged."""
    batch = made_batch(100, 10, rows=[1, 4, 9], gathered=True)
    assert [it.stored_at_ms for it in batch] == [5, 5, 5]
    batch.row_stored_at_ms = struct.pack("<3q", 5, 6, 7)
    assert [it.stored_at_ms for it in batch] == [5, 6, 7]


@pytest.mark.parametrize(("topic", "attempt"), [("%RETRY%g", 16), ("orders", 1)])
def test_tries_are_told_by_copies_alone(topic: str, attempt: int) -> None:
    """A message that an application forwards with all properties has no attempts."""
    sealed = encode([Message(b"a", properties={"RECONSUME_TIMES": "15"})], now_ms=1, limits=COPY_LIMITS)
    batch = ReceivedBatch(Queue(topic, "e", 0), sealed, topic_id=7, first_offset=0, next_offset=1, stored_at_ms=5)
    assert batch[0].attempt == attempt
