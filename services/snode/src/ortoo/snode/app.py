"""Assembles the snode: creates its components in order of dependency, opens its ports, and registers it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from ortoo.common.cluster.address_server import update_name_servers
from ortoo.common.cluster.addresses import advertised_address_of
from ortoo.common.cluster.dynamic_settings import DynamicSettings
from ortoo.common.cluster.registrations import Registrations
from ortoo.common.errors.finding_history import CHECK_INTERVAL_S as FINDINGS_INTERVAL_S
from ortoo.common.errors.findings import Findings
from ortoo.common.grpc.cluster_token import cluster_channels, cluster_token
from ortoo.common.grpc.layers.layer import Guard, Layer
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.tls import TlsListener, cluster_listener
from ortoo.common.machine.certificates import certificate_files
from ortoo.common.machine.descriptors import Descriptors
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.service import Running
from ortoo.common.process.settings import LoadedSettings
from ortoo.common.records.message import Message
from ortoo.common.telemetry.findings_service import LocalFindings
from ortoo.common.telemetry.process_metrics import register_connections, register_memory
from ortoo.common.telemetry.role import RoleTelemetry
from ortoo.snode.clients import ClientComponents
from ortoo.snode.cluster import ClusterView, open_cluster
from ortoo.snode.cluster.name_server import NameServerClient
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.stream_ages import StreamAges
from ortoo.snode.enodes import EnodeComponents
from ortoo.snode.enodes.grpc_links import GrpcLinks
from ortoo.snode.enodes.queue_locks import LOCK_RETRY_S
from ortoo.snode.membership import open_membership
from ortoo.snode.membership.group_filters import GroupFilters
from ortoo.snode.membership.redis_url import redis_client
from ortoo.snode.observe import open_observation
from ortoo.snode.observe.send_latency import SendLatency
from ortoo.snode.observe.trace_topic import TraceTopic
from ortoo.snode.policy import Policy, open_policy
from ortoo.snode.policy.access import USER_CHECK_INTERVAL_S, Authentication
from ortoo.snode.pop import PopComponents
from ortoo.snode.pull import PullComponents
from ortoo.snode.push.sessions import PushSessions
from ortoo.snode.rocketmq.clients.routes import endpoints_of
from ortoo.snode.rocketmq.rpc.activities import MessagingActivities
from ortoo.snode.rpc.layers.access import PermissionLayer, RocketmqErrorLayer, RocketmqSignIn, SignIn
from ortoo.snode.rpc.layers.audit import AuditLayer
from ortoo.snode.rpc.layers.interceptors import FlowControlLayer, InterceptorLayer, TlsRequiredLayer
from ortoo.snode.rpc.layers.namespaces import NamespaceLayer
from ortoo.snode.rpc.services import Services
from ortoo.snode.send import SendComponents
from ortoo.snode.send.publisher import Publisher
from ortoo.snode.settings import SnodeSettings
from ortoo.snode.topics import TopicComponents
from ortoo.snode.topics.creation import ProducerTopics, TopicPropagation
from ortoo.snode.workers.worker import Worker

CLIENT_SWEEP_INTERVAL_S = 10.0
LEASE_RENEW_INTERVAL_S = 5.0
CERTIFICATE_POLL_INTERVAL_S = 1.0
"""Interval of checks for changed certificate files."""
FILE_POLL_INTERVAL_S = 1.0
"""Interval of checks for changed files of limits and access."""
TRACE_FLUSH_INTERVAL_S = 0.2
"""Time for which records of the trace topic are collected into one batch."""
FINAL_FLUSH_TIMEOUT_S = 2.0
"""Time for which a stopping snode waits until the last records of the trace topic are stored."""


@contextlib.asynccontextmanager
async def open_snode(
    settings: SnodeSettings,
    *,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    connect_redis: Callable[[str], Any] = redis_client,
    live: DynamicSettings[SnodeSettings] | None = None,
    descriptors: Descriptors | None = None,
    worker: Worker | None = None,
) -> AsyncIterator[Running]:
    """Run a snode. The block begins when the snode serves; the end of the block drains it.

    `connect_redis` makes a client for a URL of Redis. `live` are the settings that may change at run time. A `worker`
    is one of several processes of a snode, which share its ports. `descriptors` is the limit of file descriptors for
    this role; None = all of the process.

    Errors: Conflict if a port is taken, or if another snode runs without shared group membership.
    """
    clock, randomness = clock or SystemClock(), randomness or Randomness()
    descriptors = descriptors or Descriptors.of_process()
    live = live or DynamicSettings(LoadedSettings(settings, {}), clock=clock)
    telemetry = RoleTelemetry("snode", settings, clock)
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        parent_gone = stack.enter_context(worker.stop_with_parent()) if worker is not None else None
        token = cluster_token(settings.cluster_token_file, clock)
        channels = await enter(cluster_channels(settings, token, wire=settings.transport))
        background = await enter(Background("snode"))
        incarnation = randomness.id_text()
        memory = MemoryBudget(settings.memory_budget_bytes, clock, processes=settings.workers)
        register_memory(telemetry.metrics, memory)
        ages = StreamAges(settings.connection_age_max_s, clock, randomness)
        runtime = Runtime(
            settings, incarnation, background, channels, telemetry.metrics, clock, randomness, memory, ages
        )
        findings = Findings("snode", settings.name, [memory.findings, telemetry.findings, live.findings])
        cluster = await open_cluster(runtime)
        findings.identity = cluster.identity
        observation = await enter(open_observation(runtime, cluster.directory))
        links = await enter(
            GrpcLinks(
                channels=channels,
                background=background,
                clock=clock,
                timeout_s=runtime.enode_timeout_s,
                in_flight_bytes_max=settings.enode_in_flight_bytes,
            )
        )
        enodes = EnodeComponents(runtime, cluster, observation.wrap_links(links.to))
        topics = TopicComponents(runtime, cluster, enodes.links)
        groups = await enter(open_membership(runtime, cluster, connect_redis, findings))
        sending = SendComponents(runtime, cluster, topics.producer_topics, enodes.links)
        pull = PullComponents(
            runtime, cluster, enodes.links, topics.group_settings, groups.membership, observation.traffic
        )
        filters = GroupFilters(groups.membership)
        pop = PopComponents(runtime, cluster, enodes.links, topics, pull.reader, observation.traffic, filters)
        stack.push_async_callback(pop.processor.watches.close)
        park = pop.nack_processor.park_interrupted
        push_sessions = PushSessions(runtime, cluster, enodes, topics, groups, observation.traffic, park, filters)
        findings.sources.append(push_sessions.evictions.findings)
        clients = ClientComponents(runtime, cluster, enodes, topics, groups, push_sessions, pull.processor)
        policy = await open_policy(runtime, cluster)
        gateway = MessagingActivities(
            runtime, cluster, enodes.links, topics, groups.membership, sending, pull, pop.processor
        )
        send_latency = SendLatency(telemetry.calls)
        send_latency.register(telemetry.metrics)
        services = Services(
            runtime,
            cluster,
            enodes.links,
            topics,
            sending,
            pull,
            push_sessions,
            pop,
            clients,
            policy,
            gateway,
            LocalFindings(findings, clock, certificate_files(settings)),
            live,
            send_latency,
        )
        guards, layers = _around(settings, policy, cluster.name_server, clock)
        server = GrpcServer(
            settings.listen_address,
            services.added,
            outermost=[telemetry.calls],
            guards=guards,
            layers=layers,
            grace_s=settings.stop_grace_s,
            drain_delay_s=settings.drain_delay_s,
            connections_max=settings.connections_max,
            connections_per_address_max=settings.connections_per_address_max,
            connection_age_max_s=settings.connection_age_max_s,
            descriptors_max=descriptors.connections,
            tls=_tls_listener(settings),
            cluster_tls=cluster_listener(settings),
            memory=memory,
            own_address=worker.own_address if worker is not None and not settings.tls_cluster_listen_address else "",
            shares_ports=worker is not None,
            alone=parent_gone,
            wire=settings.transport,
        )
        findings.sources.append(server.findings)
        register_connections(telemetry.metrics, server.ended_connections)

        async def drain() -> None:
            """End all streams before the server stops. An error here ends the process, which is ending in any case."""
            await server.draining.wait()
            await services.drain()

        background.spawn("drain", drain())
        background.spawn("directory", cluster.watch.run())
        background.spawn("groups", groups.run())
        # Before the first contact with the name server, so that a process that waits for it can be inspected.
        await enter(
            telemetry.open(ready=lambda: server.serving, listener=worker.listener() if worker is not None else None)
        )
        await cluster.watch.ready.wait()
        await enodes.locks.attach_new_enodes(cluster.directory.enodes())

        async def sweep() -> None:
            """Close the push sessions and client sessions that are silent or slow."""
            try:
                await push_sessions.sweep()
            finally:
                await clients.sessions.sweep()

        steps: list[tuple[str, float, Callable[[], Awaitable[object]]]] = [
            ("sweep", settings.sweep_interval_s, sweep),
            ("sweep clients", CLIENT_SWEEP_INTERVAL_S, gateway.client_activity.sweep),
            ("sweep pop consumers", CLIENT_SWEEP_INTERVAL_S, clients.pop_consumers.sweep),
            ("sweep lite topics", CLIENT_SWEEP_INTERVAL_S, gateway.lite_expiry.sweep),
            ("findings", FINDINGS_INTERVAL_S, services.findings.check),
            ("certificates", CERTIFICATE_POLL_INTERVAL_S, channels.renew),
            ("renew leases", LEASE_RENEW_INTERVAL_S, gateway.leases.renew),
            ("old streams", ages.interval_s, ages.end_due),
        ]
        if settings.flow_control_file:
            steps.append(("limits", FILE_POLL_INTERVAL_S, policy.flow_control_file.reload_if_changed))
        if policy.access is not None:
            steps.append(("access", FILE_POLL_INTERVAL_S, policy.access.file.reload_if_changed))
            steps.append(("users", USER_CHECK_INTERVAL_S, policy.access.recheck_users))
        if observation.trace_topic is not None:
            flush = _make_trace_flush(observation.trace_topic, cluster, topics.propagation, sending.publisher)
            stack.push_async_callback(_flush_last_records, flush)
            steps.append(("trace topic", TRACE_FLUSH_INTERVAL_S, flush))
        await enter(server)
        address = settings.advertised_address or server.address
        gateway.route.own_endpoints = endpoints_of(address)
        inner = advertised_address_of(server.cluster_address or server.own_address, settings.advertised_address)
        registration = _make_announcing(runtime, cluster.name_server, address, inner)
        findings.sources.append(registration.findings)
        await registration.register_first()
        stack.push_async_callback(registration.unregister_all)
        announcing: asyncio.Task[None] = background.spawn("registration", registration.run())
        stack.callback(announcing.cancel)  # otherwise it would take a released lease again
        for name, interval_s, step in steps:
            background.every(name, interval_s, step, clock=clock)
        background.after("locks", enodes.locks.has_waiters, LOCK_RETRY_S, enodes.locks.retry_refused, clock=clock)
        background.spawn("enodes", _follow_enodes(cluster, enodes, sending))

        def apply(new: SnodeSettings) -> None:
            topics.producer_topics.auto_create = new.auto_create_topics
            topics.producer_topics.queue_count = new.auto_create_queue_count
            topics.group_settings.auto_create = new.auto_create_groups
            push_sessions.expiry_s = new.session_expiry_s

        live.appliers += [lambda new: update_name_servers(cluster.name_server.servers, new.namesrv_address), apply]
        yield Running(
            settings.name,
            server.address,
            reload=live.reload,
            tls_address=server.tls_address,
        )


def _around(
    settings: SnodeSettings, policy: Policy, name_server: NameServerClient, clock: Clock
) -> tuple[list[Guard], list[Layer]]:
    """The guards (TLS, signatures), which run before a request is decoded, and the layers, which run after."""
    guards: list[Guard] = [*([TlsRequiredLayer()] if settings.tls_required else []), RocketmqErrorLayer()]
    layers: list[Layer] = [NamespaceLayer()]
    if policy.access is not None:
        sign_in = SignIn(policy.access, scaler_open=settings.scaler_open)
        guards.append(sign_in)
        layers.append(PermissionLayer(policy.access, sign_in))
    if settings.rocketmq_signatures_required:
        known = policy.access.authentication if policy.access is not None else None
        guards.append(RocketmqSignIn(known or Authentication(name_server, clock, settings), policy.audit))
    layers += [FlowControlLayer(policy.flow_control), AuditLayer(policy.audit)]
    if policy.interceptors is not None:
        layers.append(InterceptorLayer(policy.interceptors))
    return guards, layers


async def _follow_enodes(cluster: ClusterView, enodes: EnodeComponents, sending: SendComponents) -> None:
    """Connect to every enode that is added to the directory, and to its new leaders.

    An error here ends the process, because the process would miss new enodes.
    """
    while True:
        changed = cluster.watch.changed
        entries = cluster.directory.take_changed_enodes()
        enodes.links.update_leaders(entries)
        await enodes.locks.attach_new_enodes(entries)
        await sending.transactions.follow_new_enodes(entries)
        await changed.wait()


def _make_trace_flush(
    trace: TraceTopic, cluster: ClusterView, propagation: TopicPropagation, publisher: Publisher
) -> Callable[[], Awaitable[None]]:
    """The step that stores the records of the trace topic; it creates the topic if it is missing."""
    own_topic = ProducerTopics(cluster, propagation, auto_create=True, queue_count=4)

    async def publish(topic: str, records: Sequence[Message]) -> None:
        await own_topic.topic(topic)
        await publisher.publish(topic, records, None)

    return lambda: trace.flush(publish)


async def _flush_last_records(flush: Callable[[], Awaitable[None]]) -> None:
    """Store the records of the last calls in the trace topic, within a bounded time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FINAL_FLUSH_TIMEOUT_S):
            await flush()


def _make_announcing(
    runtime: Runtime, name_server: NameServerClient, public_address: str, cluster_address: str
) -> Registrations:
    settings = runtime.settings

    async def announce(address: str) -> float:
        return await name_server.register(
            address,
            settings.name,
            (public_address, cluster_address),
            runtime.incarnation,
            shares_membership=bool(settings.redis_url),
        )

    return Registrations(
        name_server.servers,
        announce,
        lambda address: name_server.unregister(address, settings.name),
        interval_s=settings.heartbeat_interval_s,
        clock=runtime.clock,
        randomness=runtime.randomness,
    )


def _tls_listener(settings: SnodeSettings) -> TlsListener | None:
    if not settings.tls_listen_address:
        return None
    return TlsListener(
        settings.tls_listen_address,
        settings.tls_certificate_file,
        settings.tls_key_file,
        settings.tls_client_ca_file,
    )
