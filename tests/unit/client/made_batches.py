"""Batches as a client receives them, made without a server."""

import struct
from collections.abc import Sequence

from ortoo.client import Queue, ReceivedBatch
from ortoo.client.core.received import BatchOwner, OnFinished
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message

QUEUE = Queue("t", "enode-0", 0)


def made_batch(
    first_offset: int,
    count: int,
    *,
    rows: Sequence[int] | None = None,
    gathered: bool = False,
    queue: Queue = QUEUE,
    next_offset: int | None = None,
    body_bytes: int = 0,
    finished: OnFinished | None = None,
) -> ReceivedBatch:
    """A stored batch of `count` messages, body = offset; `rows` are the selected ones, without others if `gathered`."""
    kept = range(count) if rows is None or not gathered else rows
    bodies = [b"%d" % (first_offset + row) + b"." * body_bytes for row in kept]
    sealed = encode([Message(body) for body in bodies], now_ms=1)
    return ReceivedBatch(
        queue,
        sealed,
        topic_id=7,
        first_offset=first_offset,
        next_offset=first_offset + count if next_offset is None else next_offset,
        stored_at_ms=5,
        rows=b"" if rows is None else struct.pack(f"<{len(rows)}i", *rows),
        owner=BatchOwner(on_finished=finished),
    )
