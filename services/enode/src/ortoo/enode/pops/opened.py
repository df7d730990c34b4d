"""Stored batches, opened: the few that pops work on stay in memory."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ortoo.common.arrays.gather import gathered
from ortoo.common.arrays.opened_batch import OpenedBatch as ArrayBatch
from ortoo.common.errors import OutOfRange
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.view import RecordBatchView, open_batch
from ortoo.enode.store.store import Store, StoredBatch

BYTES_MAX = 32 << 20
FACTOR = 4
"""About how much larger a batch is when its columns are lists."""


class OpenedBatch:
    """A stored batch; its columns are read when they are asked for, once."""

    def __init__(self, stored: StoredBatch) -> None:
        """Look at the head of `stored`. Errors: Invalid, Unsupported."""
        self.stored = stored
        self._arrays = ArrayBatch(stored.batch)

    @property
    def first_offset(self) -> int:
        """The offset of its first message."""
        return self.stored.first_offset

    @property
    def end_offset(self) -> int:
        """The offset behind its last message."""
        return self.stored.first_offset + self.stored.batch.count

    @cached_property
    def view(self) -> RecordBatchView:
        """Its messages, one by one."""
        return open_batch(self.stored.batch)

    def sealed(self, offsets: Sequence[int]) -> SealedBatch:
        """A batch of some of its messages, rising; the stored bytes if it is all of them."""
        if len(offsets) == self.stored.batch.count:
            return self.stored.batch
        return gathered(self._arrays, (np.array(offsets, "<i8") - self.first_offset).astype("<i4"))


class OpenedBatches:
    """Opens batches by offset and keeps the last used ones, about 32 MiB."""

    def __init__(self, store: Store) -> None:
        """Read from `store`."""
        self._store = store
        self._by_place: OrderedDict[tuple[int, int, int], OpenedBatch] = OrderedDict()
        self._by_queue: dict[tuple[int, int], list[int]] = {}
        self._bytes = 0

    async def holding(self, topic_id: int, queue_id: int, offset: int) -> OpenedBatch:
        """The batch that holds `offset`. Errors: as `Store.fetch`."""
        queue = (topic_id, queue_id)
        for first in reversed(self._by_queue.get(queue, ())):
            found = self._by_place[*queue, first]
            if first <= offset < found.end_offset:
                self._by_place.move_to_end((*queue, first))
                return found
        fetched = await self._store.fetch(topic_id, queue_id, offset, bytes_max=1)
        if not fetched.batches:
            raise OutOfRange(
                f"offset {offset} is not stored yet; the queue ends there",
                begin_offset=offset,
                end_offset=fetched.end_offset,
                field="offset",
            )
        stored = fetched.batches[0]
        opened = OpenedBatch(stored)
        self._keep((*queue, stored.first_offset), opened)
        return opened

    def forget_topic(self, topic_id: int) -> None:
        """A topic is gone."""
        for place in [place for place in self._by_place if place[0] == topic_id]:
            self._drop(place)

    def _keep(self, place: tuple[int, int, int], opened: OpenedBatch) -> None:
        if place in self._by_place:
            return
        self._by_place[place] = opened
        self._by_queue.setdefault(place[:2], []).append(place[2])
        self._bytes += FACTOR * len(opened.stored.batch.records)
        while self._bytes > BYTES_MAX and len(self._by_place) > 1:
            self._drop(next(iter(self._by_place)))

    def _drop(self, place: tuple[int, int, int]) -> None:
        opened = self._by_place.pop(place)
        self._bytes -= FACTOR * len(opened.stored.batch.records)
        firsts = self._by_queue[place[:2]]
        firsts.remove(place[2])
        if not firsts:
            del self._by_queue[place[:2]]
