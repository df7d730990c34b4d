"""The name server, assembled from its parts: catalog, directory, handlers, server."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from ortoo.common.cluster.dynamic_settings import DynamicSettings
from ortoo.common.errors import Unavailable
from ortoo.common.errors.finding_history import CHECK_INTERVAL_S
from ortoo.common.errors.findings import ClusterIdentity, Findings
from ortoo.common.grpc.cluster_token import cluster_token, read_token
from ortoo.common.grpc.inner.guard import inner_guards
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.tls import cluster_listener
from ortoo.common.logs.logger import get_logger
from ortoo.common.machine.certificates import certificate_files
from ortoo.common.machine.descriptors import Descriptors
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.common.process.service import Running
from ortoo.common.process.settings import LoadedSettings
from ortoo.common.telemetry.findings_service import LocalFindings, findings_servicer
from ortoo.common.telemetry.process_metrics import register_connections, register_memory
from ortoo.common.telemetry.role import RoleTelemetry
from ortoo.common.telemetry.settings_service import settings_servicer
from ortoo.namesrv import log_events
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.catalog.encryption import read_encryption
from ortoo.namesrv.decisions.handle_keys import KeyRotation
from ortoo.namesrv.directory.directory import Directory
from ortoo.namesrv.directory.elections import Elections
from ortoo.namesrv.directory.metrics import register
from ortoo.namesrv.directory.stores import StoresOfEnodes
from ortoo.namesrv.rpc import service
from ortoo.namesrv.settings import NamesrvSettings

OpenCatalog = Callable[[str, Path, str], Awaitable[Catalog]]
KEYS_INTERVAL_S = 60.0
"""The interval of the check whether a new key for handles is due."""
_log = get_logger("namesrv")


@contextlib.asynccontextmanager
async def open_namesrv(
    settings: NamesrvSettings,
    *,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    open_catalog: OpenCatalog = Catalog.open,
    live: DynamicSettings[NamesrvSettings] | None = None,
    descriptors: Descriptors | None = None,
) -> AsyncIterator[Running]:
    """Run a name server within the block; the end of the block drains it.

    `open_catalog` opens the database. `live` are the settings that may change at run time. `descriptors` is the limit
    of file descriptors for this role; None = all of the process. Errors: those of `Catalog.open` and of the server.
    """
    clock, randomness = clock or SystemClock(), randomness or Randomness()
    descriptors = descriptors or Descriptors.of_process()
    live = live or DynamicSettings(LoadedSettings(settings, {}), clock=clock)
    telemetry = RoleTelemetry("namesrv", settings, clock)
    async with contextlib.AsyncExitStack() as parts:
        servers: list[GrpcServer] = []
        # This is opened first, so that a process that waits for its database can be observed.
        await parts.enter_async_context(telemetry.open(ready=lambda: any(server.serving for server in servers)))
        catalog = await _open_catalog_with_retries(open_catalog, settings, clock, randomness)
        parts.push_async_callback(catalog.close)
        encryption = read_encryption(settings.secrets_key_file, settings.secrets_key_files_previous)
        users = await catalog.reencrypt_secrets(encryption)
        if users and settings.keeps_secrets_open:
            raise service.insecure_secrets_reason()
        if users and not encryption.encrypts:
            _log.emit(log_events.SECRETS_UNENCRYPTED, users=users)
        directory = Directory(
            catalog,
            await catalog.load_all(),
            lease_s=settings.lease_s,
            deletion_grace_ms=settings.topic_deletion_grace_ms,
            group_deletion_grace_ms=settings.group_deletion_grace_ms,
            watchers_max=settings.watchers_max,
            rotation=KeyRotation(settings.handle_key_interval_ms, settings.unsigned_handles_grace_ms),
            clock=clock,
            randomness=randomness,
        )
        await directory.rotate_handle_keys()
        elections = Elections(
            catalog.proposals,
            directory.update_replicas,
            lease_s=settings.replica_lease_s,
            shared=catalog.shared,
            clock=clock,
        )
        await elections.load()
        stores = StoresOfEnodes(catalog.stores, shared=catalog.shared, clock=clock)

        def drop_enode(name: str) -> None:
            directory.drop_enode(name)
            elections.forget(name)

        stores.on_forgotten = drop_enode
        await stores.load()
        background = await parts.enter_async_context(Background("namesrv"))
        admin_token = read_token(settings.admin_token_file, "admin_token_file")
        guards = inner_guards(settings, cluster_token(settings.cluster_token_file, clock), admin_token)
        is_open = settings.keeps_secrets_open
        handlers = service.NameService(directory, elections, stores, catalog, clock, admin_token, bool(guards), is_open)
        memory = MemoryBudget(settings.memory_budget_bytes, clock)
        register_memory(telemetry.metrics, memory)
        found = Findings("name server", settings.name, [catalog.findings, handlers.findings])
        found.identity = lambda: ClusterIdentity(directory.directory_id)
        found.sources += [memory.findings, telemetry.findings, live.findings]
        local_findings = LocalFindings(found, clock, certificate_files(settings))
        background.every("findings", CHECK_INTERVAL_S, local_findings.check, clock=clock)
        server = GrpcServer(
            settings.listen_address,
            [
                (service.NAME, lambda grpc_server: service.add_name_service(grpc_server, handlers)),
                findings_servicer(local_findings),
                settings_servicer("namesrv", live),
            ],
            outermost=[telemetry.calls],
            guards=guards,
            grace_s=settings.stop_grace_s,
            drain_delay_s=settings.drain_delay_s,
            connections_max=settings.connections_max,
            connections_per_address_max=settings.connections_per_address_max,
            descriptors_max=descriptors.connections,
            cluster_tls=cluster_listener(settings),
            memory=memory,
            wire=settings.transport,
        )
        found.sources.append(server.findings)
        background.spawn("draining", directory.watches.close_on(server.draining))
        background.spawn("others", directory.follow_database(settings.sync_interval_s))
        background.every("elections", settings.sync_interval_s, elections.refresh, clock=clock)
        background.every("stores", settings.sync_interval_s, stores.refresh, clock=clock)
        background.every("expiry", settings.expiry_interval_s, directory.expire, clock=clock)
        background.every("deletions", settings.expiry_interval_s, directory.expire_deletions, clock=clock)
        background.every("handle keys", KEYS_INTERVAL_S, directory.rotate_handle_keys, clock=clock)
        register(telemetry.metrics, directory, elections)
        register_connections(telemetry.metrics, server.ended_connections)
        await parts.enter_async_context(server)
        servers.append(server)

        def apply(new: NamesrvSettings) -> None:
            directory.deletion_grace_ms = new.topic_deletion_grace_ms
            directory.group_deletion_grace_ms = new.group_deletion_grace_ms
            directory.watches.watchers_max = new.watchers_max

        live.appliers.append(apply)
        address = server.cluster_address or server.address
        yield Running(settings.name, address, reload=live.reload, health_address=server.address)


async def _open_catalog_with_retries(
    open_catalog: OpenCatalog, settings: NamesrvSettings, clock: Clock, randomness: Randomness
) -> Catalog:
    """Open the database; retry until a database on another machine answers, as the two may start in any order.

    Errors: as `Catalog.open`.
    """
    attempt, backoff, new_id = 0, Backoff(first_s=0.1, max_s=2.0), randomness.uuid_text()
    while True:
        try:
            return await open_catalog(settings.database_url, settings.data_dir, new_id)
        except Unavailable as error:
            if not settings.database_url or settings.database_url.startswith("sqlite"):
                raise
            if attempt == 0:
                _log.emit(log_events.DATABASE_UNAVAILABLE_WAITING, reason=str(error))
            await clock.sleep(backoff.delay_s(attempt, randomness))
            attempt += 1
