"""Assembly of the enode: one of its replicas, servers, announcements. An enode alone is a replica set of one."""

import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ortoo.common.cluster.address_server import resolve_name_servers, update_name_servers
from ortoo.common.cluster.addresses import advertised_address_of
from ortoo.common.cluster.dynamic_settings import DynamicSettings
from ortoo.common.errors.finding_history import CHECK_INTERVAL_S as FINDINGS_INTERVAL_S
from ortoo.common.errors.findings import Findings
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.cluster_token import ClusterToken, cluster_channels, cluster_token
from ortoo.common.grpc.inner.guard import inner_guards
from ortoo.common.grpc.server import AddServicer, GrpcServer
from ortoo.common.grpc.tls import cluster_listener
from ortoo.common.machine.certificates import certificate_files
from ortoo.common.machine.descriptors import Descriptors
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.service import Running
from ortoo.common.process.settings import LoadedSettings
from ortoo.common.telemetry.findings_service import LocalFindings, findings_servicer
from ortoo.common.telemetry.process_metrics import register_connections, register_memory
from ortoo.common.telemetry.role import RoleTelemetry
from ortoo.common.telemetry.settings_service import settings_servicer
from ortoo.enode.appends.router import AppendRouter
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.enode.disk.data_dir import make_data_dir
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.leadership.in_sync_health import CHECK_INTERVAL_S, InSyncHealth
from ortoo.enode.leadership.replica_metrics import register_replica
from ortoo.enode.leadership.replica_process import ReplicaProcess
from ortoo.enode.leadership.services import CERTIFICATES_INTERVAL_S, SWITCH_INTERVAL_S, EnodeServices
from ortoo.enode.recovery.hard_state import check_only_replica
from ortoo.enode.replication.membership import ReplicaMembership
from ortoo.enode.rpc.replicas.operators import NAME as REPLICAS_NAME
from ortoo.enode.rpc.replicas.service import NAME, ReplicaService
from ortoo.enode.rpc.service import enode_server
from ortoo.enode.settings import EnodeSettings
from ortoo.enode.store.store import Store
from ortoo.v1.enode_replicas_pb2_grpc import add_EnodeReplicasServiceServicer_to_server
from ortoo.v1.replication_pb2_grpc import add_ReplicationServiceServicer_to_server

REPLICA_ADVICE = "configure replica_listen_address, replica and replicas as before, or choose another folder"
PEERS_MAX = 64
"""The maximum number of connections of other replicas. They have a separate port, so that clients cannot take them."""


@dataclass(frozen=True, slots=True)
class RunningEnode(Running):
    """A running replica of an enode, leading or not. An enode without other replicas always leads."""

    replica_address: str
    """Where other replicas reach this one; empty = the enode has no others."""
    process: ReplicaProcess

    @property
    def services(self) -> EnodeServices:
        """The services for clients, while this replica leads."""
        assert self.process.services is not None, "this replica does not lead"
        return self.process.services

    @property
    def store(self) -> Store:
        """The store, while this replica leads."""
        return self.services.store

    @property
    def topics(self) -> TopicCopies:
        """The copies of the topics, while this replica leads."""
        return self.services.handlers.topics

    @property
    def appends(self) -> AppendRouter:
        """The entry for batches, while this replica leads."""
        return self.services.appends


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
    """Run an enode, or one of its replicas. It serves its stored topics whether or not a name server answers.

    An enode without other replicas serves when the block begins. A replica is up before it leads, and before its set is
    initialized. Leaving the block transfers leadership and drains the servers.

    `descriptors` is the role's share of the process's file descriptors; None = all of them.
    Errors: Invalid, Conflict, Unsupported, DataLoss, from its folder and its servers.
    """
    clock, randomness = clock or SystemClock(), randomness or Randomness()
    descriptors = descriptors or Descriptors.of_process()
    disk = disk or RealDisk(descriptors.files)
    live = live or DynamicSettings(LoadedSettings(settings, {}), clock=clock)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    telemetry, token = RoleTelemetry("enode", settings, clock), cluster_token(settings.cluster_token_file, clock)
    async with contextlib.AsyncExitStack() as stack:
        make_data_dir(disk, settings.data_dir)
        number, initial_voters, addresses = settings.replica, settings.replicas, settings.replica_address_list
        with disk.lock(settings.data_dir):
            if not settings.replica_listen_address:
                check_only_replica(disk, settings.data_dir, REPLICA_ADVICE)
            membership = ReplicaMembership(
                disk, settings.data_dir, clock, randomness, number, initial_voters, addresses
            )
        channels = await stack.enter_async_context(cluster_channels(settings, token))
        background = await stack.enter_async_context(Background("enode"))
        name_servers = await resolve_name_servers(settings.namesrv_address, background=background, clock=clock)
        replica_service = ReplicaService(settings.cluster, settings.name, membership)
        metrics = telemetry.metrics
        process = ReplicaProcess(
            settings, membership, channels, name_servers, background, replica_service, metrics, clock, randomness
        )
        memory = MemoryBudget(settings.memory_budget_bytes, clock, spared_percent=settings.memory_share_percent)
        register_memory(metrics, memory)
        register_replica(metrics, process)
        found = Findings("enode", settings.name, [process.findings, memory.findings, telemetry.findings, live.findings])
        found.identity = process.cluster_identity
        local_findings = LocalFindings(found, clock, certificate_files(settings))
        add_operator_service: AddServicer = partial(
            add_EnodeReplicasServiceServicer_to_server, process.operator_service
        )
        services = [
            (REPLICAS_NAME, add_operator_service),
            findings_servicer(local_findings),
            settings_servicer("enode", live),
        ]
        peers_max = min(PEERS_MAX, descriptors.connections // 4) if settings.replica_listen_address else 0
        process.server = enode_server(
            process.leader_service,
            settings,
            telemetry.calls,
            token,
            memory,
            services,
            descriptors.connections - peers_max,
        )
        register_connections(metrics, process.server.ended_connections)
        found.sources.append(process.server.findings)
        in_sync = InSyncHealth(process)
        in_sync.register(metrics)
        await stack.enter_async_context(telemetry.open(ready=lambda: in_sync.is_ready))
        if settings.replica_listen_address:
            replica_server = _replica_server(replica_service, settings, token, peers_max)
            found.sources.append(replica_server.findings)
            await stack.enter_async_context(replica_server)
            process.replica_address = advertised_address_of(
                replica_server.address or replica_server.cluster_address, settings.advertised_address
            )
        stack.push_async_callback(process.stop)
        await stack.enter_async_context(process.server)
        background.every("certificates", CERTIFICATES_INTERVAL_S, channels.renew, clock=clock)
        background.every("findings", FINDINGS_INTERVAL_S, local_findings.check, clock=clock)
        background.every("in sync", CHECK_INTERVAL_S, in_sync.check, clock=clock)
        await process.start()
        stack.push_async_callback(process.leave)

        live.appliers += [lambda new: update_name_servers(name_servers, new.namesrv_address), process.apply]
        yield RunningEnode(
            settings.name,
            process.server.cluster_address or process.server.address,
            process.replica_address,
            process,
            reload=live.reload,
            health_address=process.server.address,
        )


def _replica_server(
    service: ReplicaService, settings: EnodeSettings, token: ClusterToken | None, connections: int
) -> GrpcServer:
    """The server for the other replicas."""

    def add(server: Any) -> None:
        bulk_calls.add_service(server, add_ReplicationServiceServicer_to_server, service, "Exchange")

    tls = cluster_listener(settings, settings.replica_listen_address)
    return GrpcServer(
        settings.replica_listen_address if tls is None else "",
        [(NAME, add)],
        guards=inner_guards(settings, token),
        cluster_tls=tls,
        grace_s=0.0,
        setting="replica_listen_address",
        connections_max=settings.connections_max,
        connections_per_address_max=settings.connections_per_address_max,
        descriptors_max=connections,
        wire=settings.transport,
    )
