"""A replica, opened part by part: the copy of the log, its health, and what follows the enode."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ortoo.common.cluster.address_server import found_name_servers, listed_again
from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.errors import NotFound, OrtooError
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.logs import get_logger
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.common.process.service import Running
from ortoo.common.telemetry.role import Telemetry
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.log.disk_work import ThreadedDiskWork
from ortoo.enode.replication.log_copy import LogCopy
from ortoo.enode.rpc.following import Following, replication_address
from ortoo.enode.rpc.service import public_server
from ortoo.enode.settings import Settings

_log = get_logger("replica")


@dataclass(frozen=True, slots=True)
class RunningReplica(Running):
    """A replica that is up."""

    copy: LogCopy


@contextlib.asynccontextmanager
async def open_replica(
    settings: Settings,
    *,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    disk: Disk | None = None,
) -> AsyncIterator[RunningReplica]:
    """Run a replica of the enode that has its name. It serves nobody; its health says whether it follows.

    Errors: Conflict when the folder is in use or is a copy of another log; DataLoss, Unsupported as a store says them.
    """
    clock, randomness, disk = clock or SystemClock(), randomness or Randomness(), disk or RealDisk()
    telemetry = Telemetry("enode", settings, clock)
    async with contextlib.AsyncExitStack() as parts:
        copy = LogCopy(disk, settings.data_dir, settings.cluster, settings.name)
        parts.callback(copy.close)
        work = ThreadedDiskWork(asyncio.get_running_loop(), read_threads=1)
        parts.callback(work.close)
        channels = await parts.enter_async_context(Channels())
        background = await parts.enter_async_context(Background("replica"))
        name_servers = await found_name_servers(settings.namesrv_address, background=background, clock=clock)
        server = public_server(settings, telemetry.calls)
        telemetry.metrics.gauge(
            "ortoo_replica_position", "Up to where this replica has the log on disk.", lambda: copy.position
        )
        await parts.enter_async_context(telemetry.open(ready=lambda: server.serving))
        await parts.enter_async_context(server)
        await server.set_serving(False)
        follower = Follower(settings, Following(copy, work, settings), server, name_servers, channels)
        parts.callback(background.spawn("follow", follower.run(clock, randomness)).cancel)
        yield RunningReplica(
            settings.name,
            server.address,
            copy,
            reload=lambda new: listed_again(name_servers, new.namesrv_address),
        )


@dataclass(frozen=True, slots=True)
class Follower:
    """Connects again and again, for as long as that can help."""

    settings: Settings
    following: Following
    server: GrpcServer
    name_servers: NameServers
    channels: Channels

    async def run(self, clock: Clock, randomness: Randomness) -> None:
        """Follow for ever. Errors: those that will not go away by waiting, such as another history."""
        backoff, attempt = Backoff(first_s=0.1, max_s=2.0), 0
        while True:
            name_server = self.name_servers.current
            try:
                address = await replication_address(self.settings.name, self.name_servers, self.channels)
                await self.server.set_serving(True)
                attempt = 0
                own = self.settings.advertised_address or self.server.address
                await self.following.run(address, own, self.channels)
                reason = "the enode ended the connection"
            except OrtooError as error:
                if not error.retriable and not isinstance(error, NotFound):
                    raise
                reason = str(error)
                self.name_servers.next_after(name_server)
            await self.server.set_serving(False)
            if attempt == 0:
                _log.warning("following nobody; trying on", reason=reason)
            await clock.sleep(backoff.delay_s(attempt, randomness))
            attempt += 1
