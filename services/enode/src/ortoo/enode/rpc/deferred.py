"""RPCs of delayed messages, transactions, and messages with application ids."""

import asyncio
from collections.abc import AsyncIterator, Iterable

from ortoo.common.errors import Invalid
from ortoo.common.grpc.enum_values import known_or
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import write
from ortoo.common.process.containment import Scope
from ortoo.enode.changes.halves import HalfOpen, HalfVerdict, VerdictOrigin
from ortoo.enode.observe.deferred_search import find_deferred
from ortoo.enode.rpc.handlers import EnodeHandlers, limit_of, read_checked_batch, without_sequence
from ortoo.enode.rpc.streams.outbox import Outbox
from ortoo.enode.transactions.checks import DueCheck
from ortoo.enode.transactions.coordinator import TransactionCoordinator
from ortoo.v1 import enode_deferred_pb2 as pb
from ortoo.v1 import enode_delivery_modes_pb2 as lives_pb

UNTAKEN_CHECKS_MAX, UNTAKEN_CHECK_BYTES_MAX = 1_000, 16 << 20
"""Limits of unread checks of one snode, in number and bytes; beyond them checks are dropped and come again."""
_VERDICTS = {pb.VERDICT_COMMIT: HalfVerdict.COMMITTED, pb.VERDICT_ROLL_BACK: HalfVerdict.ROLLED_BACK}


class DeferredHandlers(EnodeHandlers):
    """The methods for delayed messages, transactions and deduplicated messages."""

    async def RecallDelayed(self, request: pb.RecallDelayedRequest, context: Context) -> pb.RecallDelayedResponse:
        """Cancel a delayed message."""
        await self.appends.delays.recall(request.topic_id, request.timer_id, request.deliver_at_ms)
        return pb.RecallDelayedResponse()

    async def ListDelayed(self, request: pb.ListDelayedRequest, context: Context) -> pb.ListDelayedResponse:
        """List the delayed messages of a topic."""
        await self.topics.wait_for(request.topic_id)
        listed = self.store.timers.select(request.topic_id, request.from_ms, limit_of(request))
        return pb.ListDelayedResponse(entries=[write(pb.DelayedEntry, one) for one in listed])

    async def FindDeferred(self, request: pb.FindDeferredRequest, context: Context) -> pb.FindDeferredResponse:
        """Find a message that is not visible yet."""
        await self.topics.wait_for(request.topic_id)
        found = await find_deferred(self.store, request.topic_id, request.message_id)
        if found is None:
            return pb.FindDeferredResponse()
        half = _half(found.half) if found.half is not None else None
        return write(pb.FindDeferredResponse, found, found=True, half=half)

    async def AppendDeduplicated(
        self, request: lives_pb.AppendDeduplicatedRequest, context: Context
    ) -> lives_pb.AppendDeduplicatedResponse:
        """Store messages with application ids."""
        await self.topics.wait_for(request.topic_id, request.queue_id)
        batch = read_checked_batch(request)
        places = await self.deduplicated.append(request.topic_id, request.queue_id, batch, request.ids)
        return lives_pb.AppendDeduplicatedResponse(places=[write(lives_pb.DeduplicatedPlace, one) for one in places])

    async def StoreHalf(self, request: pb.StoreHalfRequest, context: Context) -> pb.StoreHalfResponse:
        """Begin a transaction."""
        await self.topics.wait_for(request.topic_id, request.queue_id)
        half = await self.appends.transactions.begin(
            request.topic_id,
            request.queue_id,
            read_checked_batch(request),
            producer_group=request.producer_group,
            check_after_ms=request.check_after_ms,
            key=request.key,
        )
        return pb.StoreHalfResponse(number=half.number)

    async def SettleHalf(self, request: pb.SettleHalfRequest, context: Context) -> pb.SettleHalfResponse:
        """End a transaction."""
        verdict = _VERDICTS.get(request.verdict)
        if verdict is None:
            raise Invalid("a transaction ends by VERDICT_COMMIT or VERDICT_ROLL_BACK", field="verdict")
        source = known_or(VerdictOrigin, request.source, VerdictOrigin.PRODUCER)
        await self.appends.transactions.end(request.topic_id, request.number, verdict, source)
        return pb.SettleHalfResponse()

    async def ListHalves(self, request: pb.ListHalvesRequest, context: Context) -> pb.ListHalvesResponse:
        """List open transactions."""
        listed = self.store.halves.select(
            topic_id=request.topic_id,
            producer_group=request.producer_group,
            parked_only=request.parked_only,
            limit=limit_of(request),
        )
        return pb.ListHalvesResponse(halves=map(_half, listed))

    async def ResumeHalf(self, request: pb.ResumeHalfRequest, context: Context) -> pb.ResumeHalfResponse:
        """Restart the checks of a parked transaction."""
        await self.appends.transactions.resume(request.topic_id, request.number)
        return pb.ResumeHalfResponse()


class CheckStream:
    """One open WatchHalves call."""

    waits_at_stop = False

    def __init__(self, transactions: TransactionCoordinator, groups: Iterable[str]) -> None:
        self.outbox = Outbox[pb.WatchHalvesResponse](bytes_max=UNTAKEN_CHECK_BYTES_MAX)
        self._transactions = transactions
        self._groups = frozenset(groups)

    async def serve(self, requests: AsyncIterator[pb.WatchHalvesRequest], scope: Scope) -> None:
        """Register the snode as a listener for checks until the call ends."""
        self._transactions.listeners.add(self._groups, self._send_check)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._transactions.listeners.remove(self._groups, self._send_check)

    def _send_check(self, check: DueCheck) -> None:
        if self.outbox.open_requests < UNTAKEN_CHECKS_MAX:
            response = pb.WatchHalvesResponse(half=_half(check.half), batch=without_sequence(check.batch))
            self.outbox.try_push(response, len(check.batch.records))


def _half(half: HalfOpen) -> pb.Half:
    return write(pb.Half, half, message_count=half.count)
