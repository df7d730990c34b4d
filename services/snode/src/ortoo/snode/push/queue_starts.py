"""The first offsets of a session's queues in a topic on one enode, in requests for all queues that start together."""

from collections.abc import Sequence

from ortoo.common.errors import Fenced
from ortoo.common.grpc.request_batcher import RequestBatcher
from ortoo.common.process.background import Background
from ortoo.snode.enodes.link import EnodeLinks, OffsetRow, QueueRange, StoredOffset

QUEUES_MAX = 1_024
"""Maximum number of queues in one request, which is also the maximum of a topic on an enode."""


class QueueStarts:
    """Reads and stores the offsets at which queues start.

    Queues that ask during a request share the next one. A session that gets all queues of a topic thus sends a constant
    number of requests, and not one for each queue.
    """

    def __init__(self, links: EnodeLinks, background: Background, enode: str, topic_id: int, group: str) -> None:
        self._links = links
        self._enode = enode
        self._topic_id = topic_id
        self._group = group
        self._committed = RequestBatcher(self._query_offsets, background, size_max=QUEUES_MAX)
        self._ranges = RequestBatcher(self._describe_queues, background, size_max=QUEUES_MAX)
        self._commits = RequestBatcher(self._commit_offsets, background, size_max=QUEUES_MAX)

    async def committed_offset(self, queue_id: int) -> StoredOffset | None:
        """The group's offset in a queue; None if it has none. Errors: those of the enode."""
        return await self._committed.request(queue_id)

    async def stored_range(self, queue_id: int) -> QueueRange | None:
        """The range of stored offsets in a queue; None if the enode lacks the queue. Errors: those of the enode."""
        return await self._ranges.request(queue_id)

    async def commit(self, queue_id: int, offset: int, fence: int) -> None:
        """Store the group's first offset in a queue, under the lock generation `fence`.

        Errors: those of the enode, and Fenced if the queue's lock has a newer generation. Other queues of the request
        are not affected by that.
        """
        if not await self._commits.request((queue_id, offset, fence)):
            raise Fenced(f"the lock of queue {queue_id} has a newer generation than {fence}", field="generation")

    async def _query_offsets(self, queue_ids: Sequence[int]) -> list[StoredOffset | None]:
        offsets = await self._links.to(self._enode).query_starts(self._topic_id, self._group, queue_ids)
        return [offsets.get(queue_id) for queue_id in queue_ids]

    async def _describe_queues(self, queue_ids: Sequence[int]) -> list[QueueRange | None]:
        described = await self._links.to(self._enode).describe_queues(self._topic_id)
        ranges = {one.queue_id: one for one in described}
        return [ranges.get(queue_id) for queue_id in queue_ids]

    async def _commit_offsets(self, rows: Sequence[OffsetRow]) -> list[bool]:
        """Store the offsets; returns for each row whether it was stored.

        The row of a revoked queue may still wait when the queue returns. Only the newer row is sent then, because an
        enode refuses a request that names a queue twice.
        """
        newest = {row[0]: row for row in rows}
        link = self._links.to(self._enode)
        fenced = set(await link.commit_offsets(self._topic_id, self._group, list(newest.values())))
        return [row is newest[row[0]] and row[0] not in fenced for row in rows]
