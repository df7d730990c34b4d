"""The ring of recorded lags: its times, its limits, and the memory that it needs."""

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from ortoo.common.grpc.messages import write
from ortoo.enode.observe.backlog import GroupBacklog
from ortoo.enode.observe.lag_history import (
    INTERVAL_MS,
    SAMPLES_MAX,
    SERIES_MAX,
    LagHistory,
    RecordedLag,
    retention_left_ms,
)
from ortoo.v1 import lag_pb2

START_MS = 1_700_000_000_000
SERIES_BYTES_MAX = 6 << 10


class Sampled:
    """Backlogs and a clock that a test sets."""

    def __init__(self) -> None:
        self.clock = self
        self.time_ms = START_MS
        self.found: list[GroupBacklog] = []

    def now_ms(self) -> int:
        return self.time_ms

    async def sleep(self, _: float) -> None: ...

    def refresh(self) -> Iterator[None]:
        yield None

    def all(self) -> list[GroupBacklog]:
        return self.found


def backlog(group: str, waiting: int, *, topic_id: int = 1, retrying: int = 0, **more: Any) -> GroupBacklog:
    """The backlog of a group."""
    return GroupBacklog(topic_id, f"topic-{topic_id}", group, waiting=waiting, retrying=retrying, **more)


@pytest.fixture
def sampled() -> Any:
    return Sampled()


async def test_one_sample_for_each_interval_at_a_multiple_of_it(sampled: Any) -> None:
    """Samples of several enodes have the same times, however often each of them checks."""
    history = LagHistory(sampled)
    for ahead_ms, waiting in ((3_000, 5), (5_000, 6), (9_999, 7), (10_001, 8), (35_000, 9)):
        sampled.time_ms = START_MS + ahead_ms
        sampled.found = [backlog("g", waiting, retrying=1)]
        await history.sample()
    found = history.of_group("g", [1])
    assert found.sampled_at_ms == [START_MS, START_MS + 10_000, START_MS + 30_000]
    assert found.lag_messages == [6, 9, 10]
    later = history.of_group("g", [1], START_MS + 1)
    assert (later.sampled_at_ms, later.lag_messages) == ([START_MS + 10_000, START_MS + 30_000], [9, 10])


def test_the_lags_of_the_named_topics_are_added(sampled: Any) -> None:
    """With the shortest time until retention. Other topics and other groups are left out."""
    history = LagHistory(sampled)
    old = {"oldest_at_ms": START_MS - 1_800_000, "measured_at_ms": START_MS}
    lags = [
        backlog("g", 1),
        backlog("g", 2, topic_id=2, retention_used=0.5, **old),
        backlog("g", 4, topic_id=3, retention_used=0.25, **old),
        backlog("g", 8, topic_id=4, retention_used=0.9, **old),
        backlog("h", 16),
    ]
    history.record(START_MS, lags)
    assert history.of_group("g", [1, 2, 3, 3, 9]) == RecordedLag([START_MS], [7], [1_800_000])
    assert history.of_group("g", [1]) == RecordedLag([START_MS], [1], [-1])
    assert history.of_group("other", [1]) == RecordedLag([START_MS], [0], [-1])


def test_the_answer_is_small_for_a_group_that_lags_in_all_series(sampled: Any) -> None:
    """As a group of lite topics does."""
    history = LagHistory(sampled)
    topic_ids = range(1, SERIES_MAX + 1)
    lags = [backlog("g", 1_000, topic_id=one) for one in topic_ids]
    for number in range(SAMPLES_MAX):
        history.record(START_MS + number * INTERVAL_MS, lags)
    found = history.of_group("g", topic_ids)
    assert found.lag_messages == [1_000 * SERIES_MAX] * SAMPLES_MAX
    assert write(lag_pb2.ListLagSamplesResponse, found).ByteSize() < 16 << 10


def test_the_ring_keeps_an_hour_and_forgets_groups_without_lag(sampled: Any) -> None:
    """A group has zeros before its first lag. It is dropped when its last lag is an hour old."""
    history = LagHistory(sampled)
    for number in range(2 * SAMPLES_MAX):
        lags = [backlog("once", 3)] if number == SAMPLES_MAX // 2 else []
        history.record(START_MS + number * INTERVAL_MS, [*lags, backlog("always", number + 1)])
        if number == SAMPLES_MAX // 2:
            assert history.of_group("once", [1]).lag_messages == [0] * number + [3]
    found = history.of_group("always", [1])
    assert len(found.sampled_at_ms) == SAMPLES_MAX
    assert found.lag_messages == list(range(SAMPLES_MAX + 1, 2 * SAMPLES_MAX + 1))
    assert not any(history.of_group("once", [1]).lag_messages)
    assert history.series_count == 1


def test_the_time_until_retention_is_recorded(sampled: Any) -> None:
    """A message of 30 minutes that has used half of its retention has 30 minutes left."""
    history = LagHistory(sampled)
    old = backlog("g", 1, oldest_at_ms=START_MS - 1_800_000, retention_used=0.5, measured_at_ms=START_MS)
    assert retention_left_ms(old) == 1_800_000
    assert retention_left_ms(backlog("g", 1)) is None
    history.record(START_MS, [old])
    history.record(START_MS + INTERVAL_MS, [])
    assert history.of_group("g", [1]).retention_left_ms == [1_800_000, -1]


def test_too_many_series_are_reported_and_memory_is_bounded(sampled: Any) -> None:
    """The oldest series stay, the others are left out, and an hour after that the history is complete again."""
    history = LagHistory(sampled, series_max=100)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(SAMPLES_MAX):
        history.record(START_MS + number * INTERVAL_MS, [backlog(f"g{one}", 1) for one in range(101)])
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert history.series_count == 100
    assert history.is_partial
    assert used / 100 < SERIES_BYTES_MAX
    assert SERIES_MAX * SERIES_BYTES_MAX <= 12 << 20
    for number in range(SAMPLES_MAX, 2 * SAMPLES_MAX):
        history.record(START_MS + number * INTERVAL_MS, [])
    assert not history.is_partial
    assert history.series_count == 0
