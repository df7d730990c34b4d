"""Reading delayed messages by their places in the log."""

from collections.abc import AsyncIterator, Sequence

import numpy as np

from ortoo.common.arrays.opened_batch import Int32s, OpenedBatch
from ortoo.common.errors import DataLoss, OutOfRange
from ortoo.common.groups.system_topics import DELAYED_TOPIC_ID
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.enode import log_events
from ortoo.enode.store.store import Store

READ_BYTES = 256 << 10
MESSAGES_PER_PAUSE = 64
"""The number of messages that are read between two pauses."""
_log = get_logger("deferred")


async def read_delayed(
    store: Store, places: Sequence[int], *, clock: Clock, pause_s: float = 0.0
) -> AsyncIterator[tuple[int, int, OpenedBatch | None, Int32s]]:
    """Read the messages at `places`, which ascend; yields (from, to, batch, rows).

    `from` and `to` (exclusive) are indexes into `places`. Their messages are the `rows` of the batch, which is None for
    a damaged message. The read pauses every few messages, so that it does not block the event loop.

    Errors: Unavailable when the disk cannot be read now.
    """
    at, paused_at, place_array = 0, 0, np.array(places, "<i8")
    while at < len(places):
        try:
            stored = await store.read_deferred(DELAYED_TOPIC_ID, places[at], bytes_max=READ_BYTES)
        except (DataLoss, OutOfRange) as error:
            _log.emit(log_events.WAITING_MESSAGE_UNREADABLE, place=places[at], reason=str(error))
            yield at, at + 1, None, np.zeros(0, "<i4")
            at += 1
            continue
        for one in stored:
            end = int(np.searchsorted(place_array, one.first_offset + one.batch.count))
            if end > at:
                yield at, end, OpenedBatch(one.batch), (place_array[at:end] - one.first_offset).astype("<i4")
                at = end
                is_pause_due = at - paused_at >= MESSAGES_PER_PAUSE
                paused_at = at if is_pause_due else paused_at
                await clock.sleep(
                    pause_s if is_pause_due else 0.0
                )  # a cached batch is read without an await: yield to others
