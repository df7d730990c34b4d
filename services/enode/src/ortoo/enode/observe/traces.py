"""Spans for traced messages: from a batch's arrival until it is durable."""

import asyncio
from typing import Any

from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.telemetry.tracing import Tracing, sampled_contexts
from ortoo.enode.appends.router import AppendRouter
from ortoo.enode.delays.scheduler import DelayScheduler
from ortoo.enode.log.results import AppendResult
from ortoo.enode.log.settings import FlushMode
from ortoo.enode.store.store import Store
from ortoo.enode.transactions.coordinator import TransactionCoordinator


class TracedAppendRouter(AppendRouter):
    """An append router that records a span for each traced message."""

    def __init__(
        self, store: Store, delays: DelayScheduler, transactions: TransactionCoordinator, tracing: Tracing, enode: str
    ) -> None:
        super().__init__(store, delays, transactions)
        self._tracing = tracing
        self._enode = enode

    def begin(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode
    ) -> asyncio.Future[AppendResult] | None:
        """Accept a batch at once; returns None for a delayed or traced batch, for which the caller awaits `append`."""
        return None if sampled_contexts(batch.records) else super().begin(topic_id, queue_id, batch, flush_mode)

    async def append(self, topic_id: int, queue_id: int, batch: SealedBatch, **options: Any) -> AppendResult:
        """Store one batch. Errors: those of `AppendRouter.append`."""
        contexts = sampled_contexts(batch.records)
        if not contexts:
            return await super().append(topic_id, queue_id, batch, **options)
        attributes: dict[str, str | int] = {
            "ortoo.enode": self._enode,
            "ortoo.topic_id": str(topic_id),
            "ortoo.queue_id": queue_id,
        }
        spans = self._tracing.start_spans("ortoo store", contexts, attributes)
        try:
            stored = await super().append(topic_id, queue_id, batch, **options)
        except BaseException as error:
            self._tracing.finish_spans(spans, error)
            raise
        self._tracing.finish_spans(spans)
        return stored
