"""Reads with pushdown: the enode drops the rows and columns that the reader does not need."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ortoo.common.errors import OrtooError
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.filters.pushdown import BatchSelector, Pushdown, SelectedPart
from ortoo.common.grpc.messages import read
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.enode.log.results import FetchResult
from ortoo.enode.reading.reader import BATCHES_MAX
from ortoo.v1 import enode_pb2

PART_BYTES = 4 << 20
"""The bytes of the log that are in memory at once."""
SCANNED_BYTES_MAX = 32 << 20
"""The bytes that one request scans at most; then it answers, even with no match."""


Fetch = Callable[..., Awaitable[FetchResult]]
"""Reads batches: `Store.fetch`, or at a follower a read of committed batches."""


@dataclass(frozen=True, slots=True)
class PushdownResult:
    """The matching rows of a range of a queue."""

    batches: Sequence[SelectedPart]
    next_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class PushdownRead:
    """The conditions and columns that one request pushes down, and their execution."""

    pushdown: Pushdown
    filter: MessageFilter | None

    @classmethod
    def from_request(cls, request: enode_pb2.FetchBatchesRequest) -> "PushdownRead | None":
        """The pushdown of a request; None if it has none. Errors: Invalid."""
        if not request.HasField("pushdown"):
            return None
        field = request.pushdown
        pushdown = read(Pushdown, field, columns=frozenset(field.columns))
        return cls(pushdown, pushdown.compile())

    async def run(
        self, fetch: Fetch, work: DiskWork, request: enode_pb2.FetchBatchesRequest, bytes_max: int, wait_ms: int = 0
    ) -> PushdownResult:
        """Scan from the request's offset until enough is found, the scan limit is reached, or the queue ends.

        `bytes_max` bytes or 512 parts are enough.

        At the end of the queue, wait up to `wait_ms` milliseconds. An error behind the first part ends the scan; the
        next read meets the error again.
        Errors: those of `Store.fetch`; Unsupported.
        """
        begin, end_offset = request.from_offset, 0
        choice = BatchSelector(self.pushdown, self.filter, begin)
        is_done = False
        while not (
            is_done
            or choice.size_bytes >= bytes_max
            or choice.scanned_bytes >= SCANNED_BYTES_MAX
            or choice.part_count >= BATCHES_MAX
        ):
            at = choice.next_offset
            place = request.topic_id, request.queue_id, at
            try:
                fetched = await fetch(*place, bytes_max=PART_BYTES, wait_ms=wait_ms, on_batch=choice.add_batch)
            except OrtooError:
                if choice.next_offset == begin:
                    raise
                end_offset = choice.next_offset
                break
            wait_ms, end_offset = 0, fetched.end_offset
            is_done = choice.next_offset in (at, self.pushdown.to_offset, end_offset)
        return PushdownResult(await work.run(choice.finish), choice.next_offset, end_offset)
