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


class CommittedStreams:
    """FetchBatches of a member, for readers who take any member's word for what is committed."""

    def __init__(self, engine: Engine, streams: Streams, moved: Callable[[], OrtooError]) -> None:
        self._engine = engine
        self._streams = streams
        self._moved = moved

    async def FetchBatches(
        self, request_iterator: AsyncIterator[enode_pb2.FetchBatchesRequest], context: Context
    ) -> AsyncIterator[Bulky]:
        """Read batches, and wait for none."""
        stream = CommittedStream(self._engine, self._moved)
        async for answer in self._streams.run("fetch", stream, request_iterator):
            yield answer
            del answer


class LeaderOnly:
    """Stands for the service of the reign that is on, method by method."""

    def __init__(self, moved: Callable[[], OrtooError]) -> None:
        self.service: EnodeServiceServicer | None = None
        """Of the reign; None while another member leads."""
        self.reads: CommittedStreams | None = None
        """Of the log that is open, whoever leads; None while none is, or nothing of it is known to be committed."""
        self._moved = moved

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in STREAMS:

            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                reads = self.reads if self.service is None and name == "FetchBatches" else None
                async for answer in getattr(reads or self._leading(), name)(request, context):
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
