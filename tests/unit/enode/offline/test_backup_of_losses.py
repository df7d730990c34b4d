"""A backup of a store with lost data does not remove that data from the previous backup."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ortoo.common.errors import DataLoss
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.__main__ import run_tool
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.disk.durable_mark import read_durable_mark
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.frame import FrameHeader, FrameKind
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.scan import walk
from ortoo.enode.log.segment import Segment, segment_bases, segment_name
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.offline import repair
from ortoo.enode.offline.backup import take_backup
from ortoo.enode.offline.restore import make_store
from ortoo.verification.store.single_store import SingleStore, open_single_store
from tests.unit.enode.offline.test_backup import CLOCK, Sender, batches

SETTINGS = StoreSettings(segment_bytes=16 << 10, headroom_bytes=0, retention_age_ms=0, retention_bytes=0)


async def opened(folder: Path) -> SingleStore:
    """Open the store, without retention."""
    return await open_single_store(folder, settings=SETTINGS, disk=RealDisk(), clock=CLOCK, randomness=Randomness(1))


async def fallen_idle(folder: Path, count: int) -> list[tuple[int, bytes]]:
    """A killed store with a number of batches that are durable by the log and by the durable mark."""
    store = await opened(folder)
    await store.put_topics([TopicCopy(1, "orders", 1, 1)])
    await Sender(store).send(count)
    durable = store.engine.appender.durable_position
    while read_durable_mark(RealDisk(), folder) < durable:
        await CLOCK.sleep(0.01)
    found = await batches(store)
    await store.close()
    (folder / "clean").unlink()
    return found


def all_segments(folder: Path) -> None:
    """Remove the whole log."""
    for path in folder.glob("*.seg"):
        path.unlink()


def second_segment(folder: Path) -> None:
    """Remove a segment in the middle of the log."""
    (folder / segment_name(segment_bases(RealDisk().list(folder))[1])).unlink()


def end_of_a_full_segment(folder: Path) -> None:
    """Cut short a file that is not the last."""
    path = folder / segment_name(segment_bases(RealDisk().list(folder))[1])
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def end_of_the_last_segment(folder: Path) -> None:
    """Cut the last file short."""
    path = folder / segment_name(segment_bases(RealDisk().list(folder))[-1])
    with path.open("r+b") as file:
        file.truncate(128)


@pytest.mark.parametrize("lose", [all_segments, second_segment, end_of_a_full_segment, end_of_the_last_segment])
async def test_a_backup_is_not_given_up_for_a_store_that_has_less(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    """G15: only retention deletes a segment. Another missing file is a loss, and its copy stays."""
    disk, folder, backup = RealDisk(), tmp_path / "store", tmp_path / "backup"
    whole = await fallen_idle(folder, 150)
    take_backup(disk, folder, backup, CLOCK)
    assert len(segment_bases(disk.list(backup))) > 3
    lose(folder)
    with pytest.raises(DataLoss, match=r"was not changed|ends at position"):
        take_backup(disk, folder, backup, CLOCK)
    make_store(disk, backup, tmp_path / "restored", CLOCK, Randomness(2))
    store = await opened(tmp_path / "restored")
    assert await batches(store) == whole
    await store.close()


async def killed_later(folder: Path, count: int) -> None:
    """More batches, with the durable position only in the log itself."""
    store = await opened(folder)
    sender = Sender(store)
    sender.acknowledged = store.describe_queues(1)[0].end_offset // 2
    await sender.send(count)
    await store.close()
    for name in ("clean", "durable"):
        (folder / name).unlink(missing_ok=True)


async def test_a_last_file_that_was_cut_short_is_missed_without_the_mark_beside_the_log(tmp_path: Path) -> None:
    """G15: a store that is never idle has no durable mark. Its files have their whole length during writes."""
    disk, folder, backup = RealDisk(), tmp_path / "store", tmp_path / "backup"
    await fallen_idle(folder, 5)
    await killed_later(folder, 5)
    take_backup(disk, folder, backup, CLOCK)
    end_of_the_last_segment(folder)
    with pytest.raises(DataLoss, match="was not changed"):
        take_backup(disk, folder, backup, CLOCK)


async def test_what_was_copied_before_it_was_durable_may_be_lost_again(tmp_path: Path) -> None:
    """A power cut loses unacknowledged data; a segment that then continues differently from its copy is no loss."""
    disk, folder, backup = RealDisk(), tmp_path / "store", tmp_path / "backup"
    await fallen_idle(folder, 5)
    shutil.copytree(folder, tmp_path / "durable")
    await killed_later(folder, 5)
    take_backup(disk, folder, backup, CLOCK)
    shutil.rmtree(folder)
    (tmp_path / "durable").rename(folder)
    store = await opened(folder)
    large = b"x" * (SETTINGS.segment_bytes - 1_000)
    await store.append(1, 0, SealedBatch(large, crc32c(large), 1, len(large)))
    first, second = segment_bases(disk.list(folder))
    while (folder / segment_name(first)).stat().st_size != second - first:  # a full file is truncated to its content
        await CLOCK.sleep(0.01)
    take_backup(disk, folder, backup, CLOCK)
    whole = await batches(store)
    await store.close()
    make_store(disk, backup, tmp_path / "restored", CLOCK, Randomness(2))
    store = await opened(tmp_path / "restored")
    assert await batches(store) == whole
    await store.close()


def damage_the_end(folder: Path) -> int:
    """Damage the last batch and the bytes behind it; its position."""
    with SegmentFiles(RealDisk()) as files:
        segment = Segment(files, folder, 0, 0)
        limit = segment.size_bytes()
        frames = [one for one in walk(segment.read, 0, limit) if isinstance(one, FrameHeader)]
        last = max(one.position for one in frames if one.kind == FrameKind.MESSAGES)
        for one in frames:
            if one.position >= last:
                segment.writer.write(one.position, [b"\xff" * 64])
    return last


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_making_caches_again_forgets_no_damage(tmp_path: Path, is_stopped: bool) -> None:
    """G12: the durable position is not read from the log if its end is damaged."""
    folder = tmp_path / "store"
    await fallen_idle(folder, 3)
    if is_stopped:
        await (await opened(folder)).close()
        (folder / "durable").unlink()
    last = damage_the_end(folder)
    assert repair.main([str(folder), "--caches", "--apply"]) == 0
    store = await opened(folder)
    assert [one.position for one in store.describe().damages] == [last]
    await store.close()


async def test_damage_at_the_end_of_a_log_is_named_in_what_is_made_of_its_backup(tmp_path: Path) -> None:
    """G12: an acknowledged but damaged last frame is not a torn tail, neither in the backup nor in the store."""
    disk, folder = RealDisk(), tmp_path / "store"
    whole = await fallen_idle(folder, 3)
    last = damage_the_end(folder)
    take_backup(disk, folder, tmp_path / "backup", CLOCK)
    for name in ("store", "restored"):
        if name == "restored":
            make_store(disk, tmp_path / "backup", tmp_path / name, CLOCK, Randomness(2))
        store = await opened(tmp_path / name)
        assert [one.position for one in store.describe().damages] == [last]
        [queue] = store.describe_queues(1)
        assert queue.end_offset >= whole[-1][0] + 2
        await store.close()


async def test_what_a_disk_refuses_is_one_line_with_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A target that is no folder, a missing file of the backup: no traceback, and never the exit code 0."""
    folder, backup, target = tmp_path / "store", tmp_path / "backup", tmp_path / "target"
    await fallen_idle(folder, 3)
    target.write_text("")
    assert run_tool("backup", [str(folder), str(target)]) == 253
    assert run_tool("backup", [str(folder), str(backup)]) == 0
    assert run_tool("inspect", [str(backup), "--verify"]) == 0
    (backup / segment_name(0)).unlink()
    assert run_tool("restore", [str(backup), str(tmp_path / "restored")]) == 253
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {target}")
    assert second == f"error: {backup / segment_name(0)}: No such file or directory"
    assert not (tmp_path / "restored" / "identity").exists()


async def test_a_restore_that_did_not_get_through_names_what_is_missing_whoever_starts_on_it(tmp_path: Path) -> None:
    """G12: no enode starts on it. With a manual identity the end of its log is missing, and reported."""
    disk, folder, backup, restored = RealDisk(), tmp_path / "store", tmp_path / "backup", tmp_path / "restored"
    whole = await fallen_idle(folder, 150)
    take_backup(disk, folder, backup, CLOCK)
    (backup / segment_name(segment_bases(disk.list(backup))[-2])).unlink()
    with pytest.raises(FileNotFoundError):
        make_store(disk, backup, restored, CLOCK, Randomness(2))
    with pytest.raises(DataLoss, match="no file identity"):
        await opened(restored)
    assert repair.main([str(restored), "--identity", "default", "enode-0", "--apply"]) == 0
    store = await opened(restored)
    assert store.describe().damages
    [queue] = store.describe_queues(1)
    assert queue.end_offset > whole[-1][0]
    await store.close()
