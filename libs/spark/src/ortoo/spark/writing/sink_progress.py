"""The newest committed batch of a sink, stored durably beside the messages as the account of the sink.

A committed batch is never written again, however late it is repeated. A second query, and a query whose checkpoint was
deleted or restored from an old copy, are refused.
"""

from dataclasses import dataclass

from ortoo.client import Conflict, Queue
from ortoo.common.groups.sinks import SinkAccount, SinkIdentity, sink_group
from ortoo.spark.core.group_offsets import commit_group, group_offset
from ortoo.spark.core.link import ClusterLink


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """The progress of one query in one sink."""

    sink_id: str
    query_id: str
    topic: str

    def is_committed(self, link: ClusterLink, batch_id: int) -> bool:
        """Whether a batch is the newest one that is committed.

        Errors: Conflict when the sink belongs to another query or was reset, or for a batch before the newest one.
        Spark repeats only the newest batch, so that an earlier one comes from an old copy of the checkpoint.
        """
        stored = link.when_available(lambda: self._stored(link))
        if stored < 0:
            return False
        account, own = SinkAccount.from_offset(stored), SinkAccount.of_query(self.query_id, batch_id)
        try:
            account.successor(own)
        except Conflict as error:
            raise Conflict(f"sink {self.sink_id!r} of topic {self.topic}: {error.message}", field=error.field) from None
        return account == own

    def commit(self, link: ClusterLink, batch_id: int) -> None:
        """Record that a batch is written. A repeated call changes nothing. Errors: as `is_committed`."""
        if not self.is_committed(link, batch_id):
            offset = SinkAccount.of_query(self.query_id, batch_id).offset
            sink = SinkIdentity(self.sink_id, self.query_id)
            link.when_available(lambda: commit_group(link, self._group, {self._queues(link)[0]: offset}, sink))

    def _stored(self, link: ClusterLink) -> int:
        """The stored offset; -1 if there is none. Errors: those of the server."""
        every = (group_offset(link, self._group, queue) for queue in self._queues(link))
        return next((offset for offset in every if offset >= 0), -1)

    @property
    def _group(self) -> str:
        return sink_group(self.sink_id)

    def _queues(self, link: ClusterLink) -> list[Queue]:
        """The queues that may hold the offset: queue 0 of each enode.

        The first enode by name may have been added later.
        """
        topic = link.run(link.admin.describe_topic(self.topic)).topic
        return [Queue(self.topic, enode, 0) for enode in sorted(placement.enode for placement in topic.placements)]
