"""The newest committed batch of a sink, stored durably beside the messages as the account of the sink.

A committed batch is never written again, however late it is repeated. A second query, and a query whose checkpoint was
deleted or restored from an old copy, are refused.
"""

from collections.abc import Iterator
from contextlib import contextmanager
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

    def begin(self, link: ClusterLink, batch_id: int) -> bool:
        """Whether a batch is the newest one that is committed. Otherwise it may be written.

        A query that follows a reset takes the account over before it writes, because only the server knows every query
        that was reset. Errors: as `is_committed`.
        """
        account, own = self._account(link, batch_id), SinkAccount.of_query(self.query_id, batch_id)
        if account is not None and account.query_mark != own.query_mark:
            self._store(link, batch_id - 1)
        return account == own

    def is_committed(self, link: ClusterLink, batch_id: int) -> bool:
        """Whether a batch is the newest one that is committed.

        Errors: Conflict when the sink belongs to another query or was reset, or for a batch before the newest one.
        Spark repeats only the newest batch, so that an earlier one comes from an old copy of the checkpoint.
        """
        return self._account(link, batch_id) == SinkAccount.of_query(self.query_id, batch_id)

    def commit(self, link: ClusterLink, batch_id: int) -> None:
        """Record that a batch is written. A repeated call changes nothing. Errors: as `is_committed`."""
        if not self.is_committed(link, batch_id):
            self._store(link, batch_id)

    def _account(self, link: ClusterLink, batch_id: int) -> SinkAccount | None:
        """The stored account, if this batch may follow it; None if there is none. Errors: Conflict."""
        stored = link.when_available(lambda: self._stored(link))
        if stored < 0:
            return None
        account = SinkAccount.from_offset(stored)
        with self._named():
            account.successor(SinkAccount.of_query(self.query_id, batch_id))
        return account

    def _store(self, link: ClusterLink, batch_id: int) -> None:
        offset = SinkAccount.of_query(self.query_id, batch_id).offset
        sink = SinkIdentity(self.sink_id, self.query_id)
        with self._named():
            link.when_available(lambda: commit_group(link, self._group, {self._queues(link)[0]: offset}, sink))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the sink in the error of a conflict."""
        try:
            yield
        except Conflict as error:
            raise Conflict(f"sink {self.sink_id!r} of topic {self.topic}: {error.message}", field=error.field) from None

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
