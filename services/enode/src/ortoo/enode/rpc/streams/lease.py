"""The Lease stream: pops and verdicts of many consumers. Most pops wait."""

from collections.abc import AsyncIterator, Awaitable, Callable

from ortoo.common.errors import Invalid, OrtooError, Overloaded
from ortoo.common.errors.status import failure_of
from ortoo.common.grpc.layers.call_memory import current_memory_share
from ortoo.common.process.containment import Scope
from ortoo.enode.rpc.streams.outbox import Outbox
from ortoo.enode.rpc.streams.runner import result_or_error
from ortoo.v1 import enode_pop_pb2 as pb

REQUEST_BYTES = 4 << 10
"""About the memory of an open request."""
BYTES_MAX = 32 << 20
"""The bytes of unread answers at which the stream is no longer read."""

Pop = Callable[[pb.PopQueuesRequest], Awaitable[pb.PopQueuesResponse]]
Settle = Callable[[pb.SettlePoppedRequest], Awaitable[pb.SettlePoppedResponse]]


class LeaseStream:
    """One open Lease call."""

    waits_at_stop = True

    def __init__(self, pop: Pop, settle: Settle) -> None:
        self.outbox = Outbox[pb.LeaseResponse](bytes_max=BYTES_MAX)
        self._memory = current_memory_share()
        self._pop = pop
        self._settle = settle

    async def serve(self, requests: AsyncIterator[pb.LeaseRequest], scope: Scope) -> None:
        """Confirm the call, then read and start requests; return when the peer ends its side."""
        self.outbox.push(pb.LeaseResponse())
        async for request in requests:
            await self.outbox.reserve(0)
            self.outbox.open_requests += 1
            try:
                if self._memory is not None:
                    self._memory.draw_fixed(REQUEST_BYTES, is_request=True)
            except Overloaded as full:
                self._put(pb.LeaseResponse(request_id=request.request_id, failure=failure_of(full)))
            else:
                scope.start("lease", self._respond(request))

    async def _respond(self, request: pb.LeaseRequest) -> None:
        try:
            result = await result_or_error("request", self._process(request))
            answer = pb.LeaseResponse(failure=failure_of(result)) if isinstance(result, OrtooError) else result
            answer.request_id = request.request_id
            self._put(answer)
        finally:
            if self._memory is not None:
                self._memory.release_fixed(REQUEST_BYTES)

    async def _process(self, request: pb.LeaseRequest) -> pb.LeaseResponse:
        kind = request.WhichOneof("request")
        if kind == "pop":
            return pb.LeaseResponse(popped=await self._pop(request.pop))
        if kind == "settle":
            return pb.LeaseResponse(settled=await self._settle(request.settle))
        raise Invalid("missing request; give pop or settle", field="request")

    def _put(self, answer: pb.LeaseResponse) -> None:
        cost_bytes = answer.ByteSize()
        self.outbox.charge(cost_bytes)
        self.outbox.put(answer, cost_bytes)
