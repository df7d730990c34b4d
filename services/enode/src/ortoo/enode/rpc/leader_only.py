"""EnodeService of a member: what leads answers, and what does not says who leads."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.grpc.errors import Context
from ortoo.enode.rpc.streams.all import Streams
from ortoo.enode.rpc.streams.fetch import CommittedStream
from ortoo.enode.store.engine import Engine
from ortoo.v1 import enode_pb2
from ortoo.v1.enode_pb2_grpc import EnodeServiceServicer

STREAMS = frozenset({"Append", "FetchBatches", "WatchHalves", "Attach", "Lease"})


Reads = Callable[[AsyncIterator[enode_pb2.FetchBatchesRequest], Context], AsyncIterator[Bulky]]


def committed_reads(engine: Engine, streams: Streams, moved: Callable[[], OrtooError]) -> Reads:
    """FetchBatches of a member, for readers who take any member's word for what is committed; it waits for nothing."""
    return lambda requests, context: streams.run("fetch", CommittedStream(engine, moved), requests)


class LeaderOnly:
    """Stands for the service of the reign that is on, method by method."""

    def __init__(self, moved: Callable[[], OrtooError]) -> None:
        self.service: EnodeServiceServicer | None = None
        """Of the reign; None while another member leads."""
        self.reads: Reads | None = None
        """Of the log that is open, whoever leads; None while none is, or nothing of it is known to be committed."""
        self._moved = moved

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in STREAMS:

            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                reads = self.reads if self.service is None and name == "FetchBatches" else None
                async for answer in (reads or getattr(self._leading(), name))(request, context):
                    yield answer
                    del answer

            return stream

        async def unary(request: Any, context: Any) -> Any:
            return await getattr(self._leading(), name)(request, context)

        return unary

    def _leading(self) -> EnodeServiceServicer:
        if self.service is None:
            raise self._moved()
        return self.service
