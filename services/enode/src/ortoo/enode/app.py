"""Assembly of the enode: store, deferred messages, pops, server, announcements."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ortoo.common.cluster.address_server import found_name_servers, listed_again
from ortoo.common.cluster.dynamic_settings import LiveSettings
from ortoo.common.errors.findings import Findings
from ortoo.common.grpc.cluster_token import cluster_channels, cluster_token
from ortoo.common.logs.logger import get_logger
from ortoo.common.machine.descriptors import Descriptors
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.memory_budget import MemoryBudget, memory_bytes
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.service import Running
from ortoo.common.process.settings import Loaded
from ortoo.common.telemetry.findings_service import findings_servicer
from ortoo.common.telemetry.process_metrics import register_connections, register_memory
from ortoo.common.telemetry.role import Telemetry
from ortoo.common.telemetry.settings_service import settings_servicer
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.enode.appends.router import Intake
from ortoo.enode.disk.data_dir import make_data_dir
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.leadership.services import CERTIFICATES_INTERVAL_S, SWITCH_INTERVAL_S, open_parts
from ortoo.enode.rpc.service import EnodeService, enode_server
from ortoo.enode.rpc.streams.runner import Streams
from ortoo.enode.settings import Settings
from ortoo.enode.store.store import Store

_log = get_logger("enode")


@dataclass(frozen=True, slots=True)
class RunningEnode(Running):
    """A running enode, with its store, topics and intake."""

    store: Store
    topics: TopicCopies
    intake: Intake


@contextlib.asynccontextmanager
async def open_enode(
    settings: Settings,
    *,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    disk: Disk | None = None,
    live: LiveSettings[Settings] | None = None,
    descriptors: Descriptors | None = None,
) -> AsyncIterator[RunningEnode]:
    """Run an enode. It serves its stored topics whether or not a name server answers; leaving the block drains it.

    `descriptors` is the role's share of the process's file descriptors; None = all of them.
    Errors: Invalid, Conflict, Unsupported, DataLoss, as `Store.open` and the server.
    """
    clock, randomness = clock or SystemClock(), randomness or Randomness()
    descriptors = descriptors or Descriptors.of_process()
    disk = disk or RealDisk(descriptors.files)
    live = live or LiveSettings(Loaded(settings, {}), clock=clock)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    telemetry, token = Telemetry("enode", settings, clock), cluster_token(settings.cluster_token_file, clock)
    async with contextlib.AsyncExitStack() as parts:
        make_data_dir(disk, settings.data_dir)
        chosen = settings.store_settings.within(settings.memory_share_percent, memory_bytes())
        store = await Store.open(settings.data_dir, settings=chosen, disk=disk, clock=clock, randomness=randomness)
        parts.push_async_callback(store.close)
        channels = await parts.enter_async_context(cluster_channels(settings, token))
        background = await parts.enter_async_context(Background("enode"))
        name_servers = await found_name_servers(settings.namesrv_address, background=background, clock=clock)
        serving = await parts.enter_async_context(
            open_parts(store, settings, background, clock=clock, randomness=randomness)
        )
        handlers = serving.handlers
        memory = MemoryBudget(settings.memory_budget_bytes, clock, spared_percent=settings.memory_share_percent)
        register_memory(telemetry.metrics, memory)
        found = Findings("enode", settings.name)
        services = [findings_servicer(found, clock), settings_servicer("enode", live)]
        server = enode_server(handlers, settings, telemetry.calls, token, memory, services, descriptors.connections)
        register_connections(telemetry.metrics, server.ended_connections)
        handlers.streams = Streams(background, server.draining)
        background.contained("drain", _let_go(handlers, server.draining))
        parts.callback(serving.measured(telemetry.metrics))
        await parts.enter_async_context(telemetry.open(ready=lambda: server.serving))
        await parts.enter_async_context(server)

        own = await parts.enter_async_context(serving.announced(server, name_servers, channels))
        found.sources += [*own, server.findings, memory.findings, telemetry.findings, live.findings]
        background.every("certificates", CERTIFICATES_INTERVAL_S, channels.renew, clock=clock)
        live.appliers += [lambda new: listed_again(name_servers, new.namesrv_address), serving.apply]
        yield RunningEnode(
            settings.name,
            server.cluster_address or server.address,
            store,
            handlers.topics,
            serving.intake,
            reload=live.reread,
            health_address=server.address,
        )


async def _let_go(handlers: EnodeService, draining: asyncio.Event) -> None:
    """At a shutdown, answer waiting pops while their streams are open: snodes may wait for other enodes with them."""
    await draining.wait()
    await handlers.pops.lines.close()
