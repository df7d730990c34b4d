"""The cost of encoding, opening, checking, filtering and gathering record batches on this machine.

`python -m bench.record_batch [--json]` prints microseconds per batch and per message for each step. It takes the best
of several rounds, because other load on the machine only adds.
"""

import argparse
import timeit
from collections.abc import Callable

import numpy as np

from bench import report
from ortoo.common.arrays.batch_check import check
from ortoo.common.arrays.gather import gather
from ortoo.common.arrays.opened_batch import OpenedBatch
from ortoo.common.filters.message_filter import TagFilter
from ortoo.common.records.batch import Codec, Message, encode, open_batch

NOW_MS = 1_700_000_000_000
ROUNDS = 7


def steps(messages: int, body_bytes: int) -> dict[str, Callable[[], object]]:
    """Every measured step by name; messages have one of ten tags and a key of their own."""
    bodies = [row.to_bytes(4, "little") * (body_bytes // 4) for row in range(messages)]
    tags = [f"tag-{row % 10}" for row in range(messages)]
    keys = [f"key-{row}" for row in range(messages)]
    simple = [Message(body, tag, (key,)) for body, tag, key in zip(bodies, tags, keys, strict=True)]
    rich = [
        message.replace(body=message.body[: body_bytes // 2], properties={"a": "b", "row": str(row)})
        for row, message in enumerate(simple)
    ]
    sealed, rich_sealed = encode(simple, now_ms=NOW_MS), encode(rich, now_ms=NOW_MS)
    compressed = encode(simple, now_ms=NOW_MS, codec=Codec.ZSTD)
    opened = check(sealed)
    tenth = TagFilter(frozenset({"tag-3"}))
    rows = np.arange(0, messages, 10, dtype="<i4")
    return {
        "make messages": lambda: [Message(b, t, (k,)) for b, t, k in zip(bodies, tags, keys, strict=True)],
        "encode messages": lambda: encode(simple, now_ms=NOW_MS),
        "encode messages with properties, half bodies": lambda: encode(rich, now_ms=NOW_MS),
        "encode messages, zstd": lambda: encode(simple, now_ms=NOW_MS, codec=Codec.ZSTD),
        "encode bodies": lambda: encode(bodies, now_ms=NOW_MS),
        "open": lambda: open_batch(sealed),
        "open, bodies": lambda: open_batch(sealed).bodies(),
        "open, messages": lambda: open_batch(sealed).messages(),
        "check": lambda: check(sealed, verify_crc=False),
        "check with CRC": lambda: check(sealed),
        "check with CRC, zstd": lambda: check(compressed),
        "check properties, half bodies": lambda: check(rich_sealed, verify_crc=False),
        "filter by tag": lambda: tenth.select(OpenedBatch(sealed)),
        "gather a tenth": lambda: gather(opened, rows),
    }


def measured(messages: int, body_bytes: int) -> dict[str, dict[str, float]]:
    """Step -> microseconds a batch and a message."""
    result = {}
    for name, step in steps(messages, body_bytes).items():
        once_s = timeit.timeit(step, number=1)
        number = max(1, int(0.02 / max(once_s, 1e-6)))
        batch_us = min(timeit.repeat(step, number=number, repeat=ROUNDS)) / number * 1e6
        result[name] = {"us_per_batch": round(batch_us, 1), "us_per_message": round(batch_us / messages, 4)}
    return result


async def measure(arguments: argparse.Namespace) -> report.Figures:
    """Measure every step; nothing here awaits."""
    return {
        "messages": arguments.messages,
        "body_bytes": arguments.body_bytes,
        "steps": measured(arguments.messages, arguments.body_bytes),
    }


if __name__ == "__main__":
    report.main("record_batch", "best of several rounds in one process", measure, messages=3_400, body_bytes=256)
