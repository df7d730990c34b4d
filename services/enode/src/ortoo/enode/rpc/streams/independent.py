"""A stream of independent requests: each has a task and an answer of its own, and most of them wait."""

from collections.abc import AsyncIterator
from typing import Any, Generic, Protocol, TypeVar

from ortoo.common.errors import OrtooError, Overloaded
from ortoo.common.errors.status import failure_of
from ortoo.common.grpc.layers.call_memory import current_memory_share
from ortoo.common.process.containment import Scope
from ortoo.enode.rpc.streams.outbox import Outbox
from ortoo.enode.rpc.streams.runner import result_or_error

BYTES_MAX = 32 << 20
"""The bytes of unread answers at which the stream is no longer read."""


class NumberedAnswer(Protocol):
    """An answer with the id of its request."""

    request_id: int

    def ByteSize(self) -> int:
        """The encoded size."""


A = TypeVar("A", bound=NumberedAnswer)


class IndependentRequests(Generic[A]):
    """One open call. The first answer has no content: the call is accepted."""

    waits_at_stop = True
    answer_type: Any
    """The type of the answers; it has a field `failure`."""
    request_bytes: int
    """About the memory of an open request."""

    def __init__(self) -> None:
        self.outbox = Outbox[A](bytes_max=BYTES_MAX)
        self._memory = current_memory_share()

    async def process(self, request: Any) -> A:
        """The answer to a request, without its id. An error becomes the answer."""
        raise NotImplementedError

    async def serve(self, requests: AsyncIterator[Any], scope: Scope) -> None:
        """Confirm the call, then read and start requests; return when the peer ends its side."""
        self.outbox.push(self.answer_type())
        async for request in requests:
            await self.outbox.reserve(0)
            self.outbox.open_requests += 1
            try:
                if self._memory is not None:
                    self._memory.draw_fixed(self.request_bytes, is_request=True)
            except Overloaded as full:
                self._put(self.answer_type(request_id=request.request_id, failure=failure_of(full)))
            else:
                scope.start("request", self._respond(request))

    async def _respond(self, request: Any) -> None:
        try:
            result = await result_or_error("request", self.process(request))
            answer: A = self.answer_type(failure=failure_of(result)) if isinstance(result, OrtooError) else result
            answer.request_id = request.request_id
            self._put(answer)
        finally:
            if self._memory is not None:
                self._memory.release_fixed(self.request_bytes)

    def _put(self, answer: A) -> None:
        cost_bytes = answer.ByteSize()
        self.outbox.charge(cost_bytes)
        self.outbox.put(answer, cost_bytes)
