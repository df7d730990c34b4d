"""The segments that retention deletes."""

import asyncio
from dataclasses import replace
from pathlib import Path

from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import encode
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.segment import Segment
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.store.retention import Expired, RetentionClock
from ortoo.enode.store.retention import expired as expired_segments
from ortoo.verification.store.single_store import open_single_store
from ortoo.verification.time.virtual_clock import VirtualClock

DAY_MS = 86_400_000


def segments(count: int) -> list[Segment]:
    """Segments of 100 bytes, the n-th written at time 1000 n; the last one is active."""
    made = []
    for number in range(count):
        one = Segment(SegmentFiles(RealDisk()), Path(), number * 100, number * 100 + 100)
        one.end = number * 100 + 100 if number < count - 1 else None
        one.last_stored_at_ms = 1000 * number
        made.append(one)
    return made


def expired(settings: StoreSettings, *, checkpoint_from: int = 10_000, acknowledged: int = 10_000) -> int:
    """The number of segments of ten to delete at time 10,000."""
    return decided(settings, checkpoint_from=checkpoint_from, acknowledged=acknowledged).oldest


def decided(settings: StoreSettings, *, checkpoint_from: int = 10_000, acknowledged: int = 10_000) -> Expired:
    """The decision for ten segments at time 10,000."""
    return expired_segments(
        segments(10),
        now_ms=10_000,
        log_end=1000,
        checkpoint_from=checkpoint_from,
        settings=settings,
        is_acknowledged=lambda segment: segment.base < acknowledged,
    )


def test_segments_go_by_age_and_by_size_and_the_active_one_stays() -> None:
    """Whole segments, oldest first."""
    assert expired(StoreSettings(retention_age_ms=0)) == 0
    assert expired(StoreSettings(retention_age_ms=6500)) == 4
    assert expired(StoreSettings(retention_age_ms=1)) == 9
    assert expired(StoreSettings(retention_age_ms=0, retention_bytes=350)) == 7
    assert expired(StoreSettings(retention_age_ms=0, retention_bytes=1)) == 9


def test_a_segment_stays_until_a_whole_checkpoint_stands_behind_it() -> None:
    """The state of a deleted segment must be in the log."""
    assert expired(StoreSettings(retention_age_ms=1), checkpoint_from=300) == 3
    assert expired(StoreSettings(retention_age_ms=1), checkpoint_from=299) == 2
    assert expired(StoreSettings(retention_age_ms=1), checkpoint_from=0) == 0


def test_what_waits_for_a_checkpoint_alone_is_told() -> None:
    """The bytes of the segments that wait only for a newer checkpoint, and whether one of them is too old."""
    assert decided(StoreSettings(retention_age_ms=6500), checkpoint_from=300) == Expired(3, 100, True)
    assert decided(StoreSettings(retention_age_ms=1), checkpoint_from=0) == Expired(0, 900, True)
    assert decided(StoreSettings(retention_age_ms=1), checkpoint_from=900) == Expired(9, 0)
    settings = StoreSettings(retention_age_ms=1, retention_requires_acknowledgement=True)
    assert decided(settings, checkpoint_from=100, acknowledged=200) == Expired(1, 100, True)
    too_long = StoreSettings(retention_age_ms=0, retention_bytes=350)
    assert decided(too_long, checkpoint_from=300) == Expired(3, 400)


def test_segments_wait_for_acknowledgement_when_asked_to() -> None:
    """Opted in, a segment stays until every group has passed it."""
    settings = StoreSettings(retention_age_ms=1, retention_requires_acknowledgement=True)
    assert expired(settings, acknowledged=200) == 2
    assert expired(StoreSettings(retention_age_ms=1), acknowledged=200) == 9


def test_a_clock_that_was_set_forward_is_believed_after_a_day_and_set_right_at_once() -> None:
    """Small steps count, as those of a clock that is kept in time."""
    clock = VirtualClock()
    begun_ms = clock.now_ms()
    ageing = RetentionClock()
    assert ageing.now_ms(begun_ms, clock.monotonic_s()) == begun_ms

    def now_ms() -> int:
        return ageing.now_ms(clock.now_ms(), clock.monotonic_s())

    clock.advance(600)
    clock.set_wall(clock.now_ms() + 60_000)
    assert now_ms() == begun_ms + 660_000
    clock.set_wall(clock.now_ms() + 365 * DAY_MS)
    assert now_ms() == begun_ms + 660_000
    clock.advance(7_200)
    assert now_ms() == begun_ms + 7_860_000
    clock.set_wall(clock.now_ms() - 365 * DAY_MS)
    assert now_ms() == begun_ms + 7_860_000
    clock.set_wall(clock.now_ms() + 365 * DAY_MS)
    assert now_ms() == begun_ms + 7_860_000
    clock.advance(86_000)
    assert now_ms() == begun_ms + 93_860_000
    clock.advance(400)
    assert now_ms() == clock.now_ms() == begun_ms + 94_260_000 + 365 * DAY_MS


async def test_retention_changes_while_the_store_is_open(tmp_path: Path) -> None:
    """A log that is too large is reduced at the next run, by settings that were read again."""
    settings = StoreSettings(
        segment_bytes=16 << 10, headroom_bytes=0, retention_age_ms=0, retention_interval_ms=5, key_index=False
    )
    store = await open_single_store(
        tmp_path, settings=settings, disk=RealDisk(), clock=SystemClock(), randomness=Randomness(1)
    )
    await store.put_topics([TopicCopy(1, "t", 1, 1)])
    batch = encode([b"x" * 1_000] * 8, now_ms=1)
    for _ in range(12):
        await store.append(1, 0, batch)
    assert store.describe().log_begin_position == 0
    store.engine.housekeeping.use_retention_settings(replace(settings, retention_bytes=1, segment_bytes=1 << 20))
    async with asyncio.timeout(60):
        while store.describe().log_begin_position == 0:
            await store.append(1, 0, batch)
    assert store.engine.housekeeping.settings.segment_bytes == settings.segment_bytes
    await store.close()


async def test_a_log_that_grows_fast_does_not_wait_for_the_interval(tmp_path: Path) -> None:
    """A log that exceeds its size by a segment is reduced at the next check of the disk."""
    settings = StoreSettings(
        segment_bytes=16 << 10, headroom_bytes=0, retention_age_ms=0, retention_interval_ms=DAY_MS, key_index=False,
        retention_bytes=64 << 10, disk_check_interval_ms=5,
    )  # fmt: skip
    store = await open_single_store(
        tmp_path, settings=settings, disk=RealDisk(), clock=SystemClock(), randomness=Randomness(1)
    )
    await store.put_topics([TopicCopy(1, "t", 1, 1)])
    batch = encode([b"x" * 1_000] * 8, now_ms=1)
    async with asyncio.timeout(60):
        while store.engine.housekeeping.deleted_segments < 3:
            await store.append(1, 0, batch)
    await store.close()


async def test_two_requests_to_delete_the_same_segments_delete_no_others(tmp_path: Path) -> None:
    """Retention and the replication protocol may request the same deletion at the same time."""
    settings = StoreSettings(segment_bytes=16 << 10, headroom_bytes=0, retention_age_ms=0, key_index=False)
    store = await open_single_store(
        tmp_path, settings=settings, disk=RealDisk(), clock=SystemClock(), randomness=Randomness(1)
    )
    await store.put_topics([TopicCopy(1, "t", 1, 1)])
    batch = encode([b"x" * 1_000] * 8, now_ms=1)
    for _ in range(12):
        await store.append(1, 0, batch)
    housekeeping, segments = store.engine.housekeeping, store.engine.catalog.segments
    assert len(segments) > 5
    begin = segments[2].base
    await asyncio.gather(housekeeping.delete_below(begin), housekeeping.delete_below(begin))
    assert store.describe().log_begin_position == begin
    assert housekeeping.deleted_segments == 2
    await store.close()
