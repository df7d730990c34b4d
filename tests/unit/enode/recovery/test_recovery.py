"""Restarts: after a crash, with missing, damaged or stale bytes."""

import asyncio
import dataclasses
import shutil
from pathlib import Path

import pytest

from ortoo.common.errors import DataLoss, NotFound, OutOfRange, Unsupported
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.disk.durable_mark import decode_slots
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.frame import HEADER_BYTES, FrameKind, decode_header
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.recovery.only_copy import recover
from ortoo.verification.store.crashed_copy import crashed_copy
from ortoo.verification.store.single_store import SingleStore, open_single_store

SETTINGS = StoreSettings(segment_bytes=32 << 10, headroom_bytes=0, recent_bytes=0, retention_age_ms=0)


async def reopened(folder: Path, settings: StoreSettings = SETTINGS) -> SingleStore:
    """Open the store."""
    return await open_single_store(
        folder, settings=settings, disk=RealDisk(), clock=SystemClock(), randomness=Randomness(1)
    )


async def filled(folder: Path, batches: int = 120) -> SingleStore:
    """A store with two topics, offsets and batches over several segments; batch n of topic 1 queue 0 has the text n."""
    store = await reopened(folder)
    await store.put_topics([TopicCopy(1, "a", 2, 1), TopicCopy(2, "b", 1, 1)])
    for number in range(batches):
        data = b"%08d" % number * 100
        await store.append(1, 0, SealedBatch(data, crc32c(data), 1, 800, 5, number))
        if number % 10 == 0:
            await store.append(2, 0, SealedBatch(data, crc32c(data), 3, 800))
            await store.offsets.commit(1, "g", {0: number})
    return store


async def numbers(store: SingleStore) -> list[int]:
    """The texts of topic 1 queue 0."""
    found: list[int] = []
    offset = store.describe_queues(1)[0].begin_offset
    while (fetched := await store.fetch(1, 0, offset)).batches:
        found += [int(one.batch.records[:8]) for one in fetched.batches]
        offset = fetched.next_offset
    return found


def segments(folder: Path) -> list[Path]:
    """The segment files, oldest first."""
    return sorted(folder.glob("*.seg"))


def damage(file: Path, position: int, data: bytes = b"\xff" * 16) -> None:
    """Overwrite some bytes."""
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(data)


@pytest.mark.parametrize("lost", [(), ("*.idx",), ("clean",), ("*.idx", "clean")])
async def test_caches_may_be_missing_after_a_clean_stop(tmp_path: Path, lost: tuple[str, ...]) -> None:
    """E-217: without index files and marker the same messages, offsets and windows are found, from frames alone."""
    folder = tmp_path / "store"
    store = await filled(folder)
    ends = store.describe_queues(1)
    await store.close()
    for pattern in lost:
        for file in folder.glob(pattern):
            file.unlink()
    store = await reopened(folder)
    assert await numbers(store) == list(range(120))
    assert store.describe_queues(1) == ends
    assert store.offsets.of(1, "g") == {0: 110}
    data = b"%08d" % 119 * 100
    assert (await store.append(1, 0, SealedBatch(data, crc32c(data), 1, 800, 5, 119))).first_offset == 119
    assert not store.describe().damages
    await store.close()


async def test_a_killed_store_keeps_everything_that_was_acknowledged(tmp_path: Path) -> None:
    """E-214: the acknowledged data of a killed process is there, and offsets continue without a gap."""
    store = await filled(tmp_path / "store")
    copy = crashed_copy(tmp_path / "store", tmp_path / "copy")
    await store.close()
    store = await reopened(copy)
    assert await numbers(store) == list(range(120))
    assert (await store.append(1, 1, SealedBatch(b"x", crc32c(b"x"), 1, 1))).first_offset == 0
    assert store.describe().store_open_number == 2
    await store.close()


async def test_a_torn_tail_is_cut_and_never_comes_back(tmp_path: Path) -> None:
    """E-216: bytes of a flush that was never acknowledged are truncated. Offsets continue after the whole frames."""
    store = await filled(tmp_path / "store")
    copy = crashed_copy(tmp_path / "store", tmp_path / "copy")
    await store.close()
    last = segments(copy)[-1]
    base = int(last.stem)
    position = recover(SegmentFiles(RealDisk()), copy, repairs=False).end_position
    original = last.read_bytes()
    assert not any(original[position - base :])
    damage(last, position - base + 64, b"torn bytes of a flush" * 100)
    store = await reopened(copy)
    assert await numbers(store) == list(range(120))
    assert not store.describe().damages
    await store.close()
    assert b"torn bytes" not in last.read_bytes()


async def test_damage_in_the_middle_is_named_and_the_rest_is_served(tmp_path: Path) -> None:
    """G12: a damaged batch answers DATA_LOSS with file, position and next readable offset. All others are read."""
    folder = tmp_path / "store"
    store = await filled(folder)
    await store.close()
    first = segments(folder)[0]
    place = first.read_bytes().index(b"%08d" % 7 * 100) - HEADER_BYTES
    header = decode_header(first.read_bytes()[place : place + HEADER_BYTES], place)
    damage(first, place + HEADER_BYTES + 50)
    store = await reopened(folder)
    with pytest.raises(DataLoss, match=rf"offsets 7 to 8 .*{first.name}, log position {header.position}.* offset 8$"):
        await store.fetch(1, 0, 7)
    assert (await store.fetch(1, 0, 0)).next_offset == 7
    assert (await store.fetch(1, 0, 8)).batches[0].batch.records[:8] == b"%08d" % 8
    assert [one.position for one in store.describe().damages] == [place]
    await store.close()


@pytest.mark.parametrize("with_index", [True, False])
async def test_a_lost_header_costs_its_offsets_and_no_more(tmp_path: Path, with_index: bool) -> None:
    """A frame with a damaged header is a hole; its offsets follow from those around it and are never assigned again."""
    folder = tmp_path / "store"
    store = await filled(folder)
    await store.close()
    first = segments(folder)[0]
    place = first.read_bytes().index(b"%08d" % 7 * 100) - HEADER_BYTES
    damage(first, place)
    if not with_index:
        for file in [*folder.glob("*.idx"), folder / "clean"]:
            file.unlink()
    store = await reopened(folder)
    with pytest.raises(DataLoss, match=r"offset 8$"):
        await store.fetch(1, 0, 7)
    assert store.describe_queues(1)[0].end_offset == 120
    assert (await store.fetch(1, 0, 8)).batches[0].first_offset == 8
    (found,) = store.describe().damages
    assert found.file == first.name
    assert [(one.topic_id, one.begin_offset, one.end_offset) for one in found.queues] == [(1, 7, 8)]
    await store.close()


async def test_the_last_offset_of_a_queue_is_not_reused_when_its_frame_is_lost(tmp_path: Path) -> None:
    """G3: the offset of an acknowledged batch with an unreadable frame is not used for another one."""
    folder = tmp_path / "store"
    store = await filled(folder, batches=3)
    await store.append(1, 1, SealedBatch(b"only", crc32c(b"only"), 1, 4))
    for number in range(3, 6):
        data = b"%08d" % number * 100
        await store.append(1, 0, SealedBatch(data, crc32c(data), 1, 800, 5, number))
    copy = crashed_copy(folder, tmp_path / "copy")
    await store.close()
    last = segments(copy)[-1]
    damage(last, last.read_bytes().index(b"only") - HEADER_BYTES, bytes(100))
    store = await reopened(copy)
    assert store.describe_queues(1)[0].end_offset == 6
    assert store.describe_queues(1)[1].end_offset > 1
    with pytest.raises(DataLoss):
        await store.fetch(1, 1, 0)
    again = await store.append(1, 1, SealedBatch(b"next", crc32c(b"next"), 1, 4))
    assert again.first_offset > 0
    await store.close()
    end = again.first_offset + 1
    (copy / "clean").unlink()
    store = await reopened(copy)
    assert store.describe_queues(1)[1].end_offset == end
    await store.close()


async def test_a_missing_segment_is_damage(tmp_path: Path) -> None:
    """Segments behind a missing one are served; the missing one is named."""
    folder = tmp_path / "store"
    store = await filled(folder)
    await store.close()
    gone = segments(folder)[1]
    gone.unlink()
    store = await reopened(folder)
    (found,) = [one for one in store.describe().damages if one.position == int(gone.stem)]
    lost = next(one for one in found.queues if one.topic_id == 1)
    with pytest.raises(DataLoss, match=f"continue to read at offset {lost.end_offset}$"):
        await store.fetch(1, 0, lost.begin_offset)
    assert (await store.fetch(1, 0, lost.end_offset)).batches
    assert store.describe_queues(1)[0].end_offset == 120
    await store.close()


async def test_a_log_without_its_beginning_and_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    """Without the state of missing segments the start is refused, with the file, the position and the command."""
    folder = tmp_path / "store"
    store = await filled(folder, batches=25)
    await store.close()
    assert len(segments(folder)) == 1
    shutil.rmtree(folder)
    store = await filled(folder, batches=45)
    await store.close()
    for file in [*folder.glob("*.idx"), folder / "clean", segments(folder)[0]]:
        file.unlink()
    (last,) = segments(folder)
    data = last.read_bytes()
    for place in range(0, len(data), 64):
        if data[place : place + 4] == b"ORTO" and data[place + 6] == 3:
            damage(last, place)
    with pytest.raises(DataLoss, match=rf"{last.name}.* {int(last.stem)}.*ortoo-enode repair"):
        await reopened(folder)


async def test_a_checkpoint_whose_body_never_arrived_is_torn_off(tmp_path: Path) -> None:
    """Of the last flush only a checkpoint's header is on the disk: that is a torn tail, not another version."""
    folder = tmp_path / "store"
    store = await filled(folder)
    copy = crashed_copy(folder, tmp_path / "copy")
    await store.close()
    last = segments(copy)[-1]
    base, data = int(last.stem), last.read_bytes()
    end = recover(SegmentFiles(RealDisk()), copy, repairs=False).end_position
    known = [place for place in range(0, end - base, 64) if data[place : place + 4] == b"ORTO"]
    newest = decode_header(data[known[-1] : known[-1] + HEADER_BYTES], base + known[-1])
    head = newest._replace(
        kind=FrameKind.CHECKPOINT, position=end, prefix_length=0, length=500, payload_crc=1, producer_id=0
    )
    damage(last, end - base, head.encoded())
    store = await reopened(copy)
    assert await numbers(store) == list(range(120))
    assert not store.describe().damages
    assert (await store.append(1, 1, SealedBatch(b"x", crc32c(b"x"), 1, 1))).first_offset == 0
    await store.close()


async def test_a_newer_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """Whole frames of an unknown version are never truncated like torn ones."""
    folder = tmp_path / "store"
    store = await filled(folder, batches=3)
    await store.close()
    (folder / "clean").unlink()
    (last,) = segments(folder)
    data = last.read_bytes()
    place = data.rindex(b"ORTO")
    header = decode_header(data[place : place + HEADER_BYTES], place)
    damage(last, place, header._replace(version=2).encoded())
    before = last.read_bytes()
    with pytest.raises(Unsupported):
        await reopened(folder)
    assert last.read_bytes() == before


async def test_retention_keeps_the_state_and_survives_the_loss_of_all_caches(tmp_path: Path) -> None:
    """E-219: old segments are deleted, begins move, and offsets and windows of the deleted part are kept."""
    folder = tmp_path / "store"
    settings = StoreSettings(
        segment_bytes=32 << 10, headroom_bytes=0, retention_age_ms=0, retention_bytes=70_000, retention_interval_ms=5
    )  # fmt: skip
    store = await reopened(folder, settings)
    await store.put_topics([TopicCopy(1, "a", 2, 1)])
    await store.offsets.commit(1, "early", {1: 3})
    await store.append(1, 1, SealedBatch(b"old", crc32c(b"old"), 4, 3, 6, 0))
    number = 0
    while store.describe().log_begin_position == 0 or store.describe_queues(1)[1].begin_offset == 0:
        data = b"%08d" % number * 100
        await store.append(1, 0, SealedBatch(data, crc32c(data), 1, 800))
        number += 1
        assert number < 5000
    await store.close()
    for file in [*folder.glob("*.idx"), folder / "clean"]:
        file.unlink()
    store = await reopened(folder, settings)
    assert store.offsets.of(1, "early") == {1: 3}
    empty = store.describe_queues(1)[1]
    assert (empty.begin_offset, empty.end_offset) == (4, 4)
    assert (await store.append(1, 1, SealedBatch(b"old", crc32c(b"old"), 4, 3, 6, 0))).first_offset == 0
    assert (await store.append(1, 1, SealedBatch(b"new", crc32c(b"new"), 1, 3, 6, 4))).first_offset == 4
    assert (await numbers(store))[-1] == number - 1
    assert not store.describe().damages
    with pytest.raises(OutOfRange) as below:
        await store.fetch(1, 0, 0)
    begin = store.describe_queues(1)[0].begin_offset
    assert (below.value.begin_offset, below.value.end_offset) == (begin, number)
    await store.close()


async def everything(folder: Path) -> tuple[object, ...]:
    """The answers of a store, and its whole state in the form of a checkpoint."""
    recovered = recover(SegmentFiles(RealDisk()), folder, repairs=False)
    state = sorted(recovered.state.checkpoint())
    recovered.catalog.close()
    store = await reopened(folder)
    batches = []
    for queue in store.describe_queues(1):
        offset = queue.begin_offset
        while (fetched := await store.fetch(1, queue.queue_id, offset)).batches:
            batches += [(queue.queue_id, one) for one in fetched.batches]
            offset = fetched.next_offset
    answers = (state, store.describe_queues(1), store.topics(), batches, store.offsets.of(1, "g"))
    await store.close()
    return answers


async def test_after_retention_deleted_the_first_half_the_caches_are_not_needed(tmp_path: Path) -> None:
    """E-217, E-219: without indexes and snapshots reads and state are equal, from checkpoints in the log."""
    folder = tmp_path / "store"
    store = await filled(folder, batches=400)
    count, size = len(segments(folder)), store.describe().log_bytes
    await store.close()
    store = await reopened(
        folder, dataclasses.replace(SETTINGS, retention_bytes=size // 2, retention_interval_ms=5, idle_mark_ms=5)
    )
    async with asyncio.timeout(60):
        while store.describe().counters["deleted_segments"] < count // 2 - 2:
            await store.append(1, 1, SealedBatch(b"x" * 900, crc32c(b"x" * 900), 1, 900))
    await store.close()
    assert int(segments(folder)[0].stem) > size // 3
    bare = tmp_path / "bare"
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns("*.idx", "*.keys", "clean", "durable"))
    others = {one.name for one in bare.iterdir() if one.suffix != ".seg"}
    assert others == {"identity", "begin", "serials", "reign", "outline"}
    assert await everything(bare) == await everything(folder)


async def idle(store: SingleStore, folder: Path) -> None:
    """Wait until the durable position is in the log and in the durable mark."""
    async with asyncio.timeout(60):
        while True:
            file = folder / "durable"
            if file.exists() and decode_slots(file.read_bytes()) == store.describe().durable_position:
                return
            await store.fetch(1, 1, store.describe_queues(1)[1].end_offset, wait_ms=10)


async def test_the_page_with_the_last_batch_and_its_mark_is_not_taken_for_a_torn_tail(tmp_path: Path) -> None:
    """After the store fell idle, a lost end of the log is damage, so the offsets are not assigned again."""
    store = await filled(tmp_path / "store", batches=10)
    await idle(store, tmp_path / "store")
    copy = crashed_copy(tmp_path / "store", tmp_path / "copy")
    await store.close()
    (last,) = segments(copy)
    place = last.read_bytes().index(b"%08d" % 9 * 100) - HEADER_BYTES
    damage(last, place, bytes(8192))
    store = await reopened(copy)
    assert store.describe().damages
    assert store.describe_queues(1)[0].end_offset > 9
    with pytest.raises(DataLoss):
        await store.fetch(1, 0, 9)
    assert (await store.fetch(1, 0, 8)).next_offset == 9
    await store.close()


@pytest.mark.parametrize("clean", [True, False])
async def test_a_missing_end_of_the_log_is_damage(tmp_path: Path, clean: bool) -> None:
    """When the last segment is missing, its data is reported as lost, and its offsets are not used again."""
    folder = tmp_path / "store"
    store = await filled(folder)
    await idle(store, folder)
    if not clean:
        folder = crashed_copy(folder, tmp_path / "copy")
    await store.close()
    gone = segments(folder)[-1]
    gone.unlink()
    for _ in range(2):
        store = await reopened(folder)
        assert int(gone.stem) in [one.position for one in store.describe().damages]
        lost = store.describe_queues(1)[0]
        assert lost.end_offset >= 120
        answer = await store.append(1, 0, SealedBatch(b"new", crc32c(b"new"), 1, 3))
        assert answer.first_offset == lost.end_offset
        await store.close()


@pytest.mark.parametrize("clean", [True, False])
async def test_a_log_cut_short_goes_on_densely_and_says_what_is_missing(tmp_path: Path, clean: bool) -> None:
    """E-216, G12: the missing durable end of the last file is reported at each start, and offsets stay dense.

    The store returns to the state at the cut, with groups' offsets, so no group skips a new message. Producers are
    ahead of it, so they must start again.
    """
    folder = tmp_path / "store"
    store = await filled(folder)
    await idle(store, folder)
    if not clean:
        folder = crashed_copy(folder, tmp_path / "copy")
    await store.close()
    last = segments(folder)[-1]
    place = last.read_bytes().index(b"%08d" % 118 * 100)
    with last.open("r+b") as file:
        file.truncate(place + 100)
    for kept, producer_id, sequence in ((118, 9, 0), (119, 9, 1)):
        store = await reopened(folder)
        (found,) = store.describe().damages
        assert (found.file, found.position) == (last.name, int(last.stem) + place - HEADER_BYTES)
        assert "the file ends at" in found.reason
        assert await numbers(store) == list(range(kept))
        data = b"%08d" % kept * 100
        with pytest.raises(NotFound, match=r"batch\.producer_id"):
            await store.append(1, 0, SealedBatch(data, crc32c(data), 1, 800, 5, 120))
        batch = SealedBatch(data, crc32c(data), 1, 800, producer_id, sequence)
        assert (await store.append(1, 0, batch)).first_offset == kept
        assert store.offsets.of(1, "g") == {0: 110}
        with pytest.raises(OutOfRange):
            await store.fetch(1, 0, 140)
        copy = crashed_copy(folder, tmp_path / f"killed-{kept}")
        await store.close()
        folder = copy


async def test_a_log_that_is_gone_altogether_is_refused(tmp_path: Path) -> None:
    """An empty folder that once held a log is not taken for a new store."""
    folder = tmp_path / "store"
    store = await filled(folder, batches=3)
    await store.close()
    segments(folder)[0].unlink()
    with pytest.raises(DataLoss, match="no segment is left"):
        await reopened(folder)
