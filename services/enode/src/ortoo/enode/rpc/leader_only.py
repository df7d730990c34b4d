"""EnodeService of a replica: the leader answers, and other replicas refuse with the leader's address."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.grpc.errors import Context
from ortoo.enode.rpc.streams.runner import Streams
from ortoo.enode.rpc.streams.fetch import CommittedStream
from ortoo.enode.store.engine import Engine
from ortoo.v1 import enode_pb2
from ortoo.v1.enode_pb2_grpc import EnodeServiceServicer

STREAMS = frozenset({"Append", "FetchBatches", "WatchHalves", "Attach", "Lease"})


Reads = Callable[[AsyncIterator[enode_pb2.FetchBatchesRequest], Context], AsyncIterator[Bulky]]


def committed_reads(engine: Engine, streams: Streams, moved: Callable[[], OrtooError]) -> Reads:
    """FetchBatches of any replica, for readers that accept committed data of a follower; it never waits."""
    return lambda requests, context: streams.run("fetch", CommittedStream(engine, moved), requests)


class LeaderOnly:
    """Forwards each method to the service of the current term of leadership."""

    def __init__(self, moved: Callable[[], OrtooError]) -> None:
        self.service: EnodeServiceServicer | None = None
        """The service of this replica's term; None while another replica leads."""
        self.reads: Reads | None = None
        """Committed reads of the open log; None while no log is open or no committed position is known."""
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
