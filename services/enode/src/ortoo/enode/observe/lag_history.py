"""The lag of each group over the last hour, in memory: a ring of samples for each topic and group."""

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ortoo.common.process.long_work import in_slices
from ortoo.enode.observe.backlog import Backlogs, GroupBacklog

INTERVAL_MS: Final = 10_000
CHECK_INTERVAL_S: Final = 2.0
"""Interval of calls of `sample`, which is shorter than that of samples, so that no sample is left out."""
SAMPLES_MAX: Final = 360
"""The number of kept samples: an hour."""
SERIES_MAX: Final = 2_000
"""The number of recorded pairs of topic and group. A series has less than 6 KiB, so all of them have 12 MiB."""
UNKNOWN: Final = -1
"""A value that was not recorded."""
LAG_MAX: Final = (1 << 63) - 1
LEFT_S_MAX: Final = (1 << 31) - 1
"""A time that is never reached."""


@dataclass(slots=True)
class _Series:
    """The samples of one group in one topic, in places that all series share. It has some lag in one of them."""

    lags: "array[int]" = field(default_factory=lambda: array("q", bytes(8 * SAMPLES_MAX)))
    """The unfinished messages."""
    left_s: "array[int]" = field(default_factory=lambda: array("i", [UNKNOWN]) * SAMPLES_MAX)
    """The seconds until retention reaches the oldest unfinished message."""
    lagged_at: int = 0
    """The number of the last sample with lag."""


@dataclass(frozen=True, slots=True)
class RecordedLag:
    """The recorded lag of a group in some topics, in the order of the times."""

    sampled_at_ms: Sequence[int]
    lag_messages: Sequence[int]
    retention_left_ms: Sequence[int]
    """The shortest time of these topics."""


class LagHistory:
    """Records the lags of all groups every ten seconds. A group without lag needs no memory.

    The times are multiples of the interval, so that samples of several enodes can be added. The samples of a process
    begin when it becomes leader. They are not durable.
    """

    def __init__(self, backlogs: Backlogs, *, series_max: int = SERIES_MAX) -> None:
        """Begin without samples."""
        self._backlogs = backlogs
        self._series_max = series_max
        self._series: dict[tuple[int, str], _Series] = {}
        self._by_group: dict[str, dict[int, _Series]] = {}
        self._times_ms: deque[int] = deque(maxlen=SAMPLES_MAX)
        self._taken = 0
        """The number of samples since the beginning; sample `n` is in place `n % SAMPLES_MAX`."""
        self._refused_at = -SAMPLES_MAX
        """The number of the last sample in which a series was left out."""

    @property
    def series_count(self) -> int:
        """The number of recorded pairs of topic and group."""
        return len(self._series)

    @property
    def is_partial(self) -> bool:
        """Whether a series was left out within the last hour, because there were too many."""
        return self._taken - self._refused_at <= SAMPLES_MAX

    async def sample(self) -> None:
        """Take a sample, unless the present interval has one."""
        clock = self._backlogs.clock
        now_ms = clock.now_ms() // INTERVAL_MS * INTERVAL_MS
        if self._times_ms and self._times_ms[-1] >= now_ms:
            return
        async for _ in in_slices(self._backlogs.refresh(), clock):
            pass
        self.record(now_ms, self._backlogs.all())

    def record(self, at_ms: int, backlogs: Sequence[GroupBacklog]) -> None:
        """Add a sample with these backlogs. Series that had no lag for an hour are dropped."""
        place = self._taken % SAMPLES_MAX
        for series in self._series.values():
            series.lags[place], series.left_s[place] = 0, UNKNOWN
        for one in backlogs:
            if one.unfinished:
                self._put(one, place)
        self._times_ms.append(at_ms)
        self._taken += 1
        for key, series in list(self._series.items()):
            if self._taken - series.lagged_at > SAMPLES_MAX:
                self._drop(key)

    def of_group(self, group: str, topic_ids: Iterable[int], from_ms: int = 0) -> RecordedLag:
        """The samples at `from_ms` or later, in ms, each with the sum of the lags of a group in these topics."""
        lags, left_s = np.zeros(SAMPLES_MAX, np.int64), np.full(SAMPLES_MAX, LEFT_S_MAX, np.int32)
        found = self._by_group.get(group, {})
        for topic_id in found.keys() & set(topic_ids):
            series = found[topic_id]
            lags += np.frombuffer(series.lags, np.int64)
            known = np.frombuffer(series.left_s, np.int32)
            np.minimum(left_s, known, out=left_s, where=known != UNKNOWN)
        times = [at_ms for at_ms in self._times_ms if at_ms >= from_ms]
        places = np.arange(self._taken - len(times), self._taken) % SAMPLES_MAX
        return RecordedLag(times, lags[places].tolist(), list(map(_milliseconds, left_s[places].tolist())))

    def _put(self, backlog: GroupBacklog, place: int) -> None:
        key = (backlog.topic_id, backlog.group)
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= self._series_max:
                self._refused_at = self._taken
                return
            series = self._series[key] = _Series()
            self._by_group.setdefault(backlog.group, {})[backlog.topic_id] = series
        series.lags[place] = min(backlog.unfinished, LAG_MAX)
        series.left_s[place] = _left_s(backlog)
        series.lagged_at = self._taken

    def _drop(self, key: tuple[int, str]) -> None:
        topic_id, group = key
        del self._series[key], self._by_group[group][topic_id]
        if not self._by_group[group]:
            del self._by_group[group]


def retention_left_ms(backlog: GroupBacklog) -> int | None:
    """The time until retention reaches the oldest unfinished message, from the share that it has used."""
    if not backlog.oldest_at_ms or backlog.retention_used <= 0:
        return None
    age_ms = max(0, backlog.measured_at_ms - backlog.oldest_at_ms)
    return max(0, round(age_ms / backlog.retention_used) - age_ms)


def _left_s(backlog: GroupBacklog) -> int:
    left_ms = retention_left_ms(backlog)
    return UNKNOWN if left_ms is None else min(left_ms // 1000, LEFT_S_MAX)


def _milliseconds(left_s: int) -> int:
    return UNKNOWN if left_s == LEFT_S_MAX else left_s * 1000
