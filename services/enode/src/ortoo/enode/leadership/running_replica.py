"""A replica of an enode in one process: it follows, is elected, leads and steps down, any number of times."""

import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ortoo.common.cluster.address_server import resolve_name_servers, update_name_servers
from ortoo.common.cluster.addresses import advertised_address_of
from ortoo.common.cluster.dynamic_settings import DynamicSettings
from ortoo.common.errors.findings import ClusterIdentity, Findings
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.cluster_token import cluster_channels, cluster_token
from ortoo.common.grpc.inner.guard import inner_guards
from ortoo.common.grpc.server import AddServicer, GrpcServer
from ortoo.common.grpc.tls import cluster_listener
from ortoo.common.machine.descriptors import Descriptors
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.service import Running
from ortoo.common.process.settings import LoadedSettings
from ortoo.common.telemetry.findings_service import findings_servicer
from ortoo.common.telemetry.process_metrics import register_connections, register_memory
from ortoo.common.telemetry.role import RoleTelemetry
from ortoo.common.telemetry.settings_service import settings_servicer
from ortoo.enode.disk.data_dir import make_data_dir
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.leadership.replica_process import ReplicaProcess
from ortoo.enode.leadership.services import CERTIFICATES_INTERVAL_S, SWITCH_INTERVAL_S
from ortoo.enode.replication.membership import ReplicaMembership
from ortoo.enode.rpc.replicas.operators import NAME as MEMBERS_NAME
from ortoo.enode.rpc.replicas.service import NAME, ReplicaService
from ortoo.enode.rpc.service import enode_server
from ortoo.enode.settings import EnodeSettings
from ortoo.v1.enode_replicas_pb2_grpc import add_EnodeReplicasServiceServicer_to_server
from ortoo.v1.replication_pb2_grpc import add_ReplicationServiceServicer_to_server

PEERS_MAX = 64
"""The maximum number of connections of other replicas. They have a separate port, so that clients cannot take them."""


@dataclass(frozen=True, slots=True)
class RunningReplica(Running):
    """A running replica, leading or not."""

    replica_address: str
    process: ReplicaProcess


@contextlib.asynccontextmanager
async def open_replica(
    settings: EnodeSettings,
    *,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    disk: Disk | None = None,
    live: DynamicSettings[EnodeSettings] | None = None,
    descriptors: Descriptors | None = None,
) -> AsyncIterator[RunningReplica]:
    """Run a replica of the enode of that name. It is up before it leads, and before its set is initialized.

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
            membership = ReplicaMembership(
                disk, settings.data_dir, clock, randomness, number, initial_voters, addresses
            )
        channels = await stack.enter_async_context(cluster_channels(settings, token))
        background = await stack.enter_async_context(Background("member"))
        name_servers = await resolve_name_servers(settings.namesrv_address, background=background, clock=clock)
        replica_service = ReplicaService(settings.cluster, settings.name, membership)

        def add(server: Any) -> None:
            add_ReplicationServiceServicer_to_server(replica_service, server)
            bulk_calls.serve(server, {"Exchange": replica_service.Exchange})

        peers_max = min(PEERS_MAX, descriptors.connections // 4)
        tls = cluster_listener(settings, settings.replica_listen_address)
        replica_server = GrpcServer(
            settings.replica_listen_address if tls is None else "",
            [(NAME, add)],
            guards=inner_guards(settings, token),
            cluster_tls=tls,
            grace_s=0.0,
            setting="replica_listen_address",
            connections_max=settings.connections_max,
            connections_per_address_max=settings.connections_per_address_max,
            descriptors_max=peers_max,
        )
        metrics = telemetry.metrics
        process = ReplicaProcess(
            settings, membership, channels, name_servers, background, replica_service, metrics, clock, randomness
        )
        memory = MemoryBudget(settings.memory_budget_bytes, clock, spared_percent=settings.memory_share_percent)
        register_memory(metrics, memory)
        metrics.counter(
            "ortoo_cut_messages_total",
            "Messages truncated from this replica's log, because the leader does not have them.",
            lambda: process.truncated_messages,
        )
        metrics.counter(
            "ortoo_repaired_frames_total",
            "Damaged frames of this replica's log that were repaired from another replica's copy.",
            lambda: process.repaired_frames,
        )
        metrics.counter(
            "ortoo_shipments_total",
            "Replication messages with parts of the log that this replica sent since it opened the log.",
            lambda: process.driver.sent_messages if process.driver else 0,
        )
        metrics.counter(
            "ortoo_shipped_bytes_total",
            "Bytes of the log in these messages.",
            lambda: process.driver.sent_bytes if process.driver else 0,
        )
        metrics.gauge(
            "ortoo_state_differs",
            "Number of consecutive comparisons in which this replica's state differed from the leader's.",
            lambda: process.comparison.mismatches,
        )

        def identity() -> ClusterIdentity:
            leading = process.services  # only a leader follows the directory
            directory_id = leading.handlers.topics.directory_id if leading is not None else ""
            return ClusterIdentity(directory_id, name_servers.addresses)

        found = Findings("enode", settings.name, [process.findings, memory.findings, telemetry.findings, live.findings])
        found.identity = identity
        add_operator_service: AddServicer = partial(
            add_EnodeReplicasServiceServicer_to_server, process.operator_service
        )
        services = [
            (MEMBERS_NAME, add_operator_service),
            findings_servicer(found, clock),
            settings_servicer("enode", live),
        ]
        clients_max = descriptors.connections - peers_max
        process.server = enode_server(
            process.leader_service, settings, telemetry.calls, token, memory, services, clients_max
        )
        register_connections(metrics, process.server.ended_connections)
        found.sources += [process.server.findings, replica_server.findings]
        await stack.enter_async_context(telemetry.open(ready=lambda: process.server.serving))
        await stack.enter_async_context(replica_server)
        process.replica_address = advertised_address_of(
            replica_server.address or replica_server.cluster_address, settings.advertised_address
        )
        await stack.enter_async_context(process.server)
        background.every("certificates", CERTIFICATES_INTERVAL_S, channels.renew, clock=clock)
        process.start()
        stack.push_async_callback(process.stop)

        live.appliers += [lambda new: update_name_servers(name_servers, new.namesrv_address), process.apply]
        yield RunningReplica(
            settings.name,
            process.server.cluster_address or process.server.address,
            process.replica_address,
            process,
            reload=live.reload,
            health_address=process.server.address,
        )
