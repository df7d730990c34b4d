"""The newest committed batch of a sink, stored durably beside the messages as the offset of a group.

The group's name is `%SINK%` and the sink's id. Its offset in the first queue of the topic holds a part of the query's
id and the batch number. A committed batch is therefore never written again, however late it is repeated. A second
query, and a query whose checkpoint was deleted or restored from an old copy, are refused.
"""

import hashlib
from dataclasses import dataclass

from ortoo.client import Conflict, Queue
from ortoo.common.cluster.names import SINK_GROUP_PREFIX
from ortoo.spark.core.group_offsets import commit_group, group_offset
from ortoo.spark.core.link import ClusterLink

_BATCH_BITS = 36


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """The progress of one query in one sink, stored as the committed offset of a group."""

    sink_id: str
    query_id: str
    topic: str

    def is_committed(self, link: ClusterLink, batch_id: int) -> bool:
        """Whether a batch is the newest one that is committed.

        Errors: Conflict when the sink belongs to another query, or for a batch before the newest one. Spark repeats
        only the newest batch, so that an earlier one comes from an old copy of the checkpoint.
        """
        stored = link.when_available(lambda: self._stored(link))
        if stored < 0:
            return False
        if stored >> _BATCH_BITS != self._query_mark:
            raise Conflict(
                f"the sink {self.sink_id!r} of topic {self.topic} belongs to another query, or to this query with a "
                "former checkpoint; writing would duplicate messages. Use a new sinkId",
                field="sinkId",
            )
        newest = (stored & ((1 << _BATCH_BITS) - 1)) - 1
        if batch_id < newest:
            raise Conflict(
                f"the sink {self.sink_id!r} of topic {self.topic} has committed batch {newest}, and this is batch "
                f"{batch_id}. The checkpoint was restored from an old copy, whose batches may have other rows. Use a "
                "new checkpoint and sinkId, and start where the sink ended",
                field="checkpointLocation",
            )
        return batch_id == newest

    def commit(self, link: ClusterLink, batch_id: int) -> None:
        """Record that a batch is written. A repeated call changes nothing. Errors: as `is_committed`."""
        if not self.is_committed(link, batch_id):
            offset = self._query_mark << _BATCH_BITS | batch_id + 1
            link.when_available(lambda: commit_group(link, self._group, {self._queues(link)[0]: offset}))

    def _stored(self, link: ClusterLink) -> int:
        """The stored offset; -1 if there is none. Errors: those of the server."""
        every = (group_offset(link, self._group, queue) for queue in self._queues(link))
        return next((offset for offset in every if offset >= 0), -1)

    @property
    def _group(self) -> str:
        return SINK_GROUP_PREFIX + hashlib.blake2b(self.sink_id.encode(), digest_size=16).hexdigest()

    @property
    def _query_mark(self) -> int:
        """24 bits of the query's id."""
        return int.from_bytes(hashlib.blake2b(self.query_id.encode(), digest_size=3).digest(), "little")

    def _queues(self, link: ClusterLink) -> list[Queue]:
        """The queues that may hold the offset: queue 0 of each enode.

        The first enode by name may have been added later.
        """
        topic = link.run(link.admin.describe_topic(self.topic)).topic
        return [Queue(self.topic, enode, 0) for enode in sorted(placement.enode for placement in topic.placements)]
