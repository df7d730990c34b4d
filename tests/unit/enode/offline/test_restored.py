"""A store that ends before its clients' latest knowledge: made of a backup, or with a last file that was cut short."""

from pathlib import Path

import pytest

from ortoo.common.errors import NotFound
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import Message, encode
from ortoo.enode.changes.halves import HalfVerdict, VerdictOrigin
from ortoo.enode.disk.durable_mark import read_durable_mark
from ortoo.enode.log.segment import segment_bases, segment_name
from ortoo.enode.offline.backup import take_backup
from ortoo.enode.offline.restore import make_store
from ortoo.verification.store.workload import FOLDER
from tests.contract.deferred_store import DeferredStore
from tests.contract.one_store import TOPIC

BACKUP = Path("/backup")
DUE_MS = 86_400_000


async def restored(one: DeferredStore) -> None:
    """Lose the disk of the store, and start a restored backup in its place."""
    await one.halt()
    await one.store.close()
    for name in one.disk.list(FOLDER):
        one.disk.remove(FOLDER / name)
    make_store(one.disk, BACKUP, FOLDER, one.clock, Randomness(2))
    await one.open()


async def cut_short(one: DeferredStore, position: int) -> None:
    """Lose the log behind a position, although it was durable, and start again."""
    await one.halt()
    await one.store.close()
    one.disk.remove(FOLDER / "clean")
    *_, last = starts = segment_bases(one.disk.list(FOLDER))
    assert starts == [last]
    assert last < position
    file = one.disk.open(FOLDER / segment_name(last))
    file.truncate(position - last)
    file.close()
    await one.open()


async def begun(one: DeferredStore, body: bytes) -> int:
    """The number of a new transaction."""
    batch = encode([Message(body)], now_ms=1)
    return (await one.transactions.begin(TOPIC, 0, batch, producer_group="p")).number


async def delayed(one: DeferredStore, body: bytes) -> int:
    """The number of a delayed message; all are due at the same time."""
    batch = encode([Message(body, deliver_at_ms=one.clock.now_ms() // DUE_MS * DUE_MS + DUE_MS)], now_ms=1)
    return (await one.delays.append(TOPIC, 0, batch)).first_offset


@pytest.mark.parametrize("starts", [1, 3])
async def test_a_handle_of_what_was_lost_ends_and_recalls_nothing_else(starts: int) -> None:
    """G6, G7: transactions and delayed messages from after a backup are lost, and their numbers are not used again.

    Those in the backup continue under their numbers, also when the first start ends by a power cut.
    """
    one = DeferredStore()
    await one.open()
    half, timer = await begun(one, b"half before"), await delayed(one, b"before")
    take_backup(one.disk, FOLDER, BACKUP, one.clock)
    lost_halves = [await begun(one, b"lost") for _ in range(3)]
    lost_timers = [await delayed(one, b"lost") for _ in range(3)]
    await restored(one)
    for seed in range(starts):
        if seed:
            await one.crash(seed)
        await begun(one, b"open")
        await delayed(one, b"waits")
    due_ms = one.clock.now_ms() // DUE_MS * DUE_MS + DUE_MS
    for number in lost_halves:
        with pytest.raises(NotFound, match="no such transaction"):
            await one.transactions.end(TOPIC, number, HalfVerdict.COMMITTED, VerdictOrigin.PRODUCER)
    for number in lost_timers:
        with pytest.raises(NotFound, match="no such delayed message"):
            await one.delays.recall(TOPIC, number, due_ms)
    await one.transactions.end(TOPIC, half, HalfVerdict.COMMITTED, VerdictOrigin.PRODUCER)
    await one.delays.recall(TOPIC, timer, due_ms)
    one.clock.advance(DUE_MS / 1000)
    await one.clock.pass_time(2)
    assert sorted(body for body, _ in await one.visible()) == [b"half before", *[b"waits"] * starts]
    assert len(one.store.halves.select()) == starts
    assert not one.store.describe().damages
    await one.halt()
    await one.store.close()


async def test_a_handle_from_behind_a_missing_end_ends_and_recalls_nothing_else() -> None:
    """The same after an incomplete copy of the files, although the start after it ends by a power cut."""
    one = DeferredStore()
    await one.open()
    half = await begun(one, b"half before")
    position = one.store.engine.appender.appended_position
    lost_half, lost_timer = await begun(one, b"lost"), await delayed(one, b"lost")
    await one.clock.pass_time(60)
    assert read_durable_mark(one.disk, FOLDER) > position
    opening = one.store.describe().store_open_number
    await cut_short(one, position)
    for seed in range(2):
        if seed:
            await one.crash(seed)
        await begun(one, b"open")
        await delayed(one, b"waits")
    with pytest.raises(NotFound, match="no such transaction"):
        await one.transactions.end(TOPIC, lost_half, HalfVerdict.COMMITTED, VerdictOrigin.PRODUCER)
    with pytest.raises(NotFound, match="no such delayed message"):
        await one.delays.recall(TOPIC, lost_timer, one.clock.now_ms() // DUE_MS * DUE_MS + DUE_MS)
    assert one.store.describe().store_open_number > opening + 1_000
    await one.transactions.end(TOPIC, half, HalfVerdict.COMMITTED, VerdictOrigin.PRODUCER)
    await one.halt()
    await one.store.close()
