"""`ortoo-enode elect DIR --lose`: shows the losses, changes nothing without --apply, may be interrupted anywhere."""

from dataclasses import replace
from pathlib import Path

import pytest

from ortoo.common.errors import Conflict, DataLoss, Invalid
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.clean_stop import FILE_NAME as CLEAN_NAME
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.disk.durable_mark import DurableMark
from ortoo.enode.disk.hard_state_file import read_hard_state, write_hard_state
from ortoo.enode.disk.identity import read_identity
from ortoo.enode.disk.log_summary_file import StoredLogSummary, read_log_summary, write_log_summary
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.offline import elect, repair
from ortoo.enode.recovery.opening import durable_end
from ortoo.enode.recovery.restored import read_openings_gap
from ortoo.enode.replication.membership import ReplicaMembership
from ortoo.enode.replication.protocol.identity import Configuration, ReplicaId
from ortoo.enode.replication.protocol.log_summary import LogSummary
from ortoo.namesrv.decisions.known_stores import KnownStore, may_come
from ortoo.testing.disks.disk_image import KEEP_UNSYNCED
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.single_store import open_single_store
from ortoo.verification.store.workload import FOLDER
from tests.contract.one_store import OneStore

OTHERS = tuple(ReplicaId(number, f"disk-{number}") for number in (2, 3))


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A closed store of replica 1, whose two others are lost."""
    disk, clock, randomness = RealDisk(), SystemClock(), Randomness(1)
    settings = StoreSettings(segment_bytes=16 << 10, headroom_bytes=0)
    store = await open_single_store(tmp_path, settings=settings, disk=disk, clock=clock, randomness=randomness)
    await store.close()
    ReplicaMembership(disk, tmp_path, clock, randomness)
    kept = read_log_summary(disk, tmp_path)
    assert kept is not None
    voters = (*kept.summary.configuration.voters, *OTHERS)
    [placed] = kept.summary.configurations
    configuration = Configuration(voters)
    outline = LogSummary(configurations=(placed._replace(configuration=configuration),))
    write_log_summary(disk, tmp_path, StoredLogSummary(outline))
    return tmp_path


def test_it_says_what_is_left_and_changes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --apply the exit code is 3, and every file is unchanged."""
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert elect.main([str(folder), "--lose"]) == 3
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    said = capsys.readouterr().out
    assert "voters at its last start: 1, 2, 3" in said
    assert f"ends at position {durable_end(RealDisk(), folder)}" in said


def test_it_makes_a_set_of_one_and_may_be_done_twice(folder: Path) -> None:
    """Another set id in the replica's and the store's files, one voter, the whole log."""
    disk = RealDisk()
    end = durable_end(disk, folder)
    ids = {elect.read_survivor(disk, folder).stored.set_id}
    for _ in range(2):
        assert elect.main([str(folder), "--lose", "--apply", "--others-are-gone"]) == 0
        kept, outline, identity = (
            read_hard_state(disk, folder),
            read_log_summary(disk, folder),
            read_identity(disk, folder),
        )
        assert kept is not None
        assert outline is not None
        assert identity is not None
        assert kept.set_id == identity.store_id
        assert kept.set_id not in ids
        ids.add(kept.set_id)
        assert outline.summary.configuration.voters == (kept.replica,)
        assert outline.summary.appended == end


async def test_the_set_is_accepted_after_an_interruption_between_any_two_writes() -> None:
    """The repeated command makes a new set that a name server accepts, because it knows the set it was made of."""
    one = OneStore()
    await one.open()
    await one.append(b"a message")
    await one.store.close()
    ReplicaMembership(one.disk, FOLDER, one.clock, Randomness(5))
    former = elect.read_survivor(one.disk, FOLDER).stored.set_id
    assert former
    assert isinstance(one.disk.inner, MemoryDisk)
    disk = one.disk.inner.after_crash(Randomness(1), KEEP_UNSYNCED, record=True)
    elect.become_single_replica(disk, FOLDER, one.clock, Randomness(2))
    assert len(disk.operations) > 20
    for done in range(len(disk.operations) + 1):
        left = one.disk.after_crash(Randomness(1), KEEP_UNSYNCED)
        for operation in disk.operations[:done]:
            left.apply(operation)
        elect.become_single_replica(left, FOLDER, one.clock, Randomness(3))
        kept, identity = elect.read_survivor(left, FOLDER).stored, read_identity(left, FOLDER)
        assert identity is not None
        assert kept.set_id == identity.store_id != former
        assert (kept.made_from, identity.made_from) == (former, former)
        assert may_come(KnownStore("enode-0", former), kept.set_id, kept.made_from)
        assert ReplicaMembership(left, FOLDER, one.clock, Randomness(4)).stored == kept
        assert read_openings_gap(left, FOLDER)


@pytest.mark.parametrize("lost", ["missing", "damaged", "an older copy", "with the outline"])
def test_a_disk_without_its_hard_state_goes_on_by_an_operators_word(
    folder: Path, lost: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its new set does not need its votes. It reports the unknown data, and keeps number, disk and log."""
    disk = RealDisk()
    before, end = elect.read_survivor(disk, folder), durable_end(disk, folder)
    reign = folder / "reign"
    if lost == "damaged":
        reign.write_bytes(b"")
    elif lost == "an older copy":
        older = reign.read_bytes()
        write_hard_state(disk, folder, before.stored)
        reign.write_bytes(older)
    else:
        reign.unlink()
    if lost == "with the outline":
        (folder / "outline").unlink()
    with pytest.raises(DataLoss, match=r"copy|damaged|missing"):
        ReplicaMembership(disk, folder, SystemClock(), Randomness(3))
    for _ in range(2):
        assert elect.main([str(folder), "--lose", "--apply", "--others-are-gone"]) == 0
        after = elect.read_survivor(disk, folder)
        assert after.stored.replica == before.stored.replica
        assert after.stored.set_id != before.stored.set_id
        assert after.summary.summary.configuration.voters == (before.stored.replica,)
        assert after.summary.summary.appended == end
        assert ReplicaMembership(disk, folder, SystemClock(), Randomness(4)).stored == after.stored
    identity = read_identity(disk, folder)
    assert identity is not None
    assert identity.made_from == before.stored.set_id
    assert "the vote of the disk is unknown" in capsys.readouterr().out


def test_a_folder_that_is_no_member_is_refused(tmp_path: Path) -> None:
    """Also one whose set is not initialized, because it has no data to lose."""
    with pytest.raises(Invalid, match="not the folder of a replica"):
        elect.main([str(tmp_path), "--lose"])
    ReplicaMembership(RealDisk(), tmp_path, SystemClock(), Randomness(1), initial_voters=3)
    with pytest.raises(Invalid, match="not the folder of a replica"):
        elect.main([str(tmp_path), "--lose", "--apply"])


def test_nothing_behind_damage_is_removed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log continues behind a damaged frame, as in an enode that never had other replicas."""
    disk = RealDisk()
    once = durable_end(disk, folder)
    (folder / CLEAN_NAME).unlink()
    mark = DurableMark(disk, folder)
    mark.write(once)
    mark.close()
    (segment,) = folder.glob("*.seg")
    with segment.open("r+b") as file:
        file.write(b"\xff")
    before = segment.read_bytes()
    assert elect.main([str(folder), "--lose"]) == 3
    assert f"ends at position {once}." in capsys.readouterr().out
    assert elect.main([str(folder), "--lose", "--apply", "--others-are-gone"]) == 0
    assert f"with the log up to {once}" in capsys.readouterr().out
    assert segment.read_bytes() == before


def test_a_disk_that_was_being_copied_is_refused(folder: Path) -> None:
    """It has the begin of another's log, but no state, so it would lead without topics, offsets and groups."""
    disk = RealDisk()
    found = elect.read_survivor(disk, folder)
    end = durable_end(disk, folder)
    (folder / CLEAN_NAME).unlink()
    begun = replace(found.summary.summary, begin=end, appended=end, flushed=end, committed=end)
    write_log_summary(disk, folder, StoredLogSummary(begun))
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    for words in (["--lose"], ["--lose", "--apply"]):
        with pytest.raises(DataLoss, match="and no state"):
            elect.main([str(folder), *words])
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.parametrize(
    "way", [("--caches",), ("--identity", "c", "e"), ("--without-checkpoint",), ("--cut", "0"), ("as an enode of one",)]
)
async def test_what_is_for_an_enode_of_one_leaves_a_members_disk_alone(folder: Path, way: tuple[str, ...]) -> None:
    """G1: other replicas rely on this disk's acknowledgements and its log, so a start without replicas is refused.

    Started by settings without `replica_listen_address` it would write different data at their positions.
    """
    kept = read_hard_state(RealDisk(), folder)
    assert kept is not None
    write_hard_state(RealDisk(), folder, replace(kept, hard_state=replace(kept.hard_state, epoch=3)))
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(Conflict, match="is the disk of replica 1"):
        if way[0].startswith("--"):
            repair.main([str(folder), *way, "--apply"])
        else:
            store = await open_single_store(
                folder,
                settings=StoreSettings(segment_bytes=16 << 10, headroom_bytes=0),
                disk=RealDisk(),
                clock=SystemClock(),
                randomness=Randomness(1),
            )
            await store.close()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert repair.main([str(folder)]) == 0
