"""Pops and settlements on their way to one process: over one stream, or a call each where it knows no stream."""

from collections.abc import Awaitable, Callable
from typing import Any

from ortoo.common.errors import Unsupported
from ortoo.common.process.clock import Clock
from ortoo.snode.enodes.pop_wire import ended_of
from ortoo.snode.enodes.request_stream import LEFT_ALONE_S, RequestStream
from ortoo.v1 import enode_pop_pb2 as pb
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub

Ask = Callable[[Callable[..., Awaitable[Any]], object, float], Awaitable[Any]]
"""Makes a call: the method, its request, and how long it may take."""


class LeaseCalls:
    """The stream, and the calls of before there was one."""

    def __init__(self, peer: str, stub: EnodeServiceStub, ask: Ask, clock: Clock, timeout_s: float) -> None:
        """Each request has `timeout_s`, and what it may rightly wait besides; it is late alone."""
        self.stream = RequestStream[pb.LeaseRequest, pb.LeaseResponse, pb.LeaseResponse](
            peer,
            stub.Lease,
            ended_of,
            clock=clock,
            timeout_s=timeout_s,
            in_flight_bytes_max=1,
            answers_all_it_took=True,
            late_fail_alone=True,
            greets=True,
        )
        self._stub = stub
        self._ask = ask
        self._clock = clock
        self._timeout_s = timeout_s
        self._calls_until_s = 0.0
        """Until then the process is not asked for a stream: it is of a version that has none."""

    async def ask(self, request: pb.LeaseRequest, wait_s: float = 0.0) -> pb.LeaseResponse:
        """The answer. Errors: as the enode says; Unavailable, as RequestStream says."""
        if self._clock.monotonic_s() >= self._calls_until_s:
            try:
                return await self.stream.send(request, wait_s=wait_s)
            except Unsupported:
                if self.stream.connected:
                    raise  # it is about this request alone
                self._calls_until_s = self._clock.monotonic_s() + LEFT_ALONE_S
        timeout_s = self._timeout_s + wait_s
        if request.WhichOneof("asked") == "pop":
            return pb.LeaseResponse(popped=await self._ask(self._stub.PopQueues, request.pop, timeout_s))
        return pb.LeaseResponse(settled=await self._ask(self._stub.SettlePopped, request.settle, timeout_s))
