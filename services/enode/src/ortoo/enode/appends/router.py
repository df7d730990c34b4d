"""Entry point of appended batches: delayed ones are set aside, others go to their queue."""

import asyncio

from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.delays.scheduler import Delays
from ortoo.enode.transactions.coordinator import Transactions
from ortoo.enode.log.results import Appended
from ortoo.enode.store.batch_write import ChangesAt, Write
from ortoo.enode.store.store import FlushMode, Store


class Intake:
    """Accepts the batches of producers."""

    def __init__(self, store: Store, delays: Delays, transactions: Transactions) -> None:
        self.delays = delays
        self.transactions = transactions
        self._store = store

    def begin(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode
    ) -> asyncio.Future[Appended] | None:
        """Accept a batch without awaiting; None if it needs `append` (delayed). Errors: as `Store.begin`."""
        return None if batch.delayed else self._store.begin(Write(topic_id, queue_id, batch), flush_mode)

    async def append(
        self,
        topic_id: int,
        queue_id: int,
        batch: SealedBatch,
        *,
        flush_mode: FlushMode = FlushMode.DEFAULT,
        consumes_at: ChangesAt | None = None,
    ) -> Appended:
        """Store a batch, visible at once or at its messages' delivery times. Errors: as `Store.append`."""
        if batch.delayed:
            return await self.delays.append(topic_id, queue_id, batch, flush_mode, consumes_at)
        return await self._store.append(topic_id, queue_id, batch, flush_mode=flush_mode, consumes_at=consumes_at)
