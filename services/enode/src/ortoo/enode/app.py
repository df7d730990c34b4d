"""Assembly of the enode: store, deferred messages, pops, server, announcements."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ortoo.common.cluster.address_server import resolve_name_servers, update_name_servers
from ortoo.common.cluster.dynamic_settings import DynamicSettings
from ortoo.common.errors.findings import ClusterIdentity, Findings
from ortoo.common.grpc.cluster_token import cluster_channels, cluster_token
from ortoo.common.logs.logger import get_logger
from ortoo.common.machine.descriptors import Descriptors
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.memory_budget import MemoryBudget, memory_bytes
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.service import Running
from ortoo.common.process.settings import LoadedSettings
from ortoo.common.telemetry.findings_service import findings_servicer
from ortoo.common.telemetry.process_metrics import register_connections, register_memory
from ortoo.common.telemetry.role import RoleTelemetry
from ortoo.common.telemetry.settings_service import settings_servicer
from ortoo.enode.appends.router import AppendRouter
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.enode.disk.data_dir import make_data_dir
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.leadership.services import CERTIFICATES_INTERVAL_S, SWITCH_INTERVAL_S, open_enode_services
from ortoo.enode.rpc.service import EnodeService, enode_server
from ortoo.enode.rpc.streams.runner import StreamRunner
from ortoo.enode.settings import EnodeSettings
from ortoo.enode.store.store import Store

_log = get_logger("enode")


@dataclass(frozen=True, slots=True)
class RunningEnode(Running):
    """A running enode, with its store, its topics, and the entry for appends."""

    store: Store
    topics: TopicCopies
    appends: AppendRouter


@contextlib.asynccontextmanager
async def open_enode(
    settings: EnodeSettings,
    *,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    disk: Disk | None = None,
    live: DynamicSettings[EnodeSettings] | None = None,
    descriptors: Descriptors | None = None,
) -> AsyncIterator[RunningEnode]:
    """Run an enode. It serves its stored topics whether or not a name server answers; leaving the block drains it.

    `descriptors` is the role's share of the process's file descriptors; None = all of them.
    Errors: Invalid, Conflict, Unsupported, DataLoss, as `Store.open` and the server.
    """
    clock, randomness = clock or SystemClock(), randomness or Randomness()
    descriptors = descriptors or Descriptors.of_process()
    disk = disk or RealDisk(descriptors.files)
    live = live or DynamicSettings(LoadedSettings(settings, {}), clock=clock)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    telemetry, token = RoleTelemetry("enode", settings, clock), cluster_token(settings.cluster_token_file, clock)
    async with contextlib.AsyncExitStack() as parts:
        make_data_dir(disk, settings.data_dir)
        store_settings = settings.store_settings.with_memory_limits(settings.memory_share_percent, memory_bytes())
        store = await Store.open(
            settings.data_dir, settings=store_settings, disk=disk, clock=clock, randomness=randomness
        )
        parts.push_async_callback(store.close)
        channels = await parts.enter_async_context(cluster_channels(settings, token))
        background = await parts.enter_async_context(Background("enode"))
        name_servers = await resolve_name_servers(settings.namesrv_address, background=background, clock=clock)
        enode_services = await parts.enter_async_context(
            open_enode_services(store, settings, background, clock=clock, randomness=randomness)
        )
        handlers = enode_services.handlers
        memory = MemoryBudget(settings.memory_budget_bytes, clock, spared_percent=settings.memory_share_percent)
        register_memory(telemetry.metrics, memory)
        found = Findings("enode", settings.name)
        found.identity = lambda: ClusterIdentity(handlers.topics.directory_id, name_servers.addresses)
        services = [findings_servicer(found, clock), settings_servicer("enode", live)]
        server = enode_server(handlers, settings, telemetry.calls, token, memory, services, descriptors.connections)
        register_connections(telemetry.metrics, server.ended_connections)
        handlers.streams = StreamRunner(background, server.draining)
        background.run_contained("drain", _close_waiting_pops(handlers, server.draining))
        parts.callback(enode_services.register_metrics(telemetry.metrics))
        await parts.enter_async_context(telemetry.open(ready=lambda: server.serving))
        await parts.enter_async_context(server)

        own_findings = await parts.enter_async_context(enode_services.announce(server, name_servers, channels))
        found.sources += [*own_findings, server.findings, memory.findings, telemetry.findings, live.findings]
        background.every("certificates", CERTIFICATES_INTERVAL_S, channels.renew, clock=clock)
        live.appliers += [lambda new: update_name_servers(name_servers, new.namesrv_address), enode_services.apply]
        yield RunningEnode(
            settings.name,
            server.cluster_address or server.address,
            store,
            handlers.topics,
            enode_services.appends,
            reload=live.reload,
            health_address=server.address,
        )


async def _close_waiting_pops(handlers: EnodeService, draining: asyncio.Event) -> None:
    """At a shutdown, answer waiting pops while their streams are open: snodes may wait for other enodes with them."""
    await draining.wait()
    await handlers.pops.lines.close()
