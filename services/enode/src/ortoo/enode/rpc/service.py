"""EnodeService: all its methods, with the long streams, and the server."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from ortoo.common.cluster.addresses import advertised_address_of
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.cluster_token import ClusterToken
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.inner.guard import inner_guards
from ortoo.common.grpc.layers.layer import Layer
from ortoo.common.grpc.server import AddServicer, GrpcServer
from ortoo.common.grpc.tls import cluster_listener
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.enode.rpc.deferred import CheckStream, DeferredHandlers
from ortoo.enode.rpc.groups import GroupHandlers
from ortoo.enode.rpc.leader_only import LeaderOnlyService
from ortoo.enode.rpc.locks import LockHandlers
from ortoo.enode.rpc.pop import PopHandlers
from ortoo.enode.rpc.schedules import ScheduleHandlers
from ortoo.enode.rpc.storage import StorageHandlers
from ortoo.enode.rpc.streams.append import AppendStream
from ortoo.enode.rpc.streams.attach import AttachStream
from ortoo.enode.rpc.streams.awaiting import AwaitStream
from ortoo.enode.rpc.streams.fetch import FetchStream
from ortoo.enode.rpc.streams.lease import LeaseStream
from ortoo.enode.settings import EnodeSettings
from ortoo.v1 import enode_deferred_pb2 as deferred_pb
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import enode_pop_pb2 as pop_pb
from ortoo.v1.enode_pb2_grpc import add_EnodeServiceServicer_to_server

NAME = "ortoo.v1.EnodeService"


class EnodeService(GroupHandlers, StorageHandlers, LockHandlers, PopHandlers, DeferredHandlers, ScheduleHandlers):
    """The gRPC service with which snodes use the storage of one enode."""

    async def Append(  # type: ignore[override]  # see bulk_calls
        self, request_iterator: AsyncIterator[BulkMessage], context: Context
    ) -> AsyncIterator[pb.AppendResponse]:
        """Store batches."""
        stream = AppendStream(self.appends, self.topics)
        async for answer in self.streams.run("append", stream, request_iterator):
            yield answer
            del answer

    async def FetchBatches(  # type: ignore[override]  # see bulk_calls
        self, request_iterator: AsyncIterator[pb.FetchBatchesRequest], context: Context
    ) -> AsyncIterator[BulkMessage]:
        """Read batches. If the request has a wait time, wait for new batches."""
        stream = FetchStream(self.store, self.topics)
        async for answer in self.streams.run("fetch", stream, request_iterator):
            yield answer
            del answer

    async def Lease(
        self, request_iterator: AsyncIterator[pop_pb.LeaseRequest], context: Context
    ) -> AsyncIterator[pop_pb.LeaseResponse]:
        """Pop and settle messages."""
        stream = LeaseStream(lambda wish: self.PopQueues(wish, context), lambda done: self.SettlePopped(done, context))
        async for answer in self.streams.run("lease", stream, request_iterator):
            yield answer
            del answer

    async def AwaitMessages(
        self, request_iterator: AsyncIterator[pop_pb.AwaitMessagesRequest], context: Context
    ) -> AsyncIterator[pop_pb.AwaitMessagesResponse]:
        """Wait for messages that pops may return."""
        async for answer in self.streams.run("await messages", AwaitStream(self.await_messages), request_iterator):
            yield answer
            del answer

    async def WatchHalves(
        self, request: deferred_pb.WatchHalvesRequest, context: Context
    ) -> AsyncIterator[deferred_pb.WatchHalvesResponse]:
        """Send the transactions whose check is due."""
        stream = CheckStream(self.appends.transactions, request.producer_groups)
        async for answer in self.streams.run("checks", stream, _no_requests()):
            yield answer
            del answer

    async def Attach(
        self, request_iterator: AsyncIterator[pb.AttachRequest], context: Context
    ) -> AsyncIterator[pb.AttachResponse]:
        """Track that a snode is connected, and notify it of free locks."""
        async for answer in self.streams.run("attach", AttachStream(self.attached), request_iterator):
            yield answer
            del answer


def reachable_address(settings: EnodeSettings, server: GrpcServer) -> str:
    """The address of `server` for other processes: with TLS the cluster port on the advertised host."""
    if server.cluster_address:
        return advertised_address_of(server.cluster_address, settings.advertised_address)
    return settings.advertised_address or server.address


def enode_server(
    service: EnodeService | LeaderOnlyService,
    settings: EnodeSettings,
    calls: Layer,
    token: ClusterToken | None,
    memory: MemoryBudget,
    others: Sequence[tuple[str, AddServicer]],
    descriptors_max: int,
) -> GrpcServer:
    """The server of EnodeService and `others`, by the enode's settings; not yet listening.

    `calls` counts the server's calls, and clients must send `token`. The connections of its ports take at most
    `descriptors_max` descriptors. The server is not ready until the enode is registered.
    """
    return GrpcServer(
        settings.listen_address,
        [_servicer(service), *others],
        outermost=[calls],
        guards=inner_guards(settings, token),
        cluster_tls=cluster_listener(settings),
        grace_s=settings.stop_grace_s,
        drain_delay_s=settings.drain_delay_s,
        connections_max=settings.connections_max,
        connections_per_address_max=settings.connections_per_address_max,
        descriptors_max=descriptors_max,
        memory=memory,
        is_ready=False,
        wire=settings.transport,
    )


def _servicer(service: EnodeService | LeaderOnlyService) -> tuple[str, AddServicer]:
    def add(server: Any) -> None:
        bulk_calls.add_service(server, add_EnodeServiceServicer_to_server, service, "Append", "FetchBatches")

    return NAME, add


async def _no_requests() -> AsyncIterator[Any]:
    return
    yield
