"""The calls of a pop consumer: repeated at the next snode when one is away, without harm."""

import asyncio
from collections.abc import Sequence

import grpc

from ortoo.client.connection import Connection
from ortoo.common.errors import OrtooError
from ortoo.common.status import error_of_rpc
from ortoo.v1 import pop_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

MARGIN_S = 10.0
"""How much longer than its wait a pop may take."""
TRIES_MAX = 5
RECEIPTS_MAX = 1_000


class PopCalls:
    """Pop, Ack, Nack and ChangeInvisible."""

    def __init__(self, connection: Connection) -> None:
        """Call over `connection`."""
        self._connection = connection
        self._acks: list[tuple[str, list[int], asyncio.Future[list[int]]]] = []
        self._is_acking = False

    async def pop(self, request: pop_pb2.PopRequest) -> pop_pb2.PopResponse:
        """Pop; asked again, with its attempt id, it gets the same messages. Errors: as the server says."""
        connection = self._connection
        attempt = 0
        while True:
            address = connection.address
            try:
                stub = ConsumerServiceStub(connection.channel())
                return await stub.Pop(request, timeout=request.wait_ms / 1000 + MARGIN_S)
            except grpc.aio.AioRpcError as failure:
                error: OrtooError = error_of_rpc(failure, address)
            attempt += 1
            if not error.retriable or attempt >= TRIES_MAX:
                raise error
            connection.failed(address)
            delay_s = connection.backoff.delay_s(attempt, connection.randomness)
            await connection.clock.sleep(max(error.retry_after_ms / 1000, delay_s))

    async def ack(self, receipt_handle: str, offsets: list[int]) -> list[int]:
        """Acknowledge; what is asked for while an answer is on its way goes together. Returns the stale offsets."""
        done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._acks.append((receipt_handle, offsets, done))
        if not self._is_acking:
            self._is_acking = True
            try:
                while self._acks:
                    await self._ack_waiting()
            finally:
                self._is_acking = False
                for _, _, waiting in self._acks:
                    waiting.cancel()
                self._acks.clear()
        return await done

    async def _ack_waiting(self) -> None:
        taken, self._acks = self._acks[:RECEIPTS_MAX], self._acks[RECEIPTS_MAX:]
        by_handle: dict[str, list[int]] = {}
        for handle, offsets, _ in taken:
            by_handle.setdefault(handle, []).extend(offsets)
        request = pop_pb2.AckRequest(receipts=_receipts(list(by_handle.items())))
        try:
            answer = await self._connection.call(ConsumerServiceStub, "Ack", request)
        except BaseException as error:
            for _, _, done in taken:
                if not done.done():
                    done.set_exception(error) if isinstance(error, OrtooError) else done.cancel()
                    if isinstance(error, OrtooError):
                        done.exception()
            if not isinstance(error, OrtooError):
                raise
            return
        stale = {(one.receipt_handle, one.offset) for one in answer.stale}
        for handle, offsets, done in taken:
            if not done.done():
                done.set_result([offset for offset in offsets if (handle, offset) in stale])

    async def nack(self, request: pop_pb2.NackRequest) -> list[int]:
        """Give back or park. Returns the stale offsets."""
        answer = await self._connection.call(ConsumerServiceStub, "Nack", request)
        return [one.offset for one in answer.stale]

    async def renew(self, receipts: Sequence[tuple[str, Sequence[int]]], invisible_ms: int) -> None:
        """Ask for more time."""
        request = pop_pb2.ChangeInvisibleRequest(receipts=_receipts(receipts), invisible_ms=invisible_ms)
        await self._connection.call(ConsumerServiceStub, "ChangeInvisible", request)


def _receipts(receipts: Sequence[tuple[str, Sequence[int]]]) -> list[pop_pb2.LeaseReceipt]:
    return [pop_pb2.LeaseReceipt(receipt_handle=handle, offsets=offsets) for handle, offsets in receipts]
