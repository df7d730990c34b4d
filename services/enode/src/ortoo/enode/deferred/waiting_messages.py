"""Reading messages that wait, by their places in the queue of a system topic."""

from collections.abc import AsyncIterator, Sequence

import numpy as np

from ortoo.common.clock import Clock
from ortoo.common.errors import DataLoss, OutOfRange
from ortoo.common.logs import get_logger
from ortoo.common.message import Message
from ortoo.common.record_view import open_batch
from ortoo.enode.store import Store

READ_BYTES = 256 << 10
_log = get_logger("deferred")


async def read_waiting(
    store: Store, system_topic_id: int, places: Sequence[int], *, clock: Clock, pause_s: float = 0.0
) -> AsyncIterator[tuple[int, int, list[Message] | None]]:
    """The messages at `places`, which rise: parts (from, to, messages), or None for one whose bytes are damaged.

    Between two batches it pauses, so that a long read holds up nobody.

    Errors: Unavailable when the disk cannot be read now.
    """
    at = 0
    while at < len(places):
        try:
            stored = await store.read_deferred(system_topic_id, places[at], bytes_max=READ_BYTES)
        except (DataLoss, OutOfRange) as error:
            _log.error("a message that waits cannot be read", place=places[at], reason=str(error))
            yield at, at + 1, None
            at += 1
            continue
        for one in stored:
            end = int(np.searchsorted(places, one.first_offset + one.batch.count))
            if end > at:
                rows = [place - one.first_offset for place in places[at:end]]
                yield at, end, open_batch(one.batch).messages(rows)
                at = end
                await clock.sleep(pause_s)  # a batch in memory comes without a wait: let others have a turn
