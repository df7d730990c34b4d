"""ReplicationService: the log, as it becomes durable, to each replica that follows."""

import contextlib
from collections.abc import AsyncIterator
from functools import partial

from ortoo.common.errors import Conflict, Invalid, OrtooError
from ortoo.common.grpc.cluster_token import ClusterToken, cluster_guards
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.fields import write
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.tls import cluster_tls
from ortoo.common.process.background import Background
from ortoo.common.process.containment import Scope
from ortoo.common.process.logs import get_logger
from ortoo.enode.cluster.node_role import NodeRole, replication_address_of
from ortoo.enode.disk.identity import Identity
from ortoo.enode.replication.followers import Follower, Followers
from ortoo.enode.replication.log_bytes import LogBytes, LogSource
from ortoo.enode.rpc.streams.all import Streams
from ortoo.enode.rpc.streams.outbox import Outbox
from ortoo.enode.settings import Settings
from ortoo.enode.store.engine import Engine
from ortoo.v1 import replication_pb2 as pb
from ortoo.v1.replication_pb2_grpc import ReplicationServiceServicer, add_ReplicationServiceServicer_to_server

NAME = "ortoo.v1.ReplicationService"
_log = get_logger("enode")


class ReplicationService(ReplicationServiceServicer):
    """The log of one enode, for its replicas."""

    def __init__(self, engine: Engine, followers: Followers) -> None:
        self._engine = engine
        self._followers = followers
        self.streams: Streams

    async def Follow(
        self, request_iterator: AsyncIterator[pb.FollowRequest], context: Context
    ) -> AsyncIterator[pb.FollowResponse]:
        """Send what the replica lacks, then what comes."""
        stream = FollowStream(self._engine.identity, LogSource(self._engine), self._followers)
        async for answer in self.streams.run("follower", stream, request_iterator):
            yield answer


class FollowStream:
    """One open Follow call."""

    waits_at_stop = False

    def __init__(self, identity: Identity, source: LogSource, followers: Followers) -> None:
        self.outbox = Outbox[pb.FollowResponse](bytes_max=1)  # one part of the log at a time, whatever its size
        self._identity = identity
        self._source = source
        self._followers = followers

    async def serve(self, requests: AsyncIterator[pb.FollowRequest], scope: Scope) -> None:
        """Take what the replica says it has, as long as it speaks. Errors: Invalid, Conflict, OutOfRange."""
        follower = await self._admitted(await anext(requests, None))
        self._followers.join(follower)
        try:
            scope.start("send", self._send(follower))
            async for request in requests:
                self._followers.has(follower, request.durable_position)
        finally:
            self._followers.leave(follower)

    async def _admitted(self, first: pb.FollowRequest | None) -> Follower:
        ours = self._identity
        if first is None or first.replica_id < 1:
            raise Invalid("the first message must say which replica this is, 1 or more", field="replica_id")
        if (first.cluster, first.enode) != (ours.cluster, ours.enode):
            raise Invalid(
                f"this is enode {ours.enode!r} of cluster {ours.cluster!r}, not {first.enode!r} of {first.cluster!r}",
                field="enode",
            )
        if first.store_id and first.store_id != ours.store_id:
            raise Invalid(
                f"this enode's store is {ours.store_id}; a copy of {first.store_id} cannot follow it: start the "
                "replica with an empty folder",
                field="store_id",
            )
        if first.durable_position:
            await self._source.check_tail(first.durable_position, first.tail_bytes, first.tail_crc32c)
        return Follower(first.replica_id, first.address, first.durable_position or self._source.begin_position)

    async def _send(self, follower: Follower) -> None:
        """Send the log from where the replica has it, until the replica is to go."""
        try:
            await self._send_log(follower)
        except OrtooError as error:
            self.outbox.fail(error)
        else:
            self.outbox.end(abandon_open=True)

    async def _send_log(self, follower: Follower) -> None:
        source, position = self._source, follower.durable_position
        self.outbox.tell(self._answer(self._identity))
        while not follower.is_over:
            follower.wake.clear()
            if position >= source.durable_position:
                await follower.wake.wait()
                continue
            await self.outbox.reserve(1)
            part = await source.read(position)
            position = part.end_position
            self.outbox.tell(self._answer(part), 1)

    def _answer(self, content: Identity | LogBytes) -> pb.FollowResponse:
        begin, durable = self._source.begin_position, self._source.durable_position
        return write(pb.FollowResponse, content, begin_position=begin, durable_position=durable)


@contextlib.asynccontextmanager
async def open_replication(
    settings: Settings, engine: Engine, followers: Followers, background: Background, token: ClusterToken | None
) -> AsyncIterator[str]:
    """Let replicas follow the log; yields the address where they can, empty if nowhere.

    Errors: Conflict when an address that was set is taken; when the default one is, nobody can follow.
    """
    address = replication_address_of(settings.replication_address, settings.listen_address)
    async with contextlib.AsyncExitStack() as parts:
        parts.callback(followers.end)
        if address:
            handlers = ReplicationService(engine, followers)
            add = partial(add_ReplicationServiceServicer_to_server, handlers)
            tls = cluster_tls(settings)
            server = GrpcServer(
                address if tls is None else "",
                [(NAME, add)],
                interceptors=cluster_guards(token),
                cluster_tls=None if tls is None else tls.listener(address),
                grace_s=settings.stop_grace_s,
            )
            handlers.streams = Streams(background, server.draining)
            try:
                await parts.enter_async_context(server)
                address = server.address or server.cluster_address
            except Conflict as error:
                if settings.replication_address or settings.role is NodeRole.SYNC_MASTER:
                    raise Conflict(error.message, field="replication_address") from error
                _log.warning("no replica can follow", reason=str(error))
                address = ""
        yield address
