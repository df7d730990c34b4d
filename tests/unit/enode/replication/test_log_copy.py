"""A replica's copy of a log: what it offers, and that it cuts nothing before the enode it follows has agreed."""

from dataclasses import replace

import pytest

from ortoo.common.errors import Conflict
from ortoo.common.process.randomness import Randomness
from ortoo.enode.log.segment import bases
from ortoo.enode.replication.log_bytes import LogSource
from ortoo.enode.replication.log_copy import LogCopy
from ortoo.testing.disks.disk_image import KEEP_EVERYTHING
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.store.workload import FOLDER
from tests.contract.one_store import SETTINGS, OneStore

BUSY = replace(SETTINGS, idle_mark_ms=1_000_000)
"""A store that is never idle, so that no tide mark is written."""


def _bytes(disk: FaultyDisk) -> dict[str, bytes]:
    found = {}
    for name in disk.list(FOLDER):
        if name.endswith(".seg"):
            file = disk.open(FOLDER / name, writable=False)
            found[name] = file.read(0, file.size_bytes())
            file.close()
    return found


async def _killed(one: OneStore, batches: int = 40) -> FaultyDisk:
    """The disk of an enode that acknowledged messages and was killed."""
    await one.open()
    for number in range(batches):
        await one.append(b"%03d " % number + bytes(1_000))
    return FaultyDisk(one.disk.crashed(one_choice(), KEEP_EVERYTHING))


def one_choice() -> Randomness:
    """Any; nothing is left to chance."""
    return Randomness(1)


async def test_the_folder_of_a_killed_enode_is_not_cut_by_a_replica_with_nobody_to_follow() -> None:
    """B-023: with nobody to ask, every acknowledged message is there when the folder becomes an enode's again."""
    one = OneStore(settings=BUSY)
    disk = await _killed(one)
    before, texts, end = _bytes(disk), await one.texts(), one.store.engine.appender.durable_position
    await one.store.close()
    assert len(before) > 3
    for _ in range(2):
        copy = LogCopy(disk, FOLDER, "default", "enode-0")
        assert copy.position == end
        copy.close()
    assert _bytes(disk) == before
    again = OneStore(disk=disk, settings=BUSY)
    await again.open()
    assert await again.texts() == texts
    await again.store.close()


async def test_an_enode_that_lacks_what_the_copy_holds_does_not_make_it_cut() -> None:
    """B-023: a copy that is ahead, or of another history, is refused by the enode, and keeps every byte."""
    one = OneStore(settings=BUSY)
    await one.open()
    short = FaultyDisk(one.disk.crashed(one_choice(), KEEP_EVERYTHING))
    disk = await _killed_again(one)
    leader = OneStore(disk=short, settings=BUSY)
    await leader.open()
    before = _bytes(disk)
    copy = LogCopy(disk, FOLDER, "default", "enode-0")
    crc, length = copy.tail_crc32c()
    with pytest.raises(Conflict, match="it is ahead"):
        await LogSource(leader.store.engine).check_tail(copy.position, length, crc)
    copy.close()
    assert _bytes(disk) == before
    await leader.store.close()
    await one.store.close()


async def _killed_again(one: OneStore) -> FaultyDisk:
    for number in range(20):
        await one.append(b"%03d " % number + bytes(1_000))
    return FaultyDisk(one.disk.crashed(one_choice(), KEEP_EVERYTHING))


async def test_a_torn_tail_is_cut_when_the_enode_goes_on_right_behind_the_last_frame() -> None:
    """B-023: what no whole frame covers goes with the first bytes that the enode sends; then the logs are equal."""
    one = OneStore(settings=BUSY)
    disk = await _killed(one)
    source = LogSource(one.store.engine)
    last = bases(disk.list(FOLDER))[-1]
    end = one.store.engine.appender.durable_position
    file = disk.open(FOLDER / f"{last:020d}.seg")
    file.write(end - last, [b"torn" * 50])
    file.sync_data()
    file.close()
    await one.append(b"more")
    copy = LogCopy(disk, FOLDER, "default", "enode-0")
    crc, length = copy.tail_crc32c()
    await source.check_tail(copy.position, length, crc)
    assert copy.position == end
    part = await source.read(copy.position)
    copy.write(part)
    copy.close()
    texts = await one.texts()
    await one.store.close()
    again = OneStore(disk=disk, settings=BUSY)
    await again.open()
    assert await again.texts() == texts
    assert not again.store.describe().damages
    await again.store.close()


async def test_deletions_are_recorded_in_the_copy_before_files_go() -> None:
    """B-024: a removal that fails in a replica leaves no hole when the copy becomes an enode's."""
    one = OneStore(settings=BUSY)
    disk = await _killed(one)
    await one.store.engine.housekeeping.checkpoint()
    await one.store.engine.housekeeping.checkpoint()
    disk = FaultyDisk(one.disk.crashed(one_choice(), KEEP_EVERYTHING))
    await one.store.close()
    copy = LogCopy(disk, FOLDER, "default", "enode-0")
    third = bases(disk.list(FOLDER))[3]
    disk.fail_remove(after=1)
    with pytest.raises(OSError, match="Input/output"):
        copy.forget_below(third)
    copy.close()
    again = OneStore(disk=disk, settings=BUSY)
    store = await again.open()
    assert not store.describe().damages
    assert store.engine.catalog.begin_position == third
    assert bases(disk.list(FOLDER))[0] == third
    await store.close()
