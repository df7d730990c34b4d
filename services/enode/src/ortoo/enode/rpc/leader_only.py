"""EnodeService of a replica: the leader answers, and other replicas refuse with the leader's address."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.errors import Context
from ortoo.enode.rpc.streams.fetch import CommittedStream
from ortoo.enode.rpc.streams.runner import StreamRunner
from ortoo.enode.store.engine import Engine
from ortoo.v1 import enode_pb2
from ortoo.v1.enode_pb2_grpc import EnodeServiceServicer

STREAMS = frozenset({"Append", "FetchBatches", "WatchHalves", "Attach", "Lease"})


Reads = Callable[[AsyncIterator[enode_pb2.FetchBatchesRequest], Context], AsyncIterator[BulkMessage]]


def read_committed(engine: Engine, streams: StreamRunner, not_leading_error: Callable[[], OrtooError]) -> Reads:
    """The method FetchBatches of any replica, for readers that accept a follower's committed data. No read waits."""
    return lambda requests, context: streams.run("fetch", CommittedStream(engine, not_leading_error), requests)


class LeaderOnlyService:
    """Forwards each method to the service of the current term of leadership."""

    def __init__(self, not_leading_error: Callable[[], OrtooError]) -> None:
        self.service: EnodeServiceServicer | None = None
        """The service of this replica's term; None while another replica leads."""
        self.committed_reads: Reads | None = None
        """Committed reads of the open log; None while no log is open or no committed position is known."""
        self._not_leading_error = not_leading_error

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in STREAMS:

            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                reads = self.committed_reads if self.service is None and name == "FetchBatches" else None
                async for answer in (reads or getattr(self._leader_service(), name))(request, context):
                    yield answer
                    del answer

            return stream

        async def unary(request: Any, context: Any) -> Any:
            return await getattr(self._leader_service(), name)(request, context)

        return unary

    def _leader_service(self) -> EnodeServiceServicer:
        if self.service is None:
            raise self._not_leading_error()
        return self.service
