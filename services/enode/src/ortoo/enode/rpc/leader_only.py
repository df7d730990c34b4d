"""EnodeService of a member: what leads answers, and what does not says who leads."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.v1.enode_pb2_grpc import EnodeServiceServicer

STREAMS = frozenset({"Append", "FetchBatches", "WatchHalves", "Attach"})


class LeaderOnly:
    """Stands for the service of the reign that is on, method by method."""

    def __init__(self, moved: Callable[[], OrtooError]) -> None:
        self.service: EnodeServiceServicer | None = None
        """Of the reign; None while another member leads."""
        self._moved = moved

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in STREAMS:

            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                async for answer in getattr(self._leading(), name)(request, context):
                    yield answer

            return stream

        async def unary(request: Any, context: Any) -> Any:
            return await getattr(self._leading(), name)(request, context)

        return unary

    def _leading(self) -> EnodeServiceServicer:
        if self.service is None:
            raise self._moved()
        return self.service
