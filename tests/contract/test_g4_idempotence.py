"""G4: a batch with an idempotence id is stored once for any number of retries."""

import asyncio

from ortoo.common.errors import Conflict, Unavailable
from tests.contract.one_store import TOPIC, OneStore, batch, refusal


async def test_a_batch_sent_again_answers_its_first_place() -> None:
    """G4: retries at once, while the first is in progress, after a restart and after a power cut."""
    one = OneStore()
    store = await one.open()
    sent = batch(b"once", 3, producer_id=9)
    answers = await asyncio.gather(*(store.append(TOPIC, 0, sent) for _ in range(5)))
    for start_again in (one.restart, lambda: one.crash(4)):
        store = await start_again()
        answers.append(await store.append(TOPIC, 0, sent))
    assert {answer.first_offset for answer in answers} == {0}
    assert await one.texts() == [(0, b"once")]
    await one.store.close()


async def test_the_last_five_batches_are_remembered() -> None:
    """G4: a producer may have five batches in flight and retry each of them, in any order."""
    one = OneStore()
    store = await one.open()
    batches = [batch(b"%d" % number, 2, producer_id=9, first_sequence=2 * number) for number in range(8)]
    first = [await store.append(TOPIC, 0, sent) for sent in batches]
    for number in (7, 3, 5, 4, 6):
        assert (await store.append(TOPIC, 0, batches[number])).first_offset == first[number].first_offset
    assert isinstance(await refusal(store, batches[0]), Conflict)
    assert len(await one.texts()) == 8
    await one.store.close()


async def test_gaps_and_other_bytes_are_refused_and_not_stored() -> None:
    """A batch that came too early may be retried later; a sequence is never used for other bytes (G4)."""
    one = OneStore()
    store = await one.open()
    await store.append(TOPIC, 0, batch(b"a", 2, producer_id=9))
    early = batch(b"c", 1, producer_id=9, first_sequence=3)
    assert isinstance(await refusal(store, early), Unavailable)
    assert isinstance(await refusal(store, batch(b"x", 2, producer_id=9)), Conflict)
    await store.append(TOPIC, 0, batch(b"b", 1, producer_id=9, first_sequence=2))
    await store.append(TOPIC, 0, early)
    assert await one.texts() == [(0, b"a"), (2, b"b"), (3, b"c")]
    await one.store.close()


async def test_queues_and_producers_do_not_share_sequences() -> None:
    """G4: each (producer, queue) has its own sequence."""
    one = OneStore()
    store = await one.open()
    for producer_id in (1, 2):
        for queue_id in (0, 1):
            text = b"%d %d" % (producer_id, queue_id)
            await store.append(TOPIC, queue_id, batch(text, producer_id=producer_id))
    assert await one.texts(0) == [(0, b"1 0"), (1, b"2 0")]
    assert await one.texts(1) == [(0, b"1 1"), (1, b"2 1")]
    await one.store.close()
