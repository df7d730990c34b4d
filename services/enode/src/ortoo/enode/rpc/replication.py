"""ReplicationService: the log, as it becomes durable, to each replica that follows."""

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc

from ortoo.common.errors import Invalid
from ortoo.common.grpc.errors import Context
from ortoo.common.process.background import Background
from ortoo.enode.replication.followers import Follower, Followers
from ortoo.enode.replication.log_bytes import LogSource
from ortoo.enode.store.engine import Engine
from ortoo.v1 import replication_pb2 as pb
from ortoo.v1.replication_pb2_grpc import ReplicationServiceServicer, add_ReplicationServiceServicer_to_server

NAME = "ortoo.v1.ReplicationService"


class ReplicationService(ReplicationServiceServicer):
    """The log of one enode, for its replicas."""

    def __init__(self, engine: Engine, followers: Followers, background: Background) -> None:
        self._identity = engine.identity
        self._source = LogSource(engine)
        self._followers = followers
        self._background = background

    async def Follow(
        self, request_iterator: AsyncIterator[pb.FollowRequest], context: Context
    ) -> AsyncIterator[pb.FollowResponse]:
        """Send what the replica lacks, then what comes."""
        first = await anext(request_iterator, None)
        follower = await self._admitted(first)
        self._followers.join(follower)
        reading = self._background.spawn("follower", self._read(request_iterator, follower))
        try:
            async for answer in self._send(follower):
                yield answer
        finally:
            self._followers.leave(follower)
            reading.cancel()

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

    async def _read(self, requests: AsyncIterator[pb.FollowRequest], follower: Follower) -> None:
        try:
            async for request in requests:
                self._followers.has(follower, request.durable_position)
        except (grpc.aio.AbortError, grpc.aio.UsageError, grpc.RpcError):
            pass  # the replica has gone
        finally:
            self._followers.leave(follower)

    async def _send(self, follower: Follower) -> AsyncIterator[pb.FollowResponse]:
        source, position = self._source, follower.durable_position
        yield pb.FollowResponse(
            store_id=self._identity.store_id,
            created_at_ms=self._identity.created_at_ms,
            begin_position=source.begin_position,
            durable_position=source.durable_position,
        )
        while not follower.is_over:
            follower.wake.clear()
            if position >= source.durable_position:
                await follower.wake.wait()
                continue
            part = await source.read(position)
            position = part.end_position
            yield pb.FollowResponse(
                begin_position=source.begin_position,
                segment_position=part.segment_position,
                segment_bytes=part.segment_bytes,
                position=part.position,
                data=part.data,
                durable_position=source.durable_position,
            )


async def end_at(draining: asyncio.Event, followers: Followers) -> None:
    """Let all followers go when the server stops."""
    await draining.wait()
    for follower in followers.all():
        followers.leave(follower)


def add_to_server(service: ReplicationService) -> Callable[[grpc.aio.Server], None]:
    """What registers `service` at a server."""
    return lambda server: add_ReplicationServiceServicer_to_server(service, server)
