"""A refused request stored nothing, an accepted one everything; a retry resolves a lost answer (G11)."""

import errno

from ortoo.common.errors import NotFound, Overloaded, Unavailable
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.crash_points import OUTCOMES
from tests.contract.one_store import QUEUES, TOPIC, OneStore, batch, refusal


async def test_a_refused_batch_is_never_found() -> None:
    """After unknown queues, wrong sequences and a full disk the queue is unchanged, also after a restart (G11)."""
    memory = MemoryDisk(capacity_bytes=40_000)
    one = OneStore(disk=FaultyDisk(memory))
    store = await one.open()
    await one.append(b"before")
    assert isinstance(await refusal(store, batch(b"no queue"), QUEUES), NotFound)
    assert isinstance(await refusal(store, batch(b"no topic"), topic_id=77), NotFound)
    assert isinstance(await refusal(store, batch(b"no producer", 1, 8, 30)), NotFound)
    refused = None
    while refused is None:
        refused = await refusal(store, batch(b"full " * 200))
    assert isinstance(refused, Overloaded)
    assert refused.retry_after_ms > 0
    stored = await one.texts()
    memory.capacity_bytes = 1 << 30
    await one.clock.pass_time(2)
    assert store.describe().writable
    await one.restart()
    assert await one.texts() == stored
    assert {text[:4] for _, text in stored} == {b"befo", b"full"}
    assert (await one.append(b"there is space")).first_offset == len(stored)
    await one.store.close()


async def test_a_lost_answer_is_resolved_by_sending_again() -> None:
    """G11: if the disk fails in between, the outcome is unknown, and a retry with an idempotence id stores one."""
    for variant, fate in enumerate(OUTCOMES):
        one = OneStore()
        store = await one.open()
        await store.append(TOPIC, 0, batch(b"first", 2, producer_id=9))
        unknown = batch(b"unknown", 3, producer_id=9, first_sequence=2)
        one.disk.fail_sync(error=errno.EIO)
        assert isinstance(await refusal(store, unknown), Unavailable)
        store = await one.crash(variant, fate)
        assert (await store.append(TOPIC, 0, unknown)).first_offset == 2
        assert await one.texts() == [(0, b"first"), (2, b"unknown")]
        await one.store.close()
