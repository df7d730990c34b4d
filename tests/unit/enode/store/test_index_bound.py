"""The memory of the index of queues by segment: counted, logged before it is used up, and limited."""

from dataclasses import replace

import pytest
import structlog

from ortoo.common.errors import Overloaded
from ortoo.enode.index.catalog import RUN_BYTES
from tests.contract.one_store import QUEUES, SETTINGS, TOPIC, OneStore

SEGMENTS = 4
"""Each of them has messages of every queue."""


async def fill(one: OneStore, segments: int) -> None:
    """Grow the log by a number of segments."""
    begun = len(one.store.engine.catalog.segments)
    while len(one.store.engine.catalog.segments) < begun + segments:
        for queue_id in range(QUEUES):
            await one.append(bytes(1_000), queue_id)
    await one.clock.pass_time(2)


def counted(one: OneStore) -> int:
    """The pairs of queues and sealed segments, counted one by one."""
    return sum(len(queue.runs) for queue in one.store.engine.catalog.queues.values())


async def test_the_index_is_counted_as_it_grows_and_shrinks() -> None:
    """The count is right after seals, retention, deleted topics and a restart."""
    one = OneStore(settings=replace(SETTINGS, retention_bytes=40_000, checkpoint_records=10))
    await one.open()
    for _ in range(3):
        await fill(one, SEGMENTS)
        await one.store.engine.housekeeping.apply_retention()
        assert one.store.engine.catalog.run_count == counted(one) > 0
    await one.restart()
    assert one.store.engine.catalog.run_count == counted(one) > 0
    await one.store.delete_topics([TOPIC])
    assert one.store.engine.catalog.run_count == counted(one)
    await one.store.close()


async def test_a_full_index_refuses_and_is_told_before() -> None:
    """A nearly full index is logged once. A full one refuses only new pairs, and names the remedy."""
    most_bytes = RUN_BYTES * (QUEUES * SEGMENTS + 1)
    one = OneStore(settings=replace(SETTINGS, index_bytes_max=most_bytes))
    await one.open()
    with structlog.testing.capture_logs() as said:
        await fill(one, SEGMENTS - 1)
        await one.clock.pass_time(5)
    assert [line["max_bytes"] for line in said if line["event"] == "index_nearly_full"] == [most_bytes]
    with pytest.raises(Overloaded, match=f"The limit is {most_bytes} .store.index_bytes_max."):
        await fill(one, SEGMENTS)
    assert one.store.engine.catalog.index_bytes <= most_bytes
    known = next(key for key, queue in one.store.engine.catalog.queues.items() if queue.rows)
    await one.append(b"x", known[1])
    await one.store.close()
