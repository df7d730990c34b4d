"""How a folder becomes that of a member, and what one that has nobody to ask leaves as it is."""

from dataclasses import replace

import pytest

from ortoo.common.errors import Conflict
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.enode.consensus.joining import Joining
from ortoo.enode.consensus.shared_log import open_shared_log
from ortoo.enode.disk.identity import Identity, claim, read_identity
from ortoo.enode.disk.outline_file import KeptOutline, write_outline
from ortoo.enode.members.driver import Cut, DeleteBelow, Restart, Tick
from ortoo.enode.members.identity import Configuration, MemberId
from ortoo.enode.members.log_outline import LogOutline, MembersFrame
from ortoo.enode.members.member import Member
from ortoo.enode.members.protocol import step
from ortoo.testing.disks.disk_image import KEEP_EVERYTHING
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.testing.store.workload import FOLDER
from ortoo.testing.time.virtual_clock import VirtualClock
from tests.contract.one_store import SETTINGS, OneStore

BUSY = replace(SETTINGS, idle_mark_ms=1_000_000)
"""A store that is never idle, so that no tide mark is written."""


def test_a_copied_log_is_not_the_begin_of_a_second_set() -> None:
    """The enode's own folder goes on as member 1; the same log as another member would lead beside it."""
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    claim(disk, FOLDER, Identity("default", "enode-0", "the-store", 1), [])
    with pytest.raises(Conflict, match="start it as member 1, or empty it") as refused:
        Joining(disk, FOLDER, SystemClock(), Randomness(1), number=2)
    assert refused.value.field == "member"
    kept = Joining(disk, FOLDER, SystemClock(), Randomness(1)).kept
    assert (kept.set_id, kept.member.number) == ("the-store", 1)


class Hasty(SystemClock):
    """A clock by which nobody waits."""

    async def sleep(self, seconds: float) -> None:
        """Go on."""


async def test_nobody_is_asked_to_be_of_a_set_before_all_say_that_they_would() -> None:
    """Who was would be lost to the set that one of the others is of; the last question is the one that is written."""
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    others, is_refused = {str(number): MemberId(number, f"disk-{number}") for number in (2, 3)}, True
    asked: list[tuple[str, bool]] = []

    async def ask(address: str, set_id: str, created_at_ms: int, asks_only: bool) -> MemberId:
        nonlocal is_refused
        asked.append((address, asks_only))
        if is_refused and address == "3":
            is_refused = False
            raise Conflict("it is of another set")
        return others[address]

    await Joining(disk, FOLDER, Hasty(), Randomness(1), members=3, addresses=("1", "2", "3")).begin(ask)
    assert asked == [("2", True), ("3", True), ("2", True), ("3", True), ("2", False), ("3", False)]


async def test_who_is_only_asked_stays_free() -> None:
    """It may be of any set afterwards; of one, it says so to whoever asks for another."""
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    joining = Joining(disk, FOLDER, SystemClock(), Randomness(1), number=2, members=3)
    assert await joining.join("first", 1, asks_only=True) == joining.kept.member
    await joining.join("second", 2)
    with pytest.raises(Conflict, match="of set second"):
        await joining.join("first", 1, asks_only=True)


def _segments(disk: FaultyDisk) -> dict[str, bytes]:
    found = {}
    for name in disk.list(FOLDER):
        if name.endswith(".seg"):
            file = disk.open(FOLDER / name, writable=False)
            found[name] = file.read(0, file.size_bytes())
            file.close()
    return found


@pytest.mark.parametrize("others", [0, 2])
async def test_a_killed_log_is_not_cut_by_a_member_with_nobody_to_ask(others: int) -> None:
    """Alone, or the others of its set away, and started twice: every acknowledged byte stays where it is."""
    one = OneStore(settings=BUSY)
    await one.open()
    for number in range(40):
        await one.append(b"%03d " % number + bytes(1_000))
    disk = FaultyDisk(one.disk.crashed(Randomness(1), KEEP_EVERYTHING))
    texts, end = await one.texts(), one.store.engine.appender.durable_position
    await one.store.close()
    before = _segments(disk)
    assert len(before) > 3
    clock, identity = VirtualClock(), read_identity(disk, FOLDER)
    assert identity is not None
    joining = Joining(disk, FOLDER, clock, Randomness(1))
    if others:
        voters = (joining.kept.member, *(MemberId(number, f"disk-{number}") for number in range(2, 2 + others)))
        placed = (MembersFrame(0, Configuration(voters)),)
        write_outline(disk, FOLDER, KeptOutline(LogOutline(placed=placed)))
    for _ in range(2):
        kept, outline = joining.started()
        log = await open_shared_log(FOLDER, identity=identity, settings=BUSY, disk=disk, clock=clock, kept=outline)
        assert log.engine.appender.appended_position == end
        member = Member.started(kept.process, log.outline, kept.reign, now_s=0.0)
        for second in range(60):
            member, actions = step(member, Tick(), float(second))
            assert not any(isinstance(action, Cut | Restart | DeleteBelow) for action in actions)
        await log.close()
    after = _segments(disk)
    assert {name: after.get(name) for name in before} == before
    if not others:  # as an enode's folder again, everything is there
        again = OneStore(disk=disk, settings=BUSY)
        await again.open()
        assert await again.texts() == texts
        await again.store.close()
