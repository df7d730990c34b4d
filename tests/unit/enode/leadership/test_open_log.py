"""The hard state of a replica without others: it is read from the log, and made durable before there is another one."""

import contextlib
import errno

import pytest

from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.hard_state_file import FILE_NAME as HARD_STATE_NAME
from ortoo.enode.disk.hard_state_file import read_hard_state
from ortoo.enode.disk.log_summary_file import FILE_NAME as SUMMARY_NAME
from ortoo.enode.disk.log_summary_file import read_log_summary
from ortoo.enode.leadership.open_log import make_driver, open_log
from ortoo.enode.replication.membership import RANDOM_PARTS, ReplicaMembership
from ortoo.enode.replication.protocol.events import AddLearner
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.replication.state_comparison import StateComparison
from ortoo.testing.disks.disk_image import KEEP_UNSYNCED, SyncData, SyncFolder
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.workload import FOLDER
from tests.contract.one_store import SETTINGS, OneStore

OTHER = ReplicaId(2, "other-disk")


def written(disk: Disk, name: str) -> bytes:
    """The bytes of a file."""
    file = disk.open(FOLDER / name, writable=False)
    return file.read(0, file.size_bytes())


async def test_each_start_has_a_greater_epoch_and_writes_no_vote() -> None:
    """The epoch is read from the log after a clean stop, after a kill, and after the loss of all unsynced bytes."""
    one = OneStore()
    await one.open()
    seen = [one.store.engine.appender.epoch]
    files = [written(one.disk, name) for name in (HARD_STATE_NAME, SUMMARY_NAME)]
    for number in range(6):
        await one.append(b"%d" % number)
        if number % 3 == 0:
            await one.restart()
        else:
            await one.crash(number, *([KEEP_UNSYNCED] if number % 3 == 1 else []))
        seen.append(one.store.engine.appender.epoch)
        assert [written(one.disk, name) for name in (HARD_STATE_NAME, SUMMARY_NAME)] == files
    assert seen == [1, 2, 3, 4, 5, 6, 7]
    await one.store.close()


@pytest.mark.parametrize("is_reported", [False, True])
async def test_a_start_that_is_reported_is_durable(*, is_reported: bool) -> None:
    """Also without other replicas: a set of one whose process can be reached by others reports to name servers."""
    one = OneStore()
    await one.open()
    await one.store.close()
    seen = []
    for seed in (1, 2):
        membership = ReplicaMembership(one.disk, FOLDER, one.clock, Randomness(seed))
        async with open_log(membership, SETTINGS, StateComparison(), is_reported=is_reported):
            seen.append(membership.stored.incarnation)
            stored = read_hard_state(one.disk, FOLDER)
            assert stored is not None
            assert (stored.incarnation == seen[-1]) == is_reported
    assert len({number // RANDOM_PARTS for number in seen}) == 1 + is_reported


@pytest.mark.parametrize("is_reported", [False, True])
async def test_a_log_without_other_replicas_opens_on_a_full_disk(*, is_reported: bool) -> None:
    """Only an open log deletes old messages, so a start that waited for space would wait for an operator."""
    memory = MemoryDisk()
    one = OneStore(disk=FaultyDisk(memory))
    await one.open()
    await one.store.close()
    for _ in range(3):
        membership = ReplicaMembership(memory, FOLDER, one.clock, Randomness(2))
        async with open_log(membership, SETTINGS, StateComparison(), is_reported=is_reported):
            stored = read_hard_state(memory, FOLDER)
            assert not is_reported or stored == membership.stored
        memory.capacity_bytes = memory.image.used_bytes()


@pytest.mark.parametrize("seed", range(4))
async def test_a_start_whose_number_was_written_in_part_has_another_number(seed: int) -> None:
    """A serial may be on the disk although its write failed. It makes the hard state of the retry no older copy."""
    memory = MemoryDisk()
    one, random = OneStore(disk=FaultyDisk(memory)), Randomness(seed)
    await one.open()
    await one.store.close()
    for synced in range(8):
        membership = ReplicaMembership(one.disk, FOLDER, one.clock, random)
        one.disk.fail_sync(after=synced, error=errno.ENOSPC)
        with contextlib.suppress(OSError):
            async with open_log(membership, SETTINGS, StateComparison(), is_reported=True):
                pass
        one.disk.heal()
        async with open_log(membership, SETTINGS, StateComparison(), is_reported=True):
            assert read_hard_state(memory, FOLDER) == membership.stored


async def test_a_restart_costs_two_syncs() -> None:
    """One is of the removal of the marker of the clean stop, the other of the log."""
    memory = MemoryDisk(record=True)
    one = OneStore(disk=FaultyDisk(memory))
    await one.open()
    await one.store.close()
    before = len(memory.operations)
    await one.open()
    assert sum(isinstance(made, SyncData | SyncFolder) for made in memory.operations[before:]) == 2
    await one.store.close()


async def test_a_log_that_lost_its_end_has_an_epoch_above_the_lost_ones() -> None:
    """Its frames cannot tell how many starts the lost part had, so the epoch is raised by more than that."""
    one = OneStore()
    await one.open()
    await one.append(b"kept")
    end = one.store.engine.appender.durable_position
    for _ in range(5):
        await one.append(b"lost" * 100)
        await one.restart()
    lost = one.store.engine.appender.epoch
    await one.store.close()
    file = one.disk.open(FOLDER / ("0" * 20 + ".seg"))
    file.truncate(end)
    file.sync_data()
    store = await one.open()
    assert store.engine.appender.epoch > lost
    await store.close()


@pytest.mark.parametrize("starts", [1, 3])
async def test_the_vote_is_durable_before_the_log_lists_another_replica(starts: int) -> None:
    """After a kill at any later point no start forgets the epoch, and each one has another incarnation."""
    one = OneStore()
    for _ in range(starts):
        await one.open()
        await one.store.close()
    memory = MemoryDisk(record=True)
    memory.make_folder(FOLDER)
    for name in one.disk.list(FOLDER):
        file = memory.open(FOLDER / name, create=True)
        file.write(0, [written(one.disk, name)])
        file.sync_data()
    memory.sync_directory(FOLDER)
    first, clock = len(memory.operations), SystemClock()
    membership = ReplicaMembership(memory, FOLDER, clock, Randomness(1))
    async with open_log(membership, SETTINGS, StateComparison()) as log, Background("test") as background:
        driver = make_driver(log, membership, lambda to, message: None, background, StateComparison())
        driver.start()
        while driver.leading_epoch is None:
            driver.changed.clear()
            await driver.changed.wait()
        incarnation = membership.stored.incarnation
        driver.request(AddLearner(OTHER))
        while OTHER not in driver.replica.log.configuration.replicas:
            await driver.wait_for_step()
        await log.engine.appender.flush()
    listed = 0
    for count in range(first, len(memory.operations) + 1):
        left = MemoryDisk.replayed(memory.operations[:count])
        summary, kept = read_log_summary(left, FOLDER), read_hard_state(left, FOLDER)
        assert summary is not None
        assert kept is not None
        again = ReplicaMembership(left, FOLDER, clock, Randomness(2))
        async with open_log(again, SETTINGS, StateComparison()) as log:
            if OTHER in log.summary.configuration.replicas:
                listed += 1
                assert (kept.hard_state.epoch, kept.incarnation) == (starts + 1, incarnation)
                assert again.stored.incarnation != incarnation
                assert read_hard_state(left, FOLDER) == again.stored
    assert listed
