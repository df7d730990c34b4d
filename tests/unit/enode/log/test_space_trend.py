"""When a disk is full, estimated from its free space and the growth of the log."""

from dataclasses import replace

import pytest

from ortoo.enode.disk.disk import DiskSpace
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.log.space_trend import WINDOW_S, SpaceTrend

GIB = 1 << 30
HOUR_S, HOUR_MS = 3_600, 3_600_000
NO_RETENTION = StoreSettings(retention_age_ms=0)
SIZE_BYTES = 1_000 * GIB


def trend(*, log: float, others: float = 0.0, hours: int = 2, free: float = 100.0) -> SpaceTrend:
    """Samples of some hours, one a minute; `log` and `others` are GiB an hour, `free` the GiB that are free now."""
    made = SpaceTrend()
    for minute in range(hours * 60 + 1):
        left_h = hours - minute / 60
        free_bytes = int((free + left_h * (log + others)) * GIB)
        made.record(minute * 60.0, DiskSpace(free_bytes, SIZE_BYTES), int((500 - left_h * log) * GIB))
    return made


def full_in_h(made: SpaceTrend, settings: StoreSettings, oldest_age_ms: int | None = None) -> float | None:
    """The estimate in hours, rounded."""
    found_s = made.full_in_s(settings, oldest_age_ms)
    return None if found_s is None else round(found_s / HOUR_S, 1)


def test_a_log_that_grows_fills_the_disk() -> None:
    """Without retention, and with the same result for other files of the disk."""
    assert full_in_h(trend(log=10), NO_RETENTION) == 10
    assert full_in_h(trend(log=0, others=10), NO_RETENTION) == 10
    assert full_in_h(trend(log=4, others=6, hours=12), NO_RETENTION) == 10


def test_retention_that_begins_before_keeps_the_disk_from_filling() -> None:
    """A new enode fills its disk until its oldest messages are deleted, which is no problem."""
    by_age, by_size = StoreSettings(retention_age_ms=72 * HOUR_MS), replace(NO_RETENTION, retention_bytes=550 * GIB)
    assert full_in_h(trend(log=10), by_age, oldest_age_ms=66 * HOUR_MS) is None
    assert full_in_h(trend(log=10), by_size) is None
    assert full_in_h(trend(log=10), by_age, oldest_age_ms=60 * HOUR_MS) == 10
    assert full_in_h(trend(log=10), replace(by_size, retention_bytes=700 * GIB)) == 10


def test_other_files_fill_the_rest_after_retention_has_begun() -> None:
    """5 hours at 15 GiB an hour, then 25 GiB at 5 GiB an hour."""
    settings = replace(NO_RETENTION, retention_bytes=550 * GIB)
    assert full_in_h(trend(log=10, others=5), settings) == 10


def test_retention_that_waits_for_groups_is_not_relied_on() -> None:
    """The consumers decide when it deletes."""
    settings = replace(NO_RETENTION, retention_bytes=500 * GIB, retention_requires_acknowledgement=True)
    assert full_in_h(trend(log=10), settings) == 10


@pytest.mark.parametrize("made", [
    SpaceTrend(), trend(log=10, hours=0), trend(log=0), trend(log=-1), trend(log=0, others=0.1),
])  # fmt: skip
def test_too_little_is_no_trend(made: SpaceTrend) -> None:
    """Too short a time, no decrease, and a decrease by less than two segments."""
    assert made.full_in_s(NO_RETENTION, None) is None


def test_other_files_that_have_come_at_once_are_no_trend() -> None:
    """20 GiB came within half an hour. After the same time without a further decrease, no alarm remains."""
    made, full_at = SpaceTrend(), list[int]()
    for minute in range(12 * 60):
        free_bytes = int((200 - min(minute, 30) / 30 * 20) * GIB)
        made.record(minute * 60.0, DiskSpace(free_bytes, SIZE_BYTES), 10 * GIB)
        if made.full_in_s(NO_RETENTION, None) is not None:
            full_at.append(minute)
    assert full_at == list(range(30, 59))


def test_samples_are_kept_for_the_window_only() -> None:
    """An old increase no longer counts, and the memory of a long run is limited."""
    made = SpaceTrend()
    for second in range(0, int(WINDOW_S) * 3, 10):
        made.record(float(second), DiskSpace(SIZE_BYTES - second * (1 << 20), SIZE_BYTES), 0)
    assert len(made._samples) <= WINDOW_S / 60 + 2
    left_bytes = SIZE_BYTES - int(WINDOW_S) * 3 * (1 << 20)
    found_s = made.full_in_s(NO_RETENTION, None)
    assert found_s is not None
    assert found_s == pytest.approx(left_bytes / (1 << 20), rel=0.01)
