"""Reads with pushdown: the enode drops the rows and columns that the reader does not need."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ortoo.common.errors import OrtooError
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.filters.pushdown import Choice, ChosenPart, Pushdown
from ortoo.common.grpc.messages import read
from ortoo.enode.log.results import Fetched
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.v1 import enode_pb2

PART_BYTES = 4 << 20
"""The bytes of the log that are in memory at once."""
LOOKED_BYTES_MAX = 32 << 20
"""The bytes that one request scans at most; then it answers, even with no match."""


Fetch = Callable[..., Awaitable[Fetched]]
"""Reads batches: `Store.fetch`, or at a follower a read of committed batches."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The matching rows of a range of a queue."""

    batches: Sequence[ChosenPart]
    next_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class PushedDown:
    """The pushdown of one request."""

    wishes: Pushdown
    wanted: MessageFilter | None

    @classmethod
    def of(cls, request: enode_pb2.FetchBatchesRequest) -> "PushedDown | None":
        """The pushdown of a request; None if it has none. Errors: Invalid."""
        if not request.HasField("pushdown"):
            return None
        asked = request.pushdown
        wishes = read(Pushdown, asked, columns=frozenset(asked.columns))
        return cls(wishes, wishes.compiled())

    async def choose(
        self, fetch: Fetch, work: DiskWork, request: enode_pb2.FetchBatchesRequest, bytes_max: int, wait_ms: int = 0
    ) -> Chosen:
        """Scan from the request's offset until `bytes_max` are found, the scan limit is reached, or the queue ends.

        At the end of the queue wait up to `wait_ms`. An error behind the first part is left to the next read.
        Errors: as `Store.fetch`; Unsupported.
        """
        begin, end_offset = request.from_offset, 0
        choice = Choice(self.wishes, self.wanted, begin)
        is_over = False
        while not (is_over or choice.size_bytes >= bytes_max or choice.looked_bytes >= LOOKED_BYTES_MAX):
            at = choice.next_offset
            place = request.topic_id, request.queue_id, at
            try:
                fetched = await fetch(*place, bytes_max=PART_BYTES, wait_ms=wait_ms, look=choice.look)
            except OrtooError:
                if choice.next_offset == begin:
                    raise
                end_offset = choice.next_offset
                break
            wait_ms, end_offset = 0, fetched.end_offset
            is_over = choice.next_offset in (at, self.wishes.to_offset, end_offset)
        return Chosen(await work.run(choice.parts), choice.next_offset, end_offset)
