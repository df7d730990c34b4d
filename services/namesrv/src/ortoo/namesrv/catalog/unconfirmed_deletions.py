"""Due deletions that are no longer reported, although an enode with the topic may not have carried them out."""

from collections.abc import Collection

import sqlalchemy as sa

from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.batches import in_batches
from ortoo.namesrv.decisions.deletions import DELETIONS_RETENTION_MS, UNCONFIRMED_MAX, TopicDeletion


class UnconfirmedDeletions:
    """These deletions in a transaction. Each is final, because enodes were told to carry it out."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def add(self, deletions: Collection[TopicDeletion], now_ms: int) -> None:
        """Store deletions. Those that were due very long ago are removed, and the earliest if there are too many."""
        table = tables.unconfirmed_deletions
        for ids in in_batches([one.topic_id for one in deletions]):
            self._connection.execute(sa.delete(table).where(table.c.topic_id.in_(ids)))
        if deletions:
            self._connection.execute(sa.insert(table), [tables.row_of(table, one) for one in deletions])
            by_time = sa.select(table.c.due_at_ms).order_by(table.c.due_at_ms.desc())
            beyond_ms = self._connection.execute(by_time.offset(UNCONFIRMED_MAX).limit(1)).scalar_one_or_none() or 0
            removed_ms = max(beyond_ms, now_ms - DELETIONS_RETENTION_MS)
            self._connection.execute(sa.delete(table).where(table.c.due_at_ms <= removed_ms))

    def find(self, topic_ids: Collection[int]) -> set[int]:
        """Those of the ids whose deletion is stored here."""
        column = tables.unconfirmed_deletions.c.topic_id
        parts = (sa.select(column).where(column.in_(ids)) for ids in in_batches(topic_ids))
        return {topic_id for part in parts for topic_id in self._connection.execute(part).scalars()}
