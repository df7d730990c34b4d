"""Entry point of appended batches: delayed batches are stored until they are due, other batches go to their queue."""

import asyncio

from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.delays.scheduler import DelayScheduler
from ortoo.enode.log.results import AppendResult
from ortoo.enode.log.settings import FlushMode
from ortoo.enode.store.batch_write import BatchWrite, ChangesAt
from ortoo.enode.store.store import Store
from ortoo.enode.transactions.coordinator import TransactionCoordinator


class AppendRouter:
    """Accepts the batches of producers."""

    def __init__(self, store: Store, delays: DelayScheduler, transactions: TransactionCoordinator) -> None:
        self.delays = delays
        self.transactions = transactions
        self._store = store

    def begin(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode
    ) -> asyncio.Future[AppendResult] | None:
        """Accept a batch at once; returns None for a delayed batch, for which the caller must await `append`.

        Errors: those of `Store.begin`.
        """
        return None if batch.delayed else self._store.begin(BatchWrite(topic_id, queue_id, batch), flush_mode)

    async def append(
        self,
        topic_id: int,
        queue_id: int,
        batch: SealedBatch,
        *,
        flush_mode: FlushMode = FlushMode.DEFAULT,
        consumes_at: ChangesAt | None = None,
    ) -> AppendResult:
        """Store a batch; its messages become visible at once or at their delivery times.

        `consumes_at` makes the state changes to store in the same frame. Errors: those of `Store.append`.
        """
        if batch.delayed:
            return await self.delays.append(topic_id, queue_id, batch, flush_mode, consumes_at)
        return await self._store.append(topic_id, queue_id, batch, flush_mode=flush_mode, consumes_at=consumes_at)
