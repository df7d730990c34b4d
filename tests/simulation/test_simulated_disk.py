"""The disk of a simulated machine: its state after a kill and a power cut, its work, and its failures."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ortoo.common.errors import Unavailable
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.testing.disks.disk_image import LOSE_UNSYNCED
from ortoo.testing.simulation.disk.platter import PowerFailure
from ortoo.testing.simulation.disk.simulated_disk import MachineDisk
from ortoo.testing.simulation.kernel.event_loop import VirtualLoop
from ortoo.testing.simulation.kernel.random_streams import RandomStreams
from ortoo.verification.simulation.run import simulation
from ortoo.verification.simulation.run.outcome import RunOptions
from tests.simulation.on_loop import run

FOLDER = Path("/store")
FILE = FOLDER / "a.seg"


def machine_disk(seed: int = 1) -> MachineDisk:
    disk = MachineDisk(RandomStreams(seed).stream("disk"))
    disk.current.make_folder(FOLDER)
    return disk


def test_a_kill_leaves_what_was_written_and_a_power_cut_what_was_synced() -> None:
    """The system still writes the data of a killed process; without power it does not."""
    disk = machine_disk()
    file = disk.current.open(FILE, create=True)
    file.write(0, [b"synced"])
    file.sync_data()
    disk.current.sync_directory(FOLDER)
    file.write(6, [b" and not"])
    disk.on_process_killed()
    after_kill = disk.open()
    assert after_kill.open(FILE).read(0, 100) == b"synced and not"
    disk.cut_power(LOSE_UNSYNCED)
    assert disk.open().open(FILE).read(0, 100) == b"synced"


def test_failing_reads_fail_no_zeros_ahead() -> None:
    """A disk writes them without a read. Otherwise the store would refuse writes although only reads fail."""
    disk = machine_disk().current
    file = disk.open(FILE, create=True)
    file.write(0, [b"abc"])
    disk.platter.failing_reads = 1
    file.zero_ahead(1)
    with pytest.raises(OSError, match="Input/output error"):
        file.read(0, 3)
    assert file.read(0, 3) == b"a\0\0"


def test_the_dead_write_nothing() -> None:
    """A killed process cannot change its disk."""
    disk = machine_disk()
    file = disk.current.open(FILE, create=True)
    disk.on_process_killed()
    with pytest.raises(PowerFailure):
        file.write(0, [b"from the grave"])
    assert disk.open().open(FILE).read(0, 100) == b""


def test_work_takes_time_keeps_its_order_and_is_finished_by_close() -> None:
    """A cancelled caller waits for its work; after close no work is accepted."""
    loop = VirtualLoop(RandomStreams(3))
    disk = machine_disk(3)
    done: list[int] = []

    async def scenario() -> None:
        work = disk.current.work(loop)
        task = loop.create_task(work.run(done.append, 1))
        await asyncio.wait([task], timeout=0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == [1]
        assert loop.time() > 0
        waiting = loop.create_task(work.run(done.append, 2))
        await asyncio.wait([waiting], timeout=0)
        work.close()
        await waiting
        with pytest.raises(Unavailable):
            await work.run(done.append, 3)

    run(loop, scenario())
    assert done == [1, 2]


def test_scans_come_in_order_while_reads_overtake_one_another() -> None:
    """They have one lane, as in a real enode one thread; over a few seeds some read overtakes an earlier one."""
    overtook = 0
    for seed in range(10):
        loop = VirtualLoop(RandomStreams(seed))
        work = machine_disk(seed).current.work(loop)
        scans, reads = list[int](), list[int]()

        async def scenario(work: DiskWork = work, scans: list[int] = scans, reads: list[int] = reads) -> None:
            await asyncio.gather(
                *(work.scan(scans.append, number) for number in range(5)),
                *(work.run(reads.append, number) for number in range(5)),
            )

        run(loop, scenario())
        assert scans == [0, 1, 2, 3, 4]
        overtook += reads != scans
    assert overtook


def test_a_stop_meets_work_in_the_middle() -> None:
    """Over many seeds an interrupted write arrives wholly, in part, and not at all."""
    lengths: set[int] = set()
    for seed in range(60):
        loop = VirtualLoop(RandomStreams(seed))
        disk = machine_disk(seed)
        file = disk.current.open(FILE, create=True)

        async def scenario(loop: VirtualLoop = loop, disk: MachineDisk = disk, file: Any = file) -> None:
            work = disk.current.work(loop)
            loop.create_task(work.run(file.write, 0, [bytes(1000)]))
            await asyncio.wait([loop.create_task(asyncio.Event().wait())], timeout=0)
            disk.on_process_killed()

        run(loop, scenario())
        lengths.add(disk.open().open(FILE).size_bytes())
    assert {0, 1000} <= lengths
    assert any(0 < length < 1000 for length in lengths)


def test_single_calls_fail_and_a_write_goes_astray() -> None:
    """EIO comes as often as it was injected; a misdirected write reports success."""
    disk = machine_disk()
    file = disk.current.open(FILE, create=True)
    file.allocate(4096)
    platter = disk.current.platter
    platter.failing_writes = platter.failing_reads = platter.failing_names = 1
    for call in (
        lambda: file.write(0, [b"x"]),
        lambda: file.read(0, 1),
        lambda: disk.current.rename(FILE, FOLDER / "b.seg"),
    ):
        with pytest.raises(OSError, match="Input/output"):
            call()
        call()
    again = disk.current.open(FOLDER / "b.seg")
    platter.misdirect_bytes = 512
    assert again.write(0, [b"astray"]) == 6
    assert again.read(0, 6) != b"astray"
    assert again.read(512, 6) == b"astray"


def test_a_flipped_bit_is_durable() -> None:
    """It is read flipped, now and after a power cut."""
    disk = machine_disk()
    file = disk.current.open(FILE, create=True)
    file.write(0, [b"abcdefgh" * 100])
    file.sync_data()
    disk.current.sync_directory(FOLDER)
    assert disk.flip_bit(".seg")
    assert file.read(0, 800) != b"abcdefgh" * 100
    disk.cut_power(LOSE_UNSYNCED)
    assert disk.open().open(FILE).read(0, 800) != b"abcdefgh" * 100
    assert disk.flip_bit(".idx") == ""


@pytest.mark.parametrize(
    ("seed", "members"), [(1, 1), (2, 3), *(pytest.param(seed, 1, marks=pytest.mark.deep) for seed in (2, 4, 7))]
)
def test_segments_are_closed_for_others_in_every_run(seed: int, members: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated store keeps one segment open for reading, so that runs close and open files all the time."""
    evicted: list[bool] = []
    evict = SegmentFiles._evict

    def counted(files: SegmentFiles) -> bool:
        assert files.most == 1
        evicted.append(evict(files))
        return evicted[-1]

    monkeypatch.setattr(SegmentFiles, "_evict", counted)
    assert simulation.run(RunOptions(seed, replicas=members)).violations == ()
    assert sum(evicted) >= 10
