"""The calls of a pop consumer; they are idempotent and retried at the next snode."""

from collections.abc import Iterable, Sequence
from typing import Any

from ortoo.client.core.connection import Connection
from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.errors.status import error_of
from ortoo.common.groups.pop import SETTLED_OFFSETS_MAX
from ortoo.common.grpc.request_batcher import RequestBatcher
from ortoo.common.process.background import Background
from ortoo.v1 import pop_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

MARGIN_S = 10.0
"""Time limit of a pop beyond its wait for messages."""
RECEIPTS_MAX = 1_000
"""Largest number of receipts in one request."""
OFFSETS_PER_RECEIPT = SETTLED_OFFSETS_MAX // RECEIPTS_MAX
"""In the size of a request, each time this number of messages counts as one more receipt. This keeps both limits."""

LeaseOffsets = tuple[str, Sequence[int]]
"""A receipt handle and offsets of messages of its lease."""


class PopCalls:
    """The calls of a pop consumer to the server: Pop, Ack, Nack and ChangeInvisible."""

    def __init__(self, connection: Connection, background: Background, *, retry_timeout_s: float) -> None:
        """Call over `connection`; `background` runs batches of acknowledgements.

        While an enode is down, Ack and Nack are retried for `retry_timeout_s`.
        """
        self._connection = connection
        self._background = background
        self._retry_timeout_s = retry_timeout_s
        self._acks: dict[str, RequestBatcher[LeaseOffsets, list[int] | OrtooError]] = {}
        """By enode, so that one that is down delays only its own acknowledgements."""

    async def pop(self, request: pop_pb2.PopRequest) -> pop_pb2.PopResponse:
        """Pop messages; a retry with the same attempt id returns the same messages. Errors: those of the server."""
        timeout_s = request.wait_ms / 1000 + MARGIN_S
        answer: pop_pb2.PopResponse = await self._connection.call(
            ConsumerServiceStub, "Pop", request, timeout_s=timeout_s
        )
        return answer

    async def cancel(self, request: pop_pb2.PopRequest) -> pop_pb2.PopResponse:
        """Cancel the pops of an attempt id. Errors: those of the server."""
        answer: pop_pb2.PopResponse = await self._call_until_settled("Pop", request)
        return answer

    async def ack(self, enode: str, receipt_handle: str, offsets: Sequence[int]) -> list[int]:
        """Acknowledge messages; returns the stale offsets. Calls made during a request share the next request.

        Errors: those of the server, for this receipt or for the whole request.
        """
        if enode not in self._acks:
            self._acks[enode] = RequestBatcher(
                self._ack,
                self._background,
                size_max=RECEIPTS_MAX,
                size_of=lambda receipt: 1 + len(receipt[1]) // OFFSETS_PER_RECEIPT,
            )
        stale = await self._acks[enode].request((receipt_handle, offsets))
        if isinstance(stale, OrtooError):
            raise stale
        return stale

    async def drain(self) -> None:
        """Wait until no acknowledgement is in flight.

        Each acknowledgement is tried at every snode, without further retries.

        If the wait is cancelled, acknowledgements without an answer fail with Unavailable.
        """
        self._retry_timeout_s = 0.0
        batchers = list(self._acks.values())
        try:
            for batcher in batchers:
                await batcher.wait_until_idle()
                batcher.close()
        finally:
            for batcher in batchers:
                batcher.close()

    async def _ack(self, receipts: Sequence[LeaseOffsets]) -> list[list[int] | OrtooError]:
        by_handle: dict[str, list[int]] = {}
        for handle, offsets in receipts:
            by_handle.setdefault(handle, []).extend(offsets)
        answer = await self._call_until_settled("Ack", pop_pb2.AckRequest(receipts=receipts_of(by_handle.items())))
        stale = {(one.receipt_handle, one.offset) for one in answer.stale}
        refused = {one.receipt_handle: one.failure for one in answer.refused}
        return [
            error_of(refused[handle])
            if handle in refused
            else [offset for offset in offsets if (handle, offset) in stale]
            for handle, offsets in receipts
        ]

    async def nack(self, request: pop_pb2.NackRequest) -> list[int]:
        """Nack, release or park messages; returns the stale offsets. Errors: the first refusal of the server."""
        answer = await self._call_until_settled("Nack", request)
        if answer.refused:
            raise error_of(answer.refused[0].failure)
        return [one.offset for one in answer.stale]

    async def _call_until_settled(self, method: str, request: Any) -> Any:
        """Call `method`; retries while an enode restarts, because an expired lease would count an attempt."""
        connection = self._connection
        started_s, attempt = connection.clock.monotonic_s(), 0
        while True:
            try:
                return await connection.call(ConsumerServiceStub, method, request)
            except Unavailable:
                if connection.clock.monotonic_s() - started_s >= self._retry_timeout_s:
                    raise
            await connection.back_off(attempt)
            attempt += 1

    async def renew(
        self, receipts: Sequence[LeaseOffsets], invisible_ms: int, *, timeout_s: float
    ) -> tuple[set[str], set[tuple[str, int]]]:
        """Extend leases to `invisible_ms` from now; `timeout_s` limits each attempt. Errors: those of the server.

        Returns the refused handles, and the (handle, offset) of each stale message.
        """
        request = pop_pb2.ChangeInvisibleRequest(receipts=receipts_of(receipts), invisible_ms=invisible_ms)
        answer = await self._connection.call(ConsumerServiceStub, "ChangeInvisible", request, timeout_s=timeout_s)
        refused = {one.receipt_handle for one in answer.refused}
        return refused, {(one.receipt_handle, one.offset) for one in answer.stale}


def receipts_of(receipts: Iterable[LeaseOffsets]) -> list[pop_pb2.LeaseReceipt]:
    """Convert receipts to protobuf."""
    return [pop_pb2.LeaseReceipt(receipt_handle=handle, offsets=offsets) for handle, offsets in receipts]
