"""The assembly of the snode: creates its packages in order of dependency, then listens and announces itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from ortoo.common.cluster.address_server import listed_again
from ortoo.common.cluster.addresses import reached_at
from ortoo.common.cluster.registrations import Announcing
from ortoo.common.cluster.dynamic_settings import LiveSettings
from ortoo.common.errors.findings import Findings
from ortoo.common.grpc.layers.layer import Guard, Layer
from ortoo.common.grpc.cluster_token import cluster_channels, cluster_token
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.tls import TlsListener, cluster_listener
from ortoo.common.machine.descriptors import Descriptors
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.service import Running
from ortoo.common.process.settings import Loaded
from ortoo.common.records.message import Message
from ortoo.common.telemetry.process_metrics import register_connections, register_memory
from ortoo.common.telemetry.role import Telemetry
from ortoo.snode.clients import Clients
from ortoo.snode.cluster import Cluster, open_cluster
from ortoo.snode.cluster.name_server import NameServer
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes import Enodes
from ortoo.snode.enodes.grpc_links import GrpcLinks
from ortoo.snode.enodes.queue_locks import ASK_AGAIN_S
from ortoo.snode.membership import open_membership
from ortoo.snode.membership.store import redis_client
from ortoo.snode.observe import open_observation
from ortoo.snode.observe.trace_topic import TraceTopic
from ortoo.snode.policy import Policy, open_policy
from ortoo.snode.policy.access import LOOK_INTERVAL_S, Authentication
from ortoo.snode.pop import Pop
from ortoo.snode.pull import Pull
from ortoo.snode.push.sessions import Sessions
from ortoo.snode.rocketmq.clients.routes import endpoints_of
from ortoo.snode.rocketmq.rpc.activities import Gateway
from ortoo.snode.rpc.layers.access import Refusals, Rights, RocketmqSignIn, SignIn
from ortoo.snode.rpc.layers.interceptors import Interception, Limits, TlsOnly
from ortoo.snode.rpc.layers.namespaces import Namespaces
from ortoo.snode.rpc.services import HOT, Services
from ortoo.snode.send import Sending
from ortoo.snode.send.publisher import Publisher
from ortoo.snode.settings import Settings
from ortoo.snode.topics import Topics
from ortoo.snode.topics.creation import SendableTopics, TopicArrival
from ortoo.snode.workers.worker import Worker

PRESENCE_SWEEP_S = 10.0
LEASES_INTERVAL_S = 5.0
CERTIFICATES_INTERVAL_S = 1.0
"""Interval of checks for changed certificate files."""
FILES_INTERVAL_S = 1.0
"""Interval of checks for changed files of limits and access."""
TRACE_INTERVAL_S = 0.2
"""Time for which records of the trace topic are collected into one batch."""
LAST_RECORDS_S = 2.0
"""Time for which a stop waits for the last of them."""


@contextlib.asynccontextmanager
async def open_snode(
    settings: Settings,
    *,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    connect_redis: Callable[[str], Any] = redis_client,
    live: LiveSettings[Settings] | None = None,
    descriptors: Descriptors | None = None,
    worker: Worker | None = None,
) -> AsyncIterator[Running]:
    """Run a snode; it is ready when it has received the cluster's directory. Leaving the block drains it.

    `connect_redis` makes a client for a URL. A `worker` shares its ports with other workers of one snode. `descriptors`
    is the role's share of the process's file descriptors; None = all of them.

    Errors: Conflict if the port is taken, or if another snode runs without shared group membership.
    """
    clock, randomness = clock or SystemClock(), randomness or Randomness()
    descriptors = descriptors or Descriptors.of_process()
    live = live or LiveSettings(Loaded(settings, {}), clock=clock)
    telemetry = Telemetry("snode", settings, clock)
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        alone = stack.enter_context(worker.ending_with_parent()) if worker is not None else None
        channels = await enter(cluster_channels(settings, cluster_token(settings.cluster_token_file, clock)))
        background = await enter(Background("snode"))
        incarnation = randomness.id_text()
        memory = MemoryBudget(settings.memory_budget_bytes, clock, processes=settings.workers)
        register_memory(telemetry.metrics, memory)
        runtime = Runtime(settings, incarnation, background, channels, telemetry.metrics, clock, randomness, memory)
        found = Findings("snode", settings.name, [memory.findings, telemetry.findings, live.findings])
        cluster = await open_cluster(runtime)
        observed = await enter(open_observation(runtime, cluster.directory))
        links = await enter(
            GrpcLinks(
                channels=channels,
                background=background,
                clock=clock,
                timeout_s=runtime.enode_timeout_s,
                in_flight_bytes_max=settings.enode_in_flight_bytes,
            )
        )
        enodes = Enodes(runtime, cluster, observed.links(links.to))
        topics = Topics(runtime, cluster, enodes.links)
        groups = await enter(open_membership(runtime, cluster, connect_redis, found))
        sending = Sending(runtime, cluster, topics.sendable, enodes.links)
        pull = Pull(runtime, cluster, enodes.links, topics.groups, groups.membership, observed.traffic)
        pushes = Sessions(runtime, cluster, enodes, topics, groups, observed.traffic)
        pop = Pop(runtime, cluster, enodes.links, topics, pull.reading)
        clients = Clients(runtime, cluster, enodes, topics, groups, pushes)
        policy = await open_policy(runtime, cluster)
        gateway = Gateway(runtime, cluster, enodes.links, topics, groups.membership, sending, pull, pop.popping)
        services = Services(
            runtime, cluster, enodes.links, topics, sending, pull, pushes, pop, clients, policy, gateway, found, live
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
            descriptors_max=descriptors.connections,
            tls=_tls_listener(settings),
            cluster_tls=cluster_listener(settings),
            memory=memory,
            hot=HOT,
            own_address=worker.own_address if worker is not None and not settings.tls_cluster_listen_address else "",
            shares_ports=worker is not None,
            alone=alone,
        )
        found.sources.append(server.findings)
        register_connections(telemetry.metrics, server.ended_connections)

        async def drain() -> None:
            """End all streams at a stop; the process is already ending."""
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
        await enodes.locks.look()

        async def sweep() -> None:
            """One timer for both, because both find something only rarely."""
            try:
                await pushes.sweep()
            finally:
                await clients.sessions.sweep()

        steps: list[tuple[str, float, Callable[[], Awaitable[object]]]] = [
            ("sweep", settings.sweep_interval_s, sweep),
            ("sweep clients", PRESENCE_SWEEP_S, gateway.presence.sweep),
            ("sweep lite topics", PRESENCE_SWEEP_S, gateway.lite_expiry.sweep),
            ("certificates", CERTIFICATES_INTERVAL_S, channels.renew),
            ("renew leases", LEASES_INTERVAL_S, gateway.leases.renew),
        ]
        if settings.flow_control_file:
            steps.append(("limits", FILES_INTERVAL_S, policy.flow_file.look))
        if policy.access is not None:
            steps.append(("access", FILES_INTERVAL_S, policy.access.file.look))
            steps.append(("users", LOOK_INTERVAL_S, policy.access.look_at_users))
        if observed.trace_topic is not None:
            flush = _trace_flush(observed.trace_topic, cluster, topics.arrival, sending.publisher)
            stack.push_async_callback(_last_records, flush)
            steps.append(("trace topic", TRACE_INTERVAL_S, flush))
        await enter(server)
        address = settings.advertised_address or server.address
        gateway.routing.own = endpoints_of(address)
        inner = reached_at(server.cluster_address or server.own_address, settings.advertised_address)
        registration = _announcing(runtime, cluster.name_server, address, inner)
        found.sources.append(registration.findings)
        await registration.begin()
        stack.push_async_callback(registration.leave)
        announcing: asyncio.Task[None] = background.spawn("registration", registration.run())
        stack.callback(announcing.cancel)  # otherwise it would take a released lease again
        for name, interval_s, step in steps:
            background.every(name, interval_s, step, clock=clock)
        background.after("locks", enodes.locks.wanted, ASK_AGAIN_S, enodes.locks.ask_again, clock=clock)
        background.spawn("enodes", _follow_enodes(cluster, enodes, sending))

        def apply(new: Settings) -> None:
            topics.sendable.auto_create = new.auto_create_topics
            topics.sendable.queue_count = new.auto_create_queue_count
            topics.groups.auto_create = new.auto_create_groups
            pushes.expiry_s = new.session_expiry_s

        live.appliers += [lambda new: listed_again(cluster.name_server.servers, new.namesrv_address), apply]
        yield Running(
            settings.name,
            server.address,
            reload=live.reread,
            tls_address=server.tls_address,
        )


def _around(
    settings: Settings, policy: Policy, name_server: NameServer, clock: Clock
) -> tuple[list[Guard], list[Layer]]:
    """The guards before a request is decoded (TLS, signatures) and the layers after it (names, rights, limits)."""
    guards: list[Guard] = [*([TlsOnly()] if settings.tls_required else []), Refusals()]
    layers: list[Layer] = [Namespaces()]
    if policy.access is not None:
        sign_in = SignIn(policy.access, scaler_open=settings.scaler_open)
        guards.append(sign_in)
        layers.append(Rights(policy.access, sign_in))
    if settings.rocketmq_signatures_required:
        known = policy.access.authentication if policy.access is not None else None
        guards.append(RocketmqSignIn(known or Authentication(name_server, clock, settings)))
    layers.append(Limits(policy.flow))
    if policy.chain is not None:
        layers.append(Interception(policy.chain))
    return guards, layers


async def _follow_enodes(cluster: Cluster, enodes: Enodes, sending: Sending) -> None:
    """Connect to every enode that is added to the directory, and to its new leaders.

    The steps only start contained tasks. An error here ends the process, because it would miss new enodes.
    """
    while True:
        changed = cluster.watch.changed
        enodes.links.look()
        await enodes.locks.look()
        await sending.transactions.look()
        await changed.wait()


def _trace_flush(
    trace: TraceTopic, cluster: Cluster, arrival: TopicArrival, publisher: Publisher
) -> Callable[[], Awaitable[None]]:
    """The step that stores the records of the trace topic; it creates the topic if it is missing."""
    own_topic = SendableTopics(cluster, arrival, auto_create=True, queue_count=4)

    async def publish(topic: str, records: Sequence[Message]) -> None:
        await own_topic.topic(topic)
        await publisher.publish(topic, records, None)

    return lambda: trace.flush(publish)


async def _last_records(flush: Callable[[], Awaitable[None]]) -> None:
    """Store the records of the last calls in the trace topic, within a bounded time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LAST_RECORDS_S):
            await flush()


def _announcing(runtime: Runtime, name_server: NameServer, listed: str, inner: str) -> Announcing:
    settings = runtime.settings

    async def announce(address: str) -> float:
        return await name_server.register(
            address, settings.name, (listed, inner), runtime.incarnation, shares_membership=bool(settings.redis_url)
        )

    return Announcing(
        name_server.servers,
        announce,
        lambda address: name_server.unregister(address, settings.name),
        interval_s=settings.heartbeat_interval_s,
        clock=runtime.clock,
        randomness=runtime.randomness,
    )


def _tls_listener(settings: Settings) -> TlsListener | None:
    if not settings.tls_listen_address:
        return None
    return TlsListener(
        settings.tls_listen_address,
        settings.tls_certificate_file,
        settings.tls_key_file,
        settings.tls_client_ca_file,
    )
