"""StoreHalf, SettleHalf, ListHalves, ResumeHalf and WatchHalves."""

import asyncio
from collections.abc import AsyncIterator, Iterable

from ortoo.common.errors import Invalid
from ortoo.common.process.background import Background
from ortoo.enode.changes.halves import HalfOpen, Source, Verdict
from ortoo.enode.deferred.check_watchers import DueCheck, Watcher
from ortoo.enode.deferred.transactions import Transactions
from ortoo.enode.rpc.streams.append import batch_of
from ortoo.enode.rpc.streams.outbox import Outbox
from ortoo.v1 import enode_deferred_pb2, record_pb2

LIMIT_DEFAULT = 100
LIMIT_MAX = 10_000
ASKED_MAX = 1_000
"""A snode that takes so few checks gets no further ones; they come again."""


async def store_half(
    transactions: Transactions, request: enode_deferred_pb2.StoreHalfRequest
) -> enode_deferred_pb2.StoreHalfResponse:
    """Begin a transaction."""
    batch = batch_of(request)
    batch.check()
    begun = await transactions.begin(
        request.topic_id,
        request.queue_id,
        batch,
        producer_group=request.producer_group,
        check_after_ms=request.check_after_ms,
        key=request.key,
    )
    return enode_deferred_pb2.StoreHalfResponse(number=begun.number)


async def settle_half(
    transactions: Transactions, request: enode_deferred_pb2.SettleHalfRequest
) -> enode_deferred_pb2.SettleHalfResponse:
    """End a transaction."""
    verdict = _VERDICTS.get(request.verdict)
    if verdict is None:
        raise Invalid("a transaction ends by VERDICT_COMMIT or VERDICT_ROLL_BACK", field="verdict")
    source = Source(request.source) if request.source in (1, 2, 3) else Source.PRODUCER
    await transactions.end(request.topic_id, request.number, verdict, source)
    return enode_deferred_pb2.SettleHalfResponse()


def list_halves(
    transactions: Transactions, request: enode_deferred_pb2.ListHalvesRequest
) -> enode_deferred_pb2.ListHalvesResponse:
    """Open transactions."""
    if request.limit > LIMIT_MAX:
        raise Invalid(f"{request.limit}; at most {LIMIT_MAX}", field="limit")
    listed = transactions.listed(
        topic_id=request.topic_id,
        producer_group=request.producer_group,
        parked_only=request.parked_only,
        limit=request.limit or LIMIT_DEFAULT,
    )
    return enode_deferred_pb2.ListHalvesResponse(halves=map(_half, listed))


class CheckStream:
    """One open WatchHalves call."""

    waits_at_stop = False

    def __init__(self, transactions: Transactions, groups: Iterable[str]) -> None:
        self.outbox = Outbox[enode_deferred_pb2.WatchHalvesResponse](bytes_max=1)
        self._transactions = transactions
        self._watcher = Watcher(groups, self._ask)

    async def serve(
        self, requests: AsyncIterator[enode_deferred_pb2.WatchHalvesRequest], background: Background
    ) -> None:
        """Be known as long as the call lasts."""
        self._transactions.watchers.add(self._watcher)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._transactions.watchers.remove(self._watcher)

    def _ask(self, check: DueCheck) -> None:
        if self.outbox.open_requests >= ASKED_MAX:
            return
        batch = check.batch
        sealed = record_pb2.SealedBatch(
            records=batch.records,
            records_crc32c=batch.records_crc32c,
            count=batch.count,
            body_inflated_bytes=batch.body_inflated_bytes,
        )
        self.outbox.open_requests += 1
        self.outbox.put(enode_deferred_pb2.WatchHalvesResponse(half=_half(check.half), batch=sealed), 0)


def _half(half: HalfOpen) -> enode_deferred_pb2.Half:
    return enode_deferred_pb2.Half(
        number=half.number,
        topic_id=half.topic_id,
        queue_id=half.queue_id,
        message_count=half.count,
        stored_at_ms=half.stored_at_ms,
        next_check_ms=half.next_check_ms,
        checks=half.checks,
        parked=half.parked,
        producer_group=half.producer_group,
    )


_VERDICTS = {
    enode_deferred_pb2.VERDICT_COMMIT: Verdict.COMMITTED,
    enode_deferred_pb2.VERDICT_ROLL_BACK: Verdict.ROLLED_BACK,
}
