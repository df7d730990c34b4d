"""The Lease stream: pops and verdicts of many consumers."""

from collections.abc import Awaitable, Callable

from ortoo.common.errors import Invalid
from ortoo.enode.rpc.streams.independent import IndependentRequests
from ortoo.v1 import enode_pop_pb2 as pb

Pop = Callable[[pb.PopQueuesRequest], Awaitable[pb.PopQueuesResponse]]
Settle = Callable[[pb.SettlePoppedRequest], Awaitable[pb.SettlePoppedResponse]]


class LeaseStream(IndependentRequests[pb.LeaseResponse]):
    """One open Lease call."""

    answer_type = pb.LeaseResponse
    request_bytes = 4 << 10

    def __init__(self, pop: Pop, settle: Settle) -> None:
        super().__init__()
        self._pop = pop
        self._settle = settle

    async def process(self, request: pb.LeaseRequest) -> pb.LeaseResponse:
        """Pop or settle. Errors: those of the request, Invalid without a request."""
        kind = request.WhichOneof("request")
        if kind == "pop":
            return pb.LeaseResponse(popped=await self._pop(request.pop))
        if kind == "settle":
            return pb.LeaseResponse(settled=await self._settle(request.settle))
        raise Invalid("missing request; give pop or settle", field="request")
