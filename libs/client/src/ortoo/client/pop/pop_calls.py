"""The calls of a pop consumer: repeated at the next snode when one is away, without harm."""

from collections.abc import Sequence
from typing import Any

from ortoo.client.core.connection import Connection
from ortoo.client.pop.shared_acks import SharedAcks
from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.common.process.background import Background
from ortoo.v1 import pop_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

MARGIN_S = 10.0
"""How much longer than its wait a pop may take."""
TRIES_MAX = 5


class PopCalls:
    """Pop, Ack, Nack and ChangeInvisible."""

    def __init__(self, connection: Connection, background: Background, *, patience_s: float) -> None:
        """Call over `connection`; acknowledgements travel in `background`.

        While an enode is away, what settles its messages is repeated for `patience_s`.
        """
        self._connection = connection
        self._patience_s = patience_s
        self._acks = SharedAcks(self._ack, background)

    async def pop(self, request: pop_pb2.PopRequest) -> pop_pb2.PopResponse:
        """Pop; asked again, with its attempt id, it gets the same messages. Errors: as the server says."""
        connection = self._connection
        attempt = 0
        while True:
            address = connection.address
            try:
                stub = ConsumerServiceStub(connection.channel())
                with rpc_errors(address):
                    return await stub.Pop(request, timeout=request.wait_ms / 1000 + MARGIN_S)
            except OrtooError as failure:
                error = failure
            attempt += 1
            if not error.retriable or attempt >= TRIES_MAX:
                raise error
            connection.failed(address)
            delay_s = connection.backoff.delay_s(attempt, connection.randomness)
            await connection.clock.sleep(max(error.retry_after_ms / 1000, delay_s))

    async def ack(self, enode: str, receipt_handle: str, offsets: Sequence[int]) -> list[int]:
        """Acknowledge; what is asked for while an answer is on its way goes together. Returns the stale offsets."""
        return await self._acks.ack(enode, receipt_handle, offsets)

    async def settled(self) -> None:
        """Wait until no acknowledgement is on its way; from now on each is tried at every snode, and that is all."""
        self._patience_s = 0.0
        await self._acks.settled()

    async def _ack(self, receipts: Sequence[tuple[str, Sequence[int]]]) -> set[tuple[str, int]]:
        answer = await self._settle("Ack", pop_pb2.AckRequest(receipts=_receipts(receipts)))
        return {(one.receipt_handle, one.offset) for one in answer.stale}

    async def nack(self, request: pop_pb2.NackRequest) -> list[int]:
        """Give back or park. Returns the stale offsets."""
        answer = await self._settle("Nack", request)
        return [one.offset for one in answer.stale]

    async def _settle(self, method: str, request: Any) -> Any:
        """Settle; an enode that restarts is waited for, else its messages would come again and count an attempt."""
        connection = self._connection
        begun_s, attempt = connection.clock.monotonic_s(), 0
        while True:
            try:
                return await connection.call(ConsumerServiceStub, method, request)
            except Unavailable:
                if connection.clock.monotonic_s() - begun_s >= self._patience_s:
                    raise
            await connection.clock.sleep(connection.backoff.delay_s(attempt, connection.randomness))
            attempt += 1

    async def renew(self, receipts: Sequence[tuple[str, Sequence[int]]], invisible_ms: int) -> None:
        """Ask for more time."""
        request = pop_pb2.ChangeInvisibleRequest(receipts=_receipts(receipts), invisible_ms=invisible_ms)
        await self._connection.call(ConsumerServiceStub, "ChangeInvisible", request)


def _receipts(receipts: Sequence[tuple[str, Sequence[int]]]) -> list[pop_pb2.LeaseReceipt]:
    return [pop_pb2.LeaseReceipt(receipt_handle=handle, offsets=offsets) for handle, offsets in receipts]
