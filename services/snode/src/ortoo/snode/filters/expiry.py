"""Which messages of a batch no group gets any more, because their time is over."""

import numpy as np

from ortoo.common.arrays.opened_batch import Int32s, OpenedBatch
from ortoo.common.records.columns import NUMBERS
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.wire import read_fields

_EXPIRY = NUMBERS["expire_at_ms"]


def may_expire(batch: SealedBatch) -> bool:
    """Whether a message of the batch has a time at which it expires; looks at the head of the batch alone."""
    return _EXPIRY in read_fields(memoryview(batch.records), "batch.records")


def unexpired(opened: OpenedBatch, now_ms: int) -> Int32s | None:
    """The rows that groups still get, in order; None when that is all of them."""
    times = opened.expire_at_ms
    if times is None:
        return None
    alive = (times == 0) | (times > now_ms)
    return None if alive.all() else np.flatnonzero(alive).astype("<i4")
