"""Receipts of batches in flight."""

import asyncio

import pytest

from ortoo.client import Invalid, SendFutures, Unavailable
from ortoo.client.produce.producer_batch import ProducerBatch
from ortoo.common.records.compression import Codec
from ortoo.common.records.message import Message
from ortoo.common.records.view import open_batch
from tests.unit.client.made_batches import QUEUE


def made() -> ProducerBatch:
    batch = ProducerBatch(QUEUE, 7, asyncio.get_running_loop().create_future(), 10.0)
    batch.encode([Message(b"x")] * 3, now_ms=1, codec=Codec.NONE)
    return batch


async def test_each_message_of_a_batch_has_its_own_receipt() -> None:
    """Offsets follow the first one; an id given by the producer stays."""
    batch = made()
    sendings = [batch.send_future(0), batch.send_future(1, "mine"), batch.send_future(0).following(2)]
    assert not sendings[0].done
    batch.complete(100, 5)
    receipts = [await it for it in sendings]
    assert [it.offset for it in receipts] == [100, 101, 102]
    assert receipts[1].message_id == "mine"
    assert len({it.message_id for it in receipts}) == 3


async def test_a_message_that_was_left_out_shifts_those_behind_it() -> None:
    """The refused message fails alone; the offsets of the others count stored messages."""
    batch = made()
    batch.rejected[1] = Invalid("empty")
    batch.complete(100, 5)
    assert [batch.send_future(row).result().offset for row in (0, 2)] == [100, 101]
    with pytest.raises(Invalid):
        await batch.send_future(1)


async def test_a_message_with_a_text_for_keys_is_refused_alone() -> None:
    """Its message is left out, and the others are stored."""
    batch = ProducerBatch(QUEUE, 7, asyncio.get_running_loop().create_future(), 10.0)
    assert batch.encode([b"a", Message(b"b", keys="text"), b"", Message(b"c")], now_ms=1, codec=Codec.NONE)
    batch.complete(100, 5)
    assert open_batch(batch.sealed).bodies() == [b"a", b"c"]
    assert [batch.send_future(row).result().offset for row in (0, 3)] == [100, 101]
    for row, error in ((1, "keys are a str"), (2, "body is empty")):
        with pytest.raises(Invalid, match=error):
            batch.send_future(row).result()


async def test_a_failed_batch_fails_all_its_messages_and_only_once() -> None:
    """A late answer changes nothing."""
    batch = made()
    batch.fail(Unavailable("gone"))
    batch.complete(100, 5)
    for row in range(2):
        with pytest.raises(Unavailable):
            await batch.send_future(row)


async def test_many_sendings_are_awaited_together_in_order() -> None:
    """Runs of several batches give one receipt for each message."""
    first, second = made(), made()
    sendings = SendFutures([(first.send_future(0), 2), (second.send_future(0), 3)])
    first.complete(10, 5)
    second.complete(0, 5)
    assert len(sendings) == len(list(sendings)) == 5
    assert [it.offset for it in await sendings] == [10, 11, 0, 1, 2]


async def test_an_abandoned_wait_leaves_the_batch_alone() -> None:
    """Cancelling one waiter does not affect the others."""
    batch = made()

    async def wait() -> None:
        await batch.send_future(0)

    async with asyncio.TaskGroup() as group:
        one, other = group.create_task(wait()), group.create_task(wait())
        await asyncio.wait([one], timeout=0.01)
        one.cancel()
        await asyncio.wait([one])
        batch.complete(1, 5)
        await other
    assert one.cancelled()


async def test_a_wait_that_is_called_off_beside_the_answer_harms_no_other() -> None:
    """The answer wakes all waiters in order, and skips one that was cancelled in the same turn."""
    batch, woken = made(), []

    async def wait(row: int) -> None:
        await batch.send_future(row)
        woken.append(row)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wait(row)) for row in range(3)]
        await asyncio.wait(tasks, timeout=0.01)
        tasks[1].cancel()
        batch.complete(1, 5)
        await asyncio.wait(tasks)
    assert [task.cancelled() for task in tasks] == [False, True, False]
    assert woken == [0, 2]
    await batch.send_future(1)
