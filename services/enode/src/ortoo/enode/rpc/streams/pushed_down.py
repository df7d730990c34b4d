"""A read that leaves out here what its reader does not want, so that the rest need not travel."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ortoo.common.errors import OrtooError
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.filters.pushdown import Choice, ChosenPart, Pushdown
from ortoo.common.grpc.fields import read
from ortoo.enode.log.answers import Fetched
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.v1 import enode_pb2

PART_BYTES = 4 << 20
"""How much of the log is held in memory at once."""
LOOKED_BYTES_MAX = 32 << 20
"""How much one request looks at: then it answers, though it may have found nothing."""


Fetch = Callable[..., Awaitable[Fetched]]
"""Where batches are read from: `Store.fetch`, or what reads of another member's log what it has of it here."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was wanted of a stretch of a queue."""

    batches: Sequence[ChosenPart]
    next_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class PushedDown:
    """One request's wishes."""

    wishes: Pushdown
    wanted: MessageFilter | None

    @classmethod
    def of(cls, request: enode_pb2.FetchBatchesRequest) -> "PushedDown | None":
        """What it leaves to the enode; None = nothing. Errors: Invalid."""
        if not request.HasField("pushdown"):
            return None
        asked = request.pushdown
        wishes = read(Pushdown, asked, columns=frozenset(asked.columns))
        return cls(wishes, wishes.compiled())

    async def choose(
        self, fetch: Fetch, work: DiskWork, request: enode_pb2.FetchBatchesRequest, bytes_max: int, wait_ms: int = 0
    ) -> Chosen:
        """Look from the request's offset on, until `bytes_max` were found, enough was looked at, or the queue ends.

        Where there is nothing yet, wait so long. An error behind the first part is met again by whoever reads on.
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
