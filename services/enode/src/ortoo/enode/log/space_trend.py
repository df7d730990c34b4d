"""Estimates when the disk is full, from how its free space and the log have changed. Pure decisions."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ortoo.enode.disk.disk import DiskSpace
from ortoo.enode.log.settings import StoreSettings

SAMPLE_INTERVAL_S: Final = 60.0
WINDOW_S: Final = 6 * 3_600.0
"""The estimate is derived from the change in this time."""
WINDOW_S_MIN: Final = 1_800.0
"""Without samples for this time there is no estimate."""
SEGMENTS_MIN: Final = 2
"""A decrease by less than this number of segments is no trend, because a segment gets its space in one step."""


class _Sample(NamedTuple):
    at_s: float
    free_bytes: int
    log_bytes: int


@dataclass(slots=True)
class SpaceTrend:
    """The current space of the disk, and its samples. The caller calls `record` regularly."""

    space: DiskSpace | None = None
    """The space at the last call of `record`."""
    _samples: deque[_Sample] = field(default_factory=deque)

    def record(self, now_s: float, space: DiskSpace, log_bytes: int) -> None:
        """Note the space and the length of the log at a time of the monotonic clock."""
        self.space = space
        if not self._samples or now_s >= self._samples[-1].at_s + SAMPLE_INTERVAL_S:
            self._samples.append(_Sample(now_s, space.free_bytes, log_bytes))
            while self._samples[0].at_s < now_s - WINDOW_S:
                self._samples.popleft()

    def full_in_s(self, settings: StoreSettings, oldest_age_ms: int | None) -> float | None:
        """The time until the disk is full at the current rate; None = the disk does not fill, or the rate is unknown.

        `oldest_age_ms` is the age of the oldest segment's last message; None without such a segment. Once retention
        deletes as much as is written, the log stops growing. From then on only other files fill the disk.
        """
        if not self._samples:
            return None
        first, last = self._samples[0], self._samples[-1]
        took_s, used_bytes = last.at_s - first.at_s, first.free_bytes - last.free_bytes
        if took_s < WINDOW_S_MIN or used_bytes < SEGMENTS_MIN * settings.segment_bytes:
            return None
        half = next(sample for sample in self._samples if sample.at_s >= last.at_s - took_s / 2)
        if half.free_bytes - last.free_bytes < settings.segment_bytes:  # it was filled at once, and no longer is
            return None
        growth = max(0, last.log_bytes - first.log_bytes) / took_s
        rate = used_bytes / took_s
        full_s = last.free_bytes / rate
        limit_s = _log_grows_for_s(settings, last.log_bytes, growth, oldest_age_ms)
        if limit_s >= full_s:
            return full_s
        others = rate - growth
        if others * took_s < SEGMENTS_MIN * settings.segment_bytes:
            return None
        return limit_s + (last.free_bytes - limit_s * rate) / others


def _log_grows_for_s(settings: StoreSettings, log_bytes: int, growth: float, oldest_age_ms: int | None) -> float:
    """The time after which retention keeps the length of the log, in s; `growth` is in bytes a second."""
    limits_s = [float("inf")]
    if settings.retention_requires_acknowledgement:  # then the consumers decide
        return limits_s[0]
    if settings.retention_bytes and growth:
        limits_s.append(max(0.0, (settings.retention_bytes - log_bytes) / growth))
    if settings.retention_age_ms:
        limits_s.append(max(0, settings.retention_age_ms - (oldest_age_ms or 0)) / 1000)
    return min(limits_s)
