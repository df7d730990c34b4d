"""The replica's end of ReplicationService: finds its enode, takes the log, says what it has."""

import asyncio
from collections.abc import AsyncIterator

from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.cluster.route_news import whole_news
from ortoo.common.errors import NotFound
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.enode.disk.identity import Identity
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.enode.replication.log_bytes import LogBytes
from ortoo.enode.replication.log_copy import LogCopy
from ortoo.enode.settings import Settings
from ortoo.v1 import namesrv_pb2, namesrv_pb2_grpc
from ortoo.v1 import replication_pb2 as pb
from ortoo.v1.replication_pb2_grpc import ReplicationServiceStub

ASK_TIMEOUT_S = 3.0


async def replication_address(enode: str, name_servers: NameServers, channels: Channels) -> str:
    """Where the log of an enode can be followed. Errors: NotFound, and what the name server answers."""
    address = name_servers.current
    stub = namesrv_pb2_grpc.NameServiceStub(channels.to(address))
    call = stub.WatchRoutes(namesrv_pb2.WatchRoutesRequest(), timeout=ASK_TIMEOUT_S)
    try:
        with rpc_errors(f"name server {address}"):
            async for news in whole_news(call):
                for one in news.enodes:
                    if one.name == enode and one.alive and one.replication_address:
                        return one.replication_address
                break
    finally:
        call.cancel()
    raise NotFound(f"name server {address} knows no living enode {enode} that can be followed", field="name")


class Following:
    """One connection to the enode."""

    def __init__(self, copy: LogCopy, work: DiskWork, settings: Settings) -> None:
        self._copy = copy
        self._work = work
        self._settings = settings
        self._written = asyncio.Event()

    async def run(self, address: str, own_address: str, channels: Channels) -> None:
        """Follow until the connection ends. Errors: what the enode answers, Conflict, OSError."""
        stub = ReplicationServiceStub(channels.to(address))
        with rpc_errors(f"enode {address}"):
            async for answer in stub.Follow(self._requests(own_address)):
                await self._take(answer)

    async def _requests(self, own_address: str) -> AsyncIterator[pb.FollowRequest]:
        copy, settings = self._copy, self._settings
        tail_crc32c, tail_bytes = await self._work.run(copy.tail_crc32c)
        yield pb.FollowRequest(
            cluster=settings.cluster,
            enode=settings.name,
            replica_id=settings.replica_id,
            address=own_address,
            store_id=copy.store_id,
            durable_position=copy.position,
            tail_crc32c=tail_crc32c,
            tail_bytes=tail_bytes,
        )
        while True:
            await self._written.wait()
            self._written.clear()
            yield pb.FollowRequest(durable_position=copy.position)

    async def _take(self, answer: pb.FollowResponse) -> None:
        copy, work = self._copy, self._work
        if answer.store_id:
            ours = self._settings
            await work.run(copy.claim, Identity(ours.cluster, ours.name, answer.store_id, answer.created_at_ms))
        if answer.data:
            part = LogBytes(answer.segment_position, answer.segment_bytes, answer.position, answer.data)
            is_new_segment = answer.position == answer.segment_position
            await work.run(copy.write, part)
            if is_new_segment:
                await work.run(copy.forget_below, answer.begin_position)
            self._written.set()
