"""G3: within a queue offsets are dense, never reused, and never change their bytes."""

import asyncio
from dataclasses import replace

from tests.contract.one_store import QUEUES, SETTINGS, TOPIC, OneStore


async def test_offsets_are_dense_in_the_order_of_the_calls() -> None:
    """Many concurrent appends to several queues: each queue counts its messages without a gap, in order (G3)."""
    one = OneStore()
    await one.open()
    answers = await asyncio.gather(*(one.append(b"%03d" % n, n % QUEUES, 1 + n % 4) for n in range(150)))
    for queue_id in range(QUEUES):
        numbers = range(queue_id, 150, QUEUES)
        ends = [answers[n].first_offset + 1 + n % 4 for n in numbers]
        assert [answers[n].first_offset for n in numbers] == [0, *ends[:-1]]
        assert await one.texts(queue_id) == [(answers[n].first_offset, b"%03d" % n) for n in numbers]
    await one.store.close()


async def test_an_offset_keeps_its_bytes_over_restarts_crashes_and_retention() -> None:
    """G3: an offset always has the same bytes until retention deletes them, and is never reused."""
    one = OneStore(settings=replace(SETTINGS, retention_bytes=40_000, retention_interval_ms=1000))
    await one.open()
    known: dict[int, bytes] = {}
    end = 0
    for number in range(120):
        text = b"%d " % number * 200
        answer = await one.append(text, 0, 2)
        assert answer.first_offset == end
        known[answer.first_offset], end = text, end + 2
        if number % 20 == 19:
            await one.clock.pass_time(3)
            await (one.crash(number) if number % 40 == 19 else one.restart())
            found = await one.texts()
            assert found == [(offset, known[offset]) for offset, _ in found]
            assert found[-1][0] == end - 2
    assert one.store.describe_queues(TOPIC)[0].begin_offset > 0
    await one.store.close()
