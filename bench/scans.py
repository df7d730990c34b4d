"""Filtered reads of one store: rows examined a second and processor time a row, beside reading whole batches.

`--streams 2` reads two queues at once; `--cold 1` drops the segments from the page cache before each round.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median

from bench.report import Figures, main, ratio
from bench.stores import TOPIC_ID, append_all, open_store
from ortoo.client import Message
from ortoo.common.filters.projection import columns_of
from ortoo.common.machine.allocator import retain_freed_buffers
from ortoo.common.records.batch import encode, split_messages
from ortoo.enode.rpc.streams.pushdown import PART_BYTES, PushdownRead
from ortoo.enode.store.store import Store
from ortoo.v1 import enode_pb2

METHOD = (
    "a store in this process holds rows of which one in a hundred has a tag. All queues, some at a time, are read "
    "whole, by tag, and by column, in turns. Medians of the rounds"
)
ANSWER_BYTES = 4 << 20
Read = Callable[[int, int], Awaitable[int]]
"""Reads a queue from an offset; returns the next offset to read."""


async def measure(options: argparse.Namespace) -> Figures:
    """Rows a second and processor microseconds a row of each way to read."""
    retain_freed_buffers()
    body = os.urandom(options.body_bytes)
    messages = [
        Message(body, "tag" if n % 100 else "rare", (f"key-{n}",), properties={"n": str(n)}) for n in range(20_000)
    ]
    made = [encode(part, now_ms=1) for part in split_messages(messages)]
    speed: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="ortoo-bench-") as folder:
        async with open_store(Path(folder), recent_bytes=0) as store:
            batches = options.rows * len(made) // len(messages)
            await append_all(store, lambda number: made[number % len(made)], range(batches))
            rows = sum(each.end_offset for each in store.describe_queues(TOPIC_ID))
            for _ in range(options.rounds):
                for name, read in _ways(store).items():
                    if options.cold:
                        _forget(Path(folder))
                    began_s, began_cpu_s = time.perf_counter(), time.process_time()
                    await _read_all(store, read, options.streams)
                    speed.setdefault(name, []).append(rows / (time.perf_counter() - began_s))
                    cpu.setdefault(name, []).append((time.process_time() - began_cpu_s) / rows * 1e6)
    rates = {name: median(each) for name, each in speed.items()}
    return {
        "rows": rows,
        "streams": options.streams,
        "cold": bool(options.cold),
        "rows_per_s": {name: round(rate) for name, rate in rates.items()},
        "cpu_us_per_row": {name: round(median(each), 4) for name, each in cpu.items()},
        "ratios": {f"{name} to whole": ratio(rates[name], rates["whole"]) for name in rates if name != "whole"},
    }


def _ways(store: Store) -> dict[str, Read]:
    async def whole(queue_id: int, offset: int) -> int:
        return (await store.fetch(TOPIC_ID, queue_id, offset, bytes_max=PART_BYTES)).next_offset

    async def pushed_down(tag: str, queue_id: int, offset: int) -> int:
        wishes = enode_pb2.Pushdown(tag_expression=tag, columns=columns_of(["body"]), coalesce=True)
        request = enode_pb2.FetchBatchesRequest(
            topic_id=TOPIC_ID, queue_id=queue_id, from_offset=offset, pushdown=wishes
        )
        asked = PushdownRead.from_request(request)
        assert asked is not None
        return (await asked.run(store.fetch, store.engine.work, request, ANSWER_BYTES)).next_offset

    return {"whole": whole, "by tag": partial(pushed_down, "rare"), "one column": partial(pushed_down, "")}


async def _read_all(store: Store, read: Read, streams: int) -> None:
    """Read every queue from its first row to its last, `streams` at a time."""
    queues = iter(store.describe_queues(TOPIC_ID))

    async def stream() -> None:
        for queue in queues:
            offset = queue.begin_offset
            while offset < queue.end_offset:
                offset = await read(queue.queue_id, offset)

    await asyncio.gather(*(stream() for _ in range(streams)))


def _forget(folder: Path) -> None:
    """Drop the segments from the page cache."""
    for segment in folder.glob("*.seg"):
        descriptor = os.open(segment, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


if __name__ == "__main__":
    main("scans", METHOD, measure, rows=2_000_000, body_bytes=200, streams=2, cold=0, rounds=5)
