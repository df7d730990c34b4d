"""The AwaitMessages stream: the waits of one snode for messages of many groups."""

from collections.abc import Awaitable, Callable

from ortoo.enode.rpc.streams.independent import IndependentRequests
from ortoo.v1 import enode_pop_pb2 as pb


class AwaitStream(IndependentRequests[pb.AwaitMessagesResponse]):
    """One open AwaitMessages call."""

    waits_at_stop = False
    answer_type = pb.AwaitMessagesResponse
    request_bytes = 2 << 10

    def __init__(self, wait: Callable[[pb.AwaitMessagesRequest], Awaitable[bool]]) -> None:
        super().__init__()
        self._wait = wait

    async def process(self, request: pb.AwaitMessagesRequest) -> pb.AwaitMessagesResponse:
        """Wait for messages. Errors: those of `MessageWaits.wait`, Invalid."""
        return pb.AwaitMessagesResponse(has_messages=await self._wait(request))
