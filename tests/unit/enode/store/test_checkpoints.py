"""When checkpoints are written: for data since the last one, and never for themselves."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ortoo.common.errors import Overloaded
from ortoo.common.process.background import Background
from ortoo.common.records.batch import Message, encode
from ortoo.enode.changes.kinds import OffsetsCommitted
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.index.catalog import SealedSegment
from ortoo.enode.log.checkpoint import complete_checkpoints
from ortoo.enode.log.queue_index import SliceLocation
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.recovery.only_copy import recover
from ortoo.enode.store.checkpoints import CONTENT_PER_SLICE_MAX, Checkpoints, is_due, is_worth_it
from ortoo.enode.store.housekeeping import Housekeeping
from ortoo.testing.disks.disk_image import WriteFile
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.workload import FOLDER
from tests.contract.deferred_store import DeferredStore
from tests.contract.one_store import SETTINGS, TOPIC, OneStore

SEGMENT_BYTES = 8_192
DAY_MS = 86_400_000
SMALL = replace(SETTINGS, segment_bytes=SEGMENT_BYTES, checkpoint_slice_bytes=1_024)
Plant = Callable[[pytest.MonkeyPatch], None]


def stored(disk: MemoryDisk) -> int:
    """The number of bytes written to all files."""
    return sum(len(one.data) for one in disk.operations if isinstance(one, WriteFile))


def state_bytes(one: OneStore) -> int:
    """The length of a checkpoint."""
    return sum(map(len, one.store.engine.state.checkpoint()))


async def opened(settings: StoreSettings = SMALL) -> tuple[DeferredStore, MemoryDisk]:
    """A store with a delivery loop, and the disk that counts written bytes."""
    memory = MemoryDisk(record=True)
    one = DeferredStore(settings=settings, disk=FaultyDisk(memory))
    await one.open()
    return one, memory


async def delay(one: DeferredStore, segments: int) -> None:
    """Delay messages by a year until the state is as large as a number of segments, and write a checkpoint of it."""
    due_ms = one.clock.now_ms() + 365 * DAY_MS
    while state_bytes(one) < segments * SEGMENT_BYTES:
        batch = encode([Message(b"%04d" % row, deliver_at_ms=due_ms + row) for row in range(20)], now_ms=1)
        await one.delays.append(TOPIC, 0, batch)
    await one.store.engine.housekeeping.checkpoint()
    await one.clock.pass_time(2)


async def closed(one: DeferredStore) -> None:
    """Stop everything."""
    await one.halt()
    await one.store.close()


def checkpoint_ends(one: OneStore) -> list[int]:
    """The positions from which the complete checkpoints of the log fold, the newest first."""
    found = recover(SegmentFiles(one.disk), FOLDER, repairs=False).catalog
    slices: list[SliceLocation] = [part for contents in found.contents.values() for part in contents.slices]
    return [parts[-1].fold_from for parts in complete_checkpoints([*slices, *found.active_parts.slices])]


# decisions


def test_a_checkpoint_is_due_for_as_much_as_it_is_long() -> None:
    """A segment at least, and a number of changes that grows with its length."""
    settings = StoreSettings(segment_bytes=1 << 20, checkpoint_records=1_000)

    def due(content_bytes: int, changes: int, size_bytes: int) -> bool:
        return is_due(settings, content_bytes=content_bytes, changes=changes, size_bytes=size_bytes)

    assert due(1 << 20, 0, 0)
    assert not due((1 << 20) - 1, 999, 0)
    assert due(0, 1_000, 0)
    assert not due((3 << 20) - 1, 2_999, 3 << 20)
    assert due(3 << 20, 0, 3 << 20)
    assert due(0, 3_000, 3 << 20)


def test_retention_has_checkpoints_written_only_when_more_is_freed() -> None:
    """It is not worth it if the segments free no more than two kept and two new checkpoints."""
    assert is_worth_it(blocked_bytes=1, size_bytes=0)
    assert not is_worth_it(blocked_bytes=0, size_bytes=0)
    assert not is_worth_it(blocked_bytes=4_000, size_bytes=1_000)
    assert is_worth_it(blocked_bytes=4_001, size_bytes=1_000)


# writes


async def written_while_idle() -> int:
    """The bytes that an idle store with a state of three segments writes in ten minutes."""
    one, memory = await opened()
    await delay(one, 3)
    before = stored(memory)
    for _ in range(600):
        await one.clock.pass_time(1)
        if stored(memory) - before > 10 * SEGMENT_BYTES:
            break
    result = stored(memory) - before
    await closed(one)
    return result


async def test_an_idle_store_whose_state_is_larger_than_segments_writes_nothing() -> None:
    """Checkpoints that fill segments trigger no other checkpoints."""
    assert await written_while_idle() == 0


def due_with_each_segment(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint is due when a segment is sealed, also one that a checkpoint has filled."""
    honest = Housekeeping.on_segment_sealed

    def sealed(keeping: Housekeeping, one: SealedSegment) -> None:
        honest(keeping, one)
        keeping.checkpoints.due.set()

    patch.setattr(Housekeeping, "on_segment_sealed", sealed)


def slices_are_content(patch: pytest.MonkeyPatch) -> None:
    """Content of checkpoints counts for the next one."""
    patch.setattr(Checkpoints, "content", property(lambda one: one.appender.committed_position))


@pytest.mark.parametrize("plant", [due_with_each_segment, slices_are_content], ids=lambda plant: plant.__name__)
async def test_a_checkpoint_that_brings_itself_about_is_noticed(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above finds these bugs."""
    plant(monkeypatch)
    assert await written_while_idle() > 10 * SEGMENT_BYTES


async def test_what_is_written_is_in_proportion_to_what_is_stored() -> None:
    """Messages of five times the state: the log, with all headers and checkpoints, is less than 2.5 times as long."""
    one, _ = await opened()
    await delay(one, 4)
    begin, payload = one.store.engine.appender.appended_position, 0
    while payload < 5 * state_bytes(one):
        await one.append(bytes(1_800))
        payload += 1_800
    await one.clock.pass_time(2)
    assert one.store.engine.appender.appended_position - begin < 2.5 * payload
    await closed(one)


@pytest.mark.parametrize("end", ["clean", "killed"])
async def test_a_start_brings_no_checkpoint_about(end: str) -> None:
    """After a restart the content since the last checkpoint and its length are known."""
    one, _ = await opened()
    await delay(one, 3)
    before = checkpoint_ends(one)
    for number in range(4):
        await one.halt()
        await (one.restart() if end == "clean" else one.crash(number))
        await one.clock.pass_time(60)
    assert checkpoint_ends(one) == before
    await closed(one)


async def test_a_start_after_any_kill_has_little_to_fold() -> None:
    """At most the newest complete checkpoint, a part of the next one, and as much content as one of them is long."""
    one, _ = await opened()
    await delay(one, 3)
    state, longest = state_bytes(one), 0
    for number in range(400):
        if number % 2:
            await one.append(bytes(700))
        else:
            change = OffsetsCommitted(TOPIC, f"group-{number % 7}", 0, ((0, number),))
            await one.store.engine.store([change])
        if number % 5 == 0:
            longest = max(longest, one.store.engine.appender.appended_position - checkpoint_ends(one)[0])
    assert len(checkpoint_ends(one)) > 5
    assert longest < 1.3 * 3 * state
    await closed(one)


async def test_a_checkpoint_keeps_pace_with_what_is_stored_meanwhile() -> None:
    """At most four times its length of content is appended meanwhile, for any size of the flushes."""
    one, _ = await opened()
    change = [OffsetsCommitted(TOPIC, f"group-{number:05d}", 0, ((0, number),)) for number in range(1_000)]
    await one.store.engine.store(change)
    async with Background("appends") as background:

        async def append_on() -> None:
            while True:
                await one.append(bytes(1_800))

        for number in range(8):
            background.spawn(f"append {number}", append_on())
        begin = one.store.engine.appender.committed_position
        await one.store.engine.housekeeping.checkpoint()
        grown = one.store.engine.appender.committed_position - begin
    size = one.store.engine.housekeeping.checkpoints.size_bytes
    assert size > 6 * SEGMENT_BYTES
    assert grown < (1 + CONTENT_PER_SLICE_MAX) * size + 8 * SEGMENT_BYTES
    await closed(one)


# retention


async def test_what_is_too_old_goes_from_an_idle_store_and_then_nothing_is_written() -> None:
    """Only the checkpoints that retention needs to delete segments are written."""
    one, memory = await opened(replace(SMALL, retention_age_ms=60_000))
    for _ in range(40):
        await one.append(bytes(1_800))
    await one.clock.pass_time(120)
    assert one.store.describe().log_bytes < 2 * SEGMENT_BYTES
    before = stored(memory)
    await one.clock.pass_time(3_600)
    assert stored(memory) == before
    await closed(one)


async def test_a_log_that_is_too_long_by_its_checkpoints_alone_stays_so() -> None:
    """Retention by size would delete them, but checkpoints of the same length would have to be written for that."""
    one, memory = await opened(replace(SMALL, retention_bytes=SEGMENT_BYTES))
    await delay(one, 3)
    await one.store.engine.housekeeping.checkpoint()
    await one.clock.pass_time(60)
    assert one.store.describe().log_bytes > 6 * SEGMENT_BYTES
    before = stored(memory)
    await one.clock.pass_time(600)
    assert stored(memory) == before
    assert one.store.timers.live_count
    await closed(one)


async def test_two_complete_checkpoints_are_there_whenever_segments_were_deleted() -> None:
    """Also with a state larger than segments, and retention that leaves less than that."""
    one, _ = await opened(replace(SMALL, retention_bytes=4 * SEGMENT_BYTES, retention_interval_ms=100))
    change = [OffsetsCommitted(TOPIC, f"group-{number:05d}", 0, ((0, number),)) for number in range(500)]
    await one.store.engine.store(change)
    looks = 0
    for number in range(300):
        await one.append(bytes(1_800))
        await one.clock.pass_time(0.05)
        if number % 10 == 0 and (begin := one.store.describe().log_begin_position):
            assert [end >= begin for end in checkpoint_ends(one)[:2]] == [True, True]
            looks += 1
    assert state_bytes(one) > 2 * SEGMENT_BYTES
    assert looks > 20
    await closed(one)


# a full disk


async def test_a_checkpoint_is_not_begun_without_room_and_written_when_there_is() -> None:
    """The rest of the disk is for offsets, not for slices of a checkpoint that cannot be completed."""
    one, memory = await opened(replace(SMALL, headroom_bytes=SEGMENT_BYTES))
    await delay(one, 6)
    before = checkpoint_ends(one)
    memory.capacity_bytes = memory.image.used_bytes() + 5 * SEGMENT_BYTES
    with pytest.raises(Overloaded):
        await one.store.engine.housekeeping.checkpoint()
    await one.clock.pass_time(5)
    found = recover(SegmentFiles(one.disk), FOLDER, repairs=False).catalog
    assert all(part.fold_from <= before[0] for contents in found.contents.values() for part in contents.slices)
    await one.store.offsets.commit(TOPIC, "g", {0: 1})
    memory.capacity_bytes += 30 * SEGMENT_BYTES
    await one.clock.pass_time(5)
    assert len(checkpoint_ends(one)) == len(before) + 1
    await closed(one)


async def test_a_checkpoint_that_ends_half_way_is_written_once_more() -> None:
    """The disk becomes full during a checkpoint; when there is room it is written again from its begin, once."""
    one, memory = await opened()
    await delay(one, 6)
    before = checkpoint_ends(one)
    begin = one.store.engine.appender.appended_position
    one.store.engine.housekeeping.checkpoints.due.set()
    while one.store.engine.appender.appended_position < begin + 2 * SEGMENT_BYTES:
        await one.clock.sleep(0)
    memory.capacity_bytes = memory.image.used_bytes()
    await one.clock.pass_time(5)
    assert checkpoint_ends(one) == before
    memory.capacity_bytes = 1 << 40
    await one.clock.pass_time(600)
    assert len(checkpoint_ends(one)) == len(before) + 1
    await closed(one)
