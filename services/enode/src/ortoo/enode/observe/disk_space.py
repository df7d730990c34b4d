"""Metrics and findings of the space on the disk of a replica, leading or not."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ortoo.common.errors.findings import Finding
from ortoo.common.telemetry.metrics import Metrics
from ortoo.enode.disk.disk import DiskSpace
from ortoo.enode.store.housekeeping import Housekeeping

GIB: Final = 1 << 30
DAY_S: Final = 86_400.0
FILLS_WITHIN_S: Final = 3 * DAY_S
"""A disk that is full within this time is a finding; within a day it is critical."""
FREE_PERCENT_MIN: Final = 10
"""Less free space, in percent of the disk, is a finding; less than half of it is critical."""
Opened = Callable[[], Housekeeping | None]
"""The housekeeping of the open log; None while none is open."""


def full_in_s(housekeeping: Housekeeping) -> float | None:
    """The time until the disk is full; None = not foreseeable."""
    segments = housekeeping.catalog.segments
    is_sealed = bool(segments) and segments[0].end is not None
    age_ms = max(0, housekeeping.clock.now_ms() - segments[0].last_stored_at_ms) if is_sealed else None
    return housekeeping.space.full_in_s(housekeeping.settings, age_ms)


def register_disk_space(metrics: Metrics, opened: Opened) -> None:
    """Register the metrics of the disk. They have no value before the first measurement."""

    def each(read: Callable[[DiskSpace], int]) -> Mapping[tuple[()], float]:
        space = housekeeping.space.space if (housekeeping := opened()) is not None else None
        return {} if space is None else {(): read(space)}

    def full() -> Mapping[tuple[()], float]:
        left_s = full_in_s(housekeeping) if (housekeeping := opened()) is not None else None
        return {} if left_s is None else {(): round(left_s)}

    metrics.gauge(
        "ortoo_disk_free_bytes", "Free bytes of the data folder's disk.", lambda: each(lambda it: it.free_bytes)
    )
    metrics.gauge("ortoo_disk_size_bytes", "Size of this disk.", lambda: each(lambda it: it.size_bytes))
    metrics.gauge(
        "ortoo_disk_free_inodes", "Files that the disk can still have.", lambda: each(lambda it: it.free_inodes)
    )
    metrics.gauge(
        "ortoo_disk_inodes", "Files that the disk can have; 0 without limit.", lambda: each(lambda it: it.inodes)
    )
    metrics.gauge(
        "ortoo_disk_full_in_seconds",
        "Time until the disk is full at the rate of the last hours, if retention does not prevent it.",
        full,
    )


def disk_space_findings(housekeeping: Housekeeping) -> Iterator[Finding]:
    """The findings of a disk that is nearly full, or that soon will be. A full disk has a finding of its own."""
    space, left_s = housekeeping.space.space, full_in_s(housekeeping)
    if space is None or housekeeping.appender.full:
        return
    impact = "a full disk accepts no messages; reads are served"
    free, size = space.free_bytes, space.size_bytes
    is_low = free * 100 < size * FREE_PERCENT_MIN
    if is_low or (left_s is not None and left_s < FILLS_WITHIN_S):
        trend = "" if left_s is None else f", and it is full in {left_s / DAY_S:.1f} days at the rate of the last hours"
        yield Finding(
            "disk nearly full",
            f"{free / GIB:.1f} of {size / GIB:.1f} GiB of the disk are free ({free * 100 // max(1, size)} %){trend}",
            impact,
            "enlarge the volume, or lower store.retention_bytes or store.retention_age_ms without a restart: "
            "ortoo settings set enode store.retention_age_ms=MS. du shows whether other files use the disk",
            critical=free * 200 < size * FREE_PERCENT_MIN or (left_s is not None and left_s < DAY_S),
        )
    if space.free_inodes * 100 < space.inodes * FREE_PERCENT_MIN:
        yield Finding(
            "inodes nearly used up",
            f"{space.free_inodes} of {space.inodes} inodes of the disk are free",
            impact,
            "delete files of the folder with most files (du --inodes -xd3 / | sort -n | tail), or use a disk with more "
            "inodes",
            critical=space.free_inodes * 200 < space.inodes * FREE_PERCENT_MIN,
        )
