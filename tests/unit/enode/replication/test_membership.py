"""How a folder becomes that of a replica, and how a start without other replicas leaves its data unchanged."""

from dataclasses import replace

import pytest

from ortoo.common.errors import Conflict, DataLoss
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.hard_state_file import read_hard_state
from ortoo.enode.disk.identity import StoreIdentity, claim_folder, read_identity, write_identity
from ortoo.enode.disk.log_summary_file import StoredLogSummary, read_log_summary, write_log_summary
from ortoo.enode.replication.log_opening import open_replicated_log
from ortoo.enode.replication.membership import ReplicaMembership, next_incarnation
from ortoo.enode.replication.protocol.events import DeleteBelow, Reset, Tick, Truncate
from ortoo.enode.replication.protocol.identity import Configuration, ReplicaId
from ortoo.enode.replication.protocol.log_summary import ConfigurationFrame, LogSummary
from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.protocol.step import step
from ortoo.testing.disks.disk_image import KEEP_UNSYNCED
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.workload import FOLDER
from ortoo.verification.time.virtual_clock import VirtualClock
from tests.contract.one_store import SETTINGS, OneStore, batch
from tests.golden.enode.test_store_v1 import GOLDEN, TOPIC

BUSY = replace(SETTINGS, idle_mark_ms=1_000_000)
"""A store that is never idle, so that no durable mark is written."""


def test_a_copied_log_is_not_the_begin_of_a_second_set() -> None:
    """The enode's folder continues as replica 1; the same log as another replica would lead, too, so it is refused."""
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    claim_folder(disk, FOLDER, StoreIdentity("default", "enode-0", "the-store", 1), [])
    with pytest.raises(Conflict, match="start it as replica 1, or empty it") as refused:
        ReplicaMembership(disk, FOLDER, SystemClock(), Randomness(1), number=2)
    assert refused.value.field == "replica"
    kept = ReplicaMembership(disk, FOLDER, SystemClock(), Randomness(1)).stored
    assert (kept.made_from, kept.replica.number) == ("the-store", 1)


def test_two_sets_made_of_copies_of_one_store_have_different_ids() -> None:
    """Each gets its own id, and its identity names the store that it was made of; the log keeps its frames."""
    ids = set()
    for seed in (1, 2):
        disk = MemoryDisk()
        disk.make_folder(FOLDER)
        store = claim_folder(disk, FOLDER, StoreIdentity("default", "enode-0", "the-store", 1), [])
        kept = ReplicaMembership(disk, FOLDER, SystemClock(), Randomness(seed)).stored
        identity = read_identity(disk, FOLDER)
        assert identity is not None
        assert (identity.store_id, identity.made_from) == (kept.set_id, "the-store")
        assert (identity.disk, identity.tag, identity.log_mark) == (kept.replica.disk, store.tag, store.log_mark)
        ids.add(kept.set_id)
    assert len(ids | {"the-store"}) == 3


def test_a_disk_that_is_put_back_from_an_image_never_repeats_a_start() -> None:
    """Its counter repeats, but the number of the start differs; it is above those before the image."""
    disk = MemoryDisk(record=True)
    disk.make_folder(FOLDER)
    ReplicaMembership(disk, FOLDER, SystemClock(), Randomness(1))
    seen = []
    for seed in (2, 3, 4):
        image = MemoryDisk.replayed(disk.operations)
        joining = ReplicaMembership(image, FOLDER, SystemClock(), Randomness(seed))
        before = joining.stored.incarnation
        for _ in range(2):
            joining.store(joining.next_incarnation()[0])
            seen.append(joining.stored.incarnation)
        assert before < seen[-2] < seen[-1]
    assert len(set(seen)) == len(seen)
    assert next_incarnation(7, Randomness(1)) > 7, "an older version counted so"


def test_the_number_of_a_start_is_not_told_before_it_is_stored() -> None:
    """Reports contain the number in `stored`. A number that was reported and lost would be counted again."""
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    joining = ReplicaMembership(disk, FOLDER, SystemClock(), Randomness(1))
    begun, _ = joining.next_incarnation()
    assert begun.incarnation > joining.stored.incarnation
    assert joining.stored == read_hard_state(disk, FOLDER)


def test_a_store_that_becomes_a_set_may_be_interrupted_anywhere() -> None:
    """After a kill at any point the next start makes one set, and refuses nothing."""
    disk = MemoryDisk(record=True)
    disk.make_folder(FOLDER)
    claim_folder(disk, FOLDER, StoreIdentity("default", "enode-0", "the-store", 1), [])
    first = len(disk.operations)
    ReplicaMembership(disk, FOLDER, SystemClock(), Randomness(1))
    for count in range(first, len(disk.operations) + 1):
        left = MemoryDisk.replayed(disk.operations[:count])
        kept = ReplicaMembership(left, FOLDER, SystemClock(), Randomness(2)).stored
        identity, outline = read_identity(left, FOLDER), read_log_summary(left, FOLDER)
        assert identity is not None
        assert outline is not None
        assert (identity.store_id, identity.disk) == (kept.set_id, kept.replica.disk)
        assert outline.summary.configuration.voters == (kept.replica,)
        ReplicaMembership(left, FOLDER, SystemClock(), Randomness(3))


def without_replicas() -> FaultyDisk:
    """The disk of a store of the version before replicas."""
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    for path in GOLDEN.iterdir():
        file = disk.open(FOLDER / path.name, create=True)
        file.write(0, [path.read_bytes()])
        file.sync_data()
        file.close()
    return FaultyDisk(disk)


@pytest.mark.parametrize("trace", ["identity", "outline", "cut-2-640", "serials", "frames", "last frame"])
@pytest.mark.parametrize("opened_as", ["replica 1", "replica 2", "enode without replicas"])
async def test_a_disk_of_a_set_without_its_hard_state_is_refused(trace: str, opened_as: str) -> None:
    """A missing file proves nothing: one trace of the set is enough, and a refused start changes nothing."""
    one = OneStore(disk=without_replicas(), settings=replace(SETTINGS, cluster="golden", enode="enode-a"))
    disk, former = one.disk, read_identity(one.disk, FOLDER)
    assert former is not None
    if trace in ("outline", "cut-2-640"):
        disk.open(FOLDER / trace, create=True).close()
    else:
        await one.open()
        for number in range(20 if trace == "frames" else 1):
            await one.store.append(TOPIC, 0, batch(b"%03d " % number + bytes(1_000)))
        await one.store.close()
        for name in ("reign", "outline", "clean", *(("serials",) if trace != "serials" else ())):
            disk.remove(FOLDER / name)
        if trace != "identity":
            write_identity(disk, FOLDER, former)
    before = contents(disk)
    for _ in range(3):
        with pytest.raises(DataLoss, match=r"its hard state, .*, is missing: restore .*`ortoo enode"):
            if opened_as == "enode without replicas":
                await one.open()
            else:
                ReplicaMembership(disk, FOLDER, SystemClock(), Randomness(1), number=int(opened_as[-1]))
        assert contents(disk) == before


def contents(disk: FaultyDisk) -> dict[str, bytes]:
    """All files of the folder."""
    found = {}
    for name in disk.list(FOLDER):
        file = disk.open(FOLDER / name, writable=False)
        found[name] = file.read(0, file.size_bytes())
        file.close()
    return found


class Hasty(SystemClock):
    """A clock whose sleeps end at once."""

    async def sleep(self, seconds: float) -> None:
        """Return at once."""


async def test_nobody_is_asked_to_be_of_a_set_before_all_say_that_they_would() -> None:
    """A joined replica would be lost to an older set of another one; only the last request is written."""
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    others, is_refused = {str(number): ReplicaId(number, f"disk-{number}") for number in (2, 3)}, True
    asked: list[tuple[str, bool]] = []

    async def ask(address: str, set_id: str, created_at_ms: int, asks_only: bool) -> ReplicaId:
        nonlocal is_refused
        asked.append((address, asks_only))
        if is_refused and address == "3":
            is_refused = False
            raise Conflict("it is of another set")
        return others[address]

    await ReplicaMembership(
        disk, FOLDER, Hasty(), Randomness(1), initial_voters=3, addresses=("1", "2", "3")
    ).join_or_found(ask)
    assert asked == [("2", True), ("3", True), ("2", True), ("3", True), ("2", False), ("3", False)]


async def test_who_is_only_asked_stays_free() -> None:
    """It may join any set afterwards. When it belongs to one, it refuses requests for another."""
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    joining = ReplicaMembership(disk, FOLDER, SystemClock(), Randomness(1), number=2, initial_voters=3)
    assert await joining.join("first", 1, dry_run=True) == joining.stored.replica
    await joining.join("second", 2)
    with pytest.raises(Conflict, match="to set second"):
        await joining.join("first", 1, dry_run=True)


def _segments(disk: FaultyDisk) -> dict[str, bytes]:
    return {name: content for name, content in contents(disk).items() if name.endswith(".seg")}


@pytest.mark.parametrize("others", [0, 2])
async def test_a_killed_log_is_not_cut_by_a_replica_with_nobody_to_ask(others: int) -> None:
    """Without replicas, or with the others down, and started twice: every acknowledged byte stays unchanged."""
    one = OneStore(settings=BUSY)
    await one.open()
    for number in range(40):
        await one.append(b"%03d " % number + bytes(1_000))
    disk = FaultyDisk(one.disk.after_crash(Randomness(1), KEEP_UNSYNCED))
    texts, end = await one.texts(), one.store.engine.appender.durable_position
    await one.store.close()
    before = _segments(disk)
    assert len(before) > 3
    clock, identity = VirtualClock(), read_identity(disk, FOLDER)
    assert identity is not None
    joining = ReplicaMembership(disk, FOLDER, clock, Randomness(1))
    if others:
        voters = (joining.stored.replica, *(ReplicaId(number, f"disk-{number}") for number in range(2, 2 + others)))
        placed = (ConfigurationFrame(0, Configuration(voters)),)
        write_log_summary(disk, FOLDER, StoredLogSummary(LogSummary(configurations=placed)))
    for _ in range(2):
        kept, outline = joining.next_incarnation()
        log = await open_replicated_log(
            FOLDER,
            identity=identity,
            settings=BUSY,
            disk=disk,
            clock=clock,
            stored=outline,
            begin_under_another_id=joining.begin_under_another_id,
        )
        assert log.engine.appender.appended_position == end
        replica = Replica.initial(kept.identity, log.summary, kept.hard_state, now_s=0.0)
        for second in range(60):
            replica, actions = step(replica, Tick(), float(second))
            assert not any(isinstance(action, Truncate | Reset | DeleteBelow) for action in actions)
        await log.close()
    after = _segments(disk)
    assert {name: after.get(name) for name in before} == before
    if not others:  # opened as an enode's folder again, all data is there
        again = OneStore(disk=disk, settings=BUSY)
        await again.open()
        assert await again.texts() == texts
        await again.store.close()
