"""The enode, opened room by room: store, deferred messages, pops, server, announcements; and a replica of one."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from ortoo.common.cluster.address_server import found_name_servers, listed_again
from ortoo.common.cluster.addresses import reached_at
from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.errors import Invalid, NotFound, OrtooError
from ortoo.common.errors.findings import Findings
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.cluster_token import cluster_channels, cluster_token
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.tls import cluster_tls
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.logs import get_logger
from ortoo.common.process.memory_budget import MemoryBudget, memory_bytes
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.common.process.service import Running
from ortoo.common.telemetry.findings_service import findings_servicer
from ortoo.common.telemetry.process_metrics import register_memory
from ortoo.common.telemetry.role import Telemetry
from ortoo.enode.cluster.node_role import NodeRole
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.enode.deferred.intake import Intake
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.log.flushing.disk_work import ThreadedDiskWork
from ortoo.enode.observe.findings import EnodeFindings, FlushPace
from ortoo.enode.observe.metrics import register, register_followers, register_groups, register_pops
from ortoo.enode.pops.leasing import Leasing
from ortoo.enode.reigns.serving import announced, open_parts
from ortoo.enode.replication.followers import Followers
from ortoo.enode.replication.log_copy import LogCopy
from ortoo.enode.rpc.following import Following, replication_address
from ortoo.enode.rpc.replication import open_replication
from ortoo.enode.rpc.service import EnodeService, enode_server, public_server, reachable_address
from ortoo.enode.settings import Settings
from ortoo.enode.store.memory_share import within
from ortoo.enode.store.store import Store
from ortoo.v1 import topic_pb2

SWITCH_INTERVAL_S = 0.0001
CERTIFICATES_INTERVAL_S = 1.0
"""How often the files of certificates are looked at."""
_log = get_logger("enode")
_replica_log = get_logger("replica")


@dataclass(frozen=True, slots=True)
class RunningEnode(Running):
    """An enode that is up. A process that also holds a snode may call the store without the wire."""

    store: Store
    topics: TopicCopies
    intake: Intake
    pops: Leasing
    service: EnodeService


@contextlib.asynccontextmanager
async def open_enode(
    settings: Settings,
    *,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    disk: Disk | None = None,
) -> AsyncIterator[RunningEnode]:
    """Run an enode. It serves from its copies whether or not a name server answers; leaving the block drains it.

    Errors: Invalid, Conflict, Unsupported, DataLoss, as `Store.open` and the server say them.
    """
    clock, randomness, disk = clock or SystemClock(), randomness or Randomness(), disk or RealDisk()
    # The flush thread needs the interpreter for a moment after each fdatasync. Beside a busy event loop it waits a
    # whole switch interval for that: with CPython's 5 ms a flush of 0.12 ms takes 11.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    telemetry, token = Telemetry("enode", settings, clock), cluster_token(settings.cluster_token_file, clock)
    async with contextlib.AsyncExitStack() as parts:
        _make_folder(disk, settings.data_dir)
        chosen = within(settings.store_settings, settings.memory_share_percent, memory_bytes())
        store = await Store.open(settings.data_dir, settings=chosen, disk=disk, clock=clock, randomness=randomness)
        parts.push_async_callback(store.close)
        channels = await parts.enter_async_context(cluster_channels(token, cluster_tls(settings)))
        background = await parts.enter_async_context(Background("enode"))
        name_servers = await found_name_servers(settings.namesrv_address, background=background, clock=clock)
        serving = await parts.enter_async_context(
            open_parts(store, settings, background, clock=clock, randomness=randomness)
        )
        handlers = serving.handlers
        memory = MemoryBudget(settings.memory_budget_bytes, clock, spared_percent=settings.memory_share_percent)
        register_memory(telemetry.metrics, memory)
        found, pace = Findings("enode", settings.name), FlushPace(store)
        server = enode_server(
            handlers, settings, background, telemetry.calls, token, memory, [findings_servicer(found, clock)]
        )
        followers = Followers(store.engine.appender, is_waited_for=settings.role is NodeRole.SYNC_MASTER)
        register(telemetry.metrics, store, clock)
        register_pops(telemetry.metrics, store, serving.pops, serving.sending)
        register_groups(telemetry.metrics, serving.groups)
        register_followers(telemetry.metrics, followers)
        replication_address = await parts.enter_async_context(
            open_replication(settings, store.engine, followers, background, token)
        )
        await parts.enter_async_context(telemetry.open(ready=lambda: server.serving))
        await parts.enter_async_context(server)

        enode = topic_pb2.Enode(
            name=settings.name,
            address=reachable_address(settings, server),
            store_id=store.engine.identity.store_id,
            role=settings.role,
            replica_id=settings.replica_id,
            replication_address=reached_at(replication_address, settings.advertised_address),
        )
        leases = await parts.enter_async_context(
            announced(
                serving,
                enode,
                followers.all,
                settings,
                background,
                name_servers,
                channels,
                clock=clock,
                randomness=randomness,
            )
        )
        followers.on_change = leases.hurry
        own = EnodeFindings(store, serving.pops, pace, clock)
        found.sources += [own.disk, own.messages, leases.findings, memory.findings, telemetry.findings]
        background.every("certificates", CERTIFICATES_INTERVAL_S, channels.renew, clock=clock)
        health = Health(store, server, leases.hurry, pace)
        background.every("health", settings.health_interval_s, health.look, clock=clock)
        yield RunningEnode(
            settings.name,
            server.cluster_address or server.address,
            store,
            serving.topics,
            serving.intake,
            serving.pops,
            handlers,
            reload=lambda new: listed_again(name_servers, new.namesrv_address),
            health_address=server.address,
        )


def _make_folder(disk: Disk, folder: Path) -> None:
    try:
        disk.make_folder(folder)
    except OSError as error:
        raise Invalid(
            f"the folder {folder} cannot be made: {error.strerror}; give one that this user may write", field="data_dir"
        ) from error


@dataclass(slots=True)
class Health:
    """Says whether this enode takes messages: by grpc.health.v1, and with `changed` to the name servers."""

    store: Store
    server: GrpcServer
    changed: Callable[[], object]
    pace: FlushPace
    serving: bool = True

    async def look(self) -> None:
        """Compare with the store, and tell a change."""
        self.pace.look()
        description = self.store.describe()
        if description.writable == self.serving or self.server.draining.is_set():
            return
        self.serving = description.writable
        await self.server.set_serving(self.serving)
        self.changed()
        if self.store.engine.appender.failure:
            self.server.never_again()
        if self.serving:
            _log.info("taking messages again")
        else:
            _log.error("takes no messages", reason=description.reason)


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
    telemetry, token = Telemetry("enode", settings, clock), cluster_token(settings.cluster_token_file, clock)
    async with contextlib.AsyncExitStack() as parts:
        copy = LogCopy(disk, settings.data_dir, settings.cluster, settings.name)
        parts.callback(copy.close)
        work = ThreadedDiskWork(asyncio.get_running_loop(), read_threads=1)
        parts.callback(work.close)
        channels = await parts.enter_async_context(cluster_channels(token, cluster_tls(settings)))
        background = await parts.enter_async_context(Background("replica"))
        name_servers = await found_name_servers(settings.namesrv_address, background=background, clock=clock)
        server = public_server(settings, telemetry.calls, token)
        telemetry.metrics.gauge(
            "ortoo_replica_position", "Up to where this replica has the log on disk.", lambda: copy.position
        )
        await parts.enter_async_context(telemetry.open(ready=lambda: server.serving))
        await parts.enter_async_context(server)
        await server.set_serving(False)
        background.every("certificates", CERTIFICATES_INTERVAL_S, channels.renew, clock=clock)
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
        """Follow for ever. Errors: those that will not go away by waiting, such as another history.

        They end the process, for it does nothing else.
        """
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
                _replica_log.warning("following nobody; trying on", reason=reason)
            await clock.sleep(backoff.delay_s(attempt, randomness))
            attempt += 1
