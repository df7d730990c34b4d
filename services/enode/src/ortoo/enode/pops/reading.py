"""Reading the messages of a lease; unreadable messages are recorded as lost to the group."""

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from functools import cached_property

import numpy as np

from ortoo.common.arrays.gather import gather
from ortoo.common.arrays.opened_batch import OpenedBatch as ArrayBatch
from ortoo.common.errors import DataLoss, OutOfRange
from ortoo.common.groups.pop import PoppedBatch
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.common.records.columns import EXPIRE_AT
from ortoo.common.records.sealed_batch import SealedBatch, StoredBatch
from ortoo.common.records.view import RecordBatchView, open_batch
from ortoo.enode import log_events
from ortoo.enode.changes.pops import Delivered, finished_changes
from ortoo.enode.pops.lines import GroupLine
from ortoo.enode.state.tables.pops import FinishReason
from ortoo.enode.store.store import Store

CACHE_BYTES = 32 << 20
DECODED_SIZE_FACTOR = 4
"""About how much larger a batch is when its columns are lists."""
TOGETHER_BYTES = 64 << 10
"""The bytes of batches that are read together, because each read of the disk is passed to a thread."""
_EXPIRE_AT_KEYS = (b"\x9a\x01", b"\x9a\x81")
"""The bytes with which protobuf writes the key of the column EXPIRE_AT. With more bytes than necessary, the second one
has its high bit set."""
_log = get_logger("pops")


class CachedBatch:
    """A stored batch; its columns are read once, at their first use. Errors of that use: Invalid, Unsupported."""

    def __init__(self, stored: StoredBatch) -> None:
        self.stored = stored

    @property
    def first_offset(self) -> int:
        """The offset of the batch's first message."""
        return self.stored.first_offset

    @property
    def end_offset(self) -> int:
        """The offset behind the batch's last message."""
        return self.stored.next_offset

    @cached_property
    def view(self) -> RecordBatchView:
        """Access to the single messages of the batch."""
        return open_batch(self.stored.batch)

    @cached_property
    def _arrays(self) -> ArrayBatch:
        return ArrayBatch(self.stored.batch)

    @cached_property
    def may_expire(self) -> bool:
        """Whether messages may have a time at which they expire. Most batches are not parsed to find that out."""
        records = self.stored.batch.records
        return any(key in records for key in _EXPIRE_AT_KEYS) and self.view.has(EXPIRE_AT)

    def select(self, offsets: Sequence[int]) -> SealedBatch:
        """A batch of the messages at `offsets` (ascending); for all messages, the stored bytes unchanged."""
        if len(offsets) == self.stored.batch.count:
            return self.stored.batch
        return gather(self._arrays, (np.array(offsets, "<i8") - self.first_offset).astype("<i4"))


class BatchCache:
    """Opens batches by offset; a least-recently-used cache of about 32 MiB."""

    def __init__(self, store: Store) -> None:
        """Read from `store`."""
        self._store = store
        self._by_place: OrderedDict[tuple[int, int, int], CachedBatch] = OrderedDict()
        self._by_queue: dict[tuple[int, int], list[int]] = {}
        """(topic id, queue id) to ascending first offsets; thousands for a queue of one-message batches."""
        self._bytes = 0

    async def get(self, topic_id: int, queue_id: int, offset: int, end: int = 0) -> CachedBatch:
        """The batch that holds `offset`; the caller reads up to the offset `end`. Errors: those of `Store.fetch`."""
        queue = (topic_id, queue_id)
        firsts = self._by_queue.get(queue, ())
        if before := bisect_right(firsts, offset):
            place = (*queue, firsts[before - 1])
            found = self._by_place[place]
            if offset < found.end_offset:
                self._by_place.move_to_end(place)
                return found
        fetched = await self._store.fetch(topic_id, queue_id, offset, bytes_max=TOGETHER_BYTES, before=end)
        if not fetched.batches:
            raise OutOfRange(
                f"offset {offset} is not stored yet; the queue ends before it",
                begin_offset=offset,
                end_offset=fetched.end_offset,
                field="offset",
            )
        opened = [CachedBatch(stored) for stored in fetched.batches]
        for one in reversed(opened):  # the first is used first, so it is dropped last
            self._put((*queue, one.first_offset), one)
        return opened[0]

    def _put(self, place: tuple[int, int, int], opened: CachedBatch) -> None:
        if place in self._by_place:
            return
        self._by_place[place] = opened
        insort(self._by_queue.setdefault(place[:2], []), place[2])
        self._bytes += DECODED_SIZE_FACTOR * len(opened.stored.batch.records)
        while self._bytes > CACHE_BYTES and len(self._by_place) > 1:
            self._drop(next(iter(self._by_place)))

    def _drop(self, place: tuple[int, int, int]) -> None:
        opened = self._by_place.pop(place)
        self._bytes -= DECODED_SIZE_FACTOR * len(opened.stored.batch.records)
        firsts = self._by_queue[place[:2]]
        del firsts[bisect_left(firsts, place[2])]
        if not firsts:
            del self._by_queue[place[:2]]


class PopReader:
    """Reads for pops, through a cache of opened batches."""

    def __init__(self, store: Store, opened: BatchCache, clock: Clock) -> None:
        """Read from `store` through `opened`; messages expire by `clock`."""
        self.lost_messages = 0
        self._clock = clock
        self._store = store
        self._batches = opened

    async def read(
        self,
        line: GroupLine,
        number: int,
        leased: Sequence[Delivered],
        bytes_left: int,
        expired: list[tuple[int, int]],
    ) -> list[PoppedBatch]:
        """Read the messages of rows (first offset, count, attempt) that `line` leased under `number`.

        Reads about `bytes_left` bytes at most, and at least one batch. Messages that are not read are released. Expired
        messages are left out and added to `expired` as (offset, attempt).
        """
        batches: list[PoppedBatch] = []
        at = sorted(leased)
        while at:
            first, count, attempt = at[0]
            if bytes_left <= 0 and batches:
                line.redeliver([row[:2] for row in at], number, line.group.now_ms(), 0, counts=False)
                break
            opened = await self.batch_at(line, first, first + count)
            if opened is None:
                at = [(one.first, one.end - one.first, attempt) for first, count, attempt in at
                      for one in line.intervals.unfinished(first, first + count)]  # fmt: skip
                continue
            offsets: list[int] = []
            attempts: list[int] = []
            while at and at[0][0] < opened.end_offset:
                first, count, attempt = at.pop(0)
                stop = min(first + count, opened.end_offset)
                offsets += range(first, stop)
                attempts += [attempt] * (stop - first)
                if stop < first + count:
                    at.insert(0, (stop, first + count - stop, attempt))
            if opened.may_expire:
                times = opened.view.values(EXPIRE_AT)
                offsets, attempts = self._unexpired(opened.first_offset, times, offsets, attempts, expired)
                if not offsets:
                    continue
            batch = opened.select(offsets)
            bytes_left -= len(batch.records)
            batches.append(
                PoppedBatch(line.queue_id, number, opened.stored.stored_at_ms, batch, tuple(offsets), tuple(attempts))
            )
        return batches

    def _unexpired(
        self,
        first_offset: int,
        times: Sequence[int | None],
        offsets: list[int],
        attempts: list[int],
        expired: list[tuple[int, int]],
    ) -> tuple[list[int], list[int]]:
        now_ms = self._clock.now_ms()
        kept: list[tuple[int, int]] = []
        for offset, attempt in zip(offsets, attempts, strict=True):
            time_ms = times[offset - first_offset]
            (kept if time_ms is None or time_ms > now_ms else expired).append((offset, attempt))
        return [offset for offset, _ in kept], [attempt for _, attempt in kept]

    async def batch_at(self, line: GroupLine, offset: int, end: int = 0) -> CachedBatch | None:
        """The opened batch that holds a message; None if the message is lost. The log then records the loss.

        The caller reads up to the offset `end`.
        """
        try:
            return await self._batches.get(line.group.topic_id, line.queue_id, offset, end)
        except (OutOfRange, DataLoss) as error:
            # Reading continues behind the hole, or where the queue begins; all lost messages are one change.
            resume = error.begin_offset if isinstance(error, OutOfRange) else error.end_offset
            end = max(offset + 1, resume)
            _log.emit(
                log_events.MESSAGES_LOST_TO_GROUP,
                group=line.group.name, queue_id=line.queue_id, offset=offset, reason=str(error),
            )  # fmt: skip
            self.lost_messages += end - offset
            line.drop([(offset, end - offset)])
            await self._store.engine.store_without_waiting(finished_changes(line.place, FinishReason.LOST, offset, end))
            return None

    async def peek(
        self, topic_id: int, queue_id: int, first: int, count: int, attempt: int
    ) -> AsyncIterator[PoppedBatch]:
        """Yield batches of stored messages, without a lease."""
        at, end = first, first + count
        while at < end:
            opened = await self._batches.get(topic_id, queue_id, at, end)
            offsets = tuple(range(at, min(end, opened.end_offset)))
            batch, attempts = opened.select(offsets), (attempt,) * len(offsets)
            yield PoppedBatch(queue_id, 0, opened.stored.stored_at_ms, batch, offsets, attempts)
            at = offsets[-1] + 1
