"""The snode: its ground, its parts, its services, in this order; then it listens and is announced."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc

from ortoo.common.address_server import listed_again
from ortoo.common.announcing import Announcing
from ortoo.common.clock import Clock, SystemClock
from ortoo.common.grpc_server import GrpcServer
from ortoo.common.message import Message
from ortoo.common.randomness import Randomness
from ortoo.common.service import Running
from ortoo.common.telemetry import Telemetry
from ortoo.common.tls_listener import TlsListener
from ortoo.snode.access import Access
from ortoo.snode.authentication import Authentication
from ortoo.snode.enode_link import LinkFactory
from ortoo.snode.ground import Ground, open_ground
from ortoo.snode.grpc_enode_link import GrpcLinks
from ortoo.snode.interception import Chain, load_interceptors
from ortoo.snode.membership_store import redis_client
from ortoo.snode.parts import Parts, make_parts
from ortoo.snode.queue_locks import ASK_AGAIN_S
from ortoo.snode.rocketmq.route import endpoints_of
from ortoo.snode.rpc.access_interception import AccessInterception
from ortoo.snode.rpc.interception import Interception
from ortoo.snode.rpc.tls_only import TlsOnly
from ortoo.snode.sendable_topics import SendableTopics
from ortoo.snode.services import Services, make_services
from ortoo.snode.settings import Settings
from ortoo.snode.telemetry import register, register_access, register_clients, register_trace_topic

PRESENCE_SWEEP_S = 10.0
LEASES_INTERVAL_S = 5.0
FILES_INTERVAL_S = 1.0
"""How often the files of limits and of access are looked at."""
TRACE_INTERVAL_S = 0.2
"""How long records of the trace topic wait for company."""
LAST_RECORDS_S = 2.0
"""How long a stop waits for them."""


@contextlib.asynccontextmanager
async def open_snode(
    settings: Settings,
    *,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    links: LinkFactory = GrpcLinks,
    connect_redis: Callable[[str], Any] = redis_client,
) -> AsyncIterator[Running]:
    """Run a snode; it is ready when it has seen the cluster's directory. Leaving the block drains it.

    `links` reaches the enodes; the default speaks gRPC. `connect_redis` gives a client for a URL.
    Errors: Conflict when the port is taken, or when another snode
    runs that does not share group membership.
    """
    clock, randomness = clock or SystemClock(), randomness or Randomness()
    telemetry = Telemetry("snode", settings, clock)
    async with contextlib.AsyncExitStack() as stack:
        ground = await stack.enter_async_context(open_ground(settings, clock, randomness, links, connect_redis))
        parts = make_parts(ground)
        services = make_services(ground, parts)
        access = await _access(ground)
        guards: list[grpc.aio.ServerInterceptor] = [TlsOnly()] if settings.tls_required else []
        if access is not None:
            guards.append(AccessInterception(access))
        around = Interception(Chain([parts.flow, *load_interceptors(settings.interceptors)]))
        server = GrpcServer(
            settings.listen_address,
            services.added,
            outermost=[telemetry.calls],
            interceptors=[*guards, around],
            grace_s=settings.stop_grace_s,
            drain_delay_s=settings.drain_delay_s,
            tls=_tls_listener(settings),
        )
        ground.background.spawn("drain", _drained(server, services))
        ground.background.spawn("directory", ground.watch.run())
        ground.background.spawn("groups", parts.groups.run())
        await parts.flow_file.look()
        register(telemetry.metrics, ground.directory, parts.sessions, parts.pushes.traffic)
        store = ground.membership_store
        register_clients(
            telemetry.metrics, parts.clients, parts.flow, store.connected.is_set if store is not None else None
        )
        if ground.trace_topic is not None:
            register_trace_topic(telemetry.metrics, ground.trace_topic)
        if access is not None:
            register_access(telemetry.metrics, access)
        # Before the name server has been heard, so that one that waits for it can be seen to.
        await stack.enter_async_context(telemetry.open(ready=lambda: server.serving))
        await ground.watch.ready.wait()
        await parts.attachments.look()
        tracing = None if ground.trace_topic is None else _tracing(ground, parts)
        if tracing is not None:
            stack.push_async_callback(_last_records, tracing)
        await stack.enter_async_context(server)
        services.gateway.routing.own = endpoints_of(settings.advertised_address or server.address)
        registration = _announcing(ground, settings.advertised_address or server.address)
        await registration.begin()
        stack.push_async_callback(registration.leave)
        announcing: asyncio.Task[None] = ground.background.spawn("registration", registration.run())
        stack.callback(announcing.cancel)  # else it would take back a lease that was just left
        for name, interval_s, step in (
            ("sweep", settings.sweep_interval_s, parts.sessions.sweep),
            ("sweep sessions", settings.sweep_interval_s, parts.clients.sweep),
            ("sweep clients", PRESENCE_SWEEP_S, services.gateway.presence.sweep),
            ("renew leases", LEASES_INTERVAL_S, services.gateway.leases.renew),
        ):
            ground.background.every(name, interval_s, step, clock=clock)
        ground.background.spawn("enodes", _follow_enodes(ground, parts))
        ground.background.after("locks", parts.locks.wanted, ASK_AGAIN_S, parts.locks.ask_again, clock=clock)
        if settings.flow_control_file:
            ground.background.every("limits", FILES_INTERVAL_S, parts.flow_file.look, clock=clock)
        if tracing is not None:
            ground.background.every("trace topic", TRACE_INTERVAL_S, tracing, clock=clock)
        if access is not None:
            ground.background.every("access", FILES_INTERVAL_S, access.look, clock=clock)
        yield Running(
            settings.name,
            server.address,
            reload=lambda new: listed_again(ground.name_servers, new.namesrv_address),
            tls_address=server.tls_address,
        )


async def _follow_enodes(ground: Ground, parts: Parts) -> None:
    """Stay in touch with every enode that the directory comes to know."""
    while True:
        changed = ground.watch.changed
        await parts.attachments.look()
        await parts.transactions.look()
        await changed.wait()


async def _drained(server: GrpcServer, services: Services) -> None:
    await server.draining.wait()
    await services.drain()


def _tracing(ground: Ground, parts: Parts) -> Callable[[], Awaitable[None]]:
    """The step that stores the records of the trace topic."""
    trace = ground.trace_topic
    assert trace is not None
    own_topic = SendableTopics(ground.watch, ground.name_server, parts.arrival, auto_create=True, queue_count=4)

    async def publish(topic: str, records: Sequence[Message]) -> None:
        await own_topic.topic(topic)
        await parts.publisher.publish(topic, records, None)

    return lambda: trace.flush(publish)


async def _last_records(flush: Callable[[], Awaitable[None]]) -> None:
    """Store what the last calls left for the trace topic, if that goes soon."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LAST_RECORDS_S):
            await flush()


async def _access(ground: Ground) -> Access | None:
    """Access control, if there is a file of rules. Errors: Invalid, when it is missing or wrong."""
    if not ground.settings.access_file:
        return None
    access = Access(ground.settings.access_file, Authentication(ground.name_server, ground.clock), ground.directory)
    await access.begin()
    return access


def _announcing(ground: Ground, listed: str) -> Announcing:
    settings, name_server = ground.settings, ground.name_server

    async def announce(address: str) -> float:
        return await name_server.register(
            address, settings.name, listed, ground.incarnation, shares_membership=bool(settings.redis_url)
        )

    return Announcing(
        ground.name_servers,
        announce,
        lambda address: name_server.unregister(address, settings.name),
        interval_s=settings.heartbeat_interval_s,
        clock=ground.clock,
        randomness=ground.randomness,
    )


def _tls_listener(settings: Settings) -> TlsListener | None:
    if not settings.tls_listen_address:
        return None
    return TlsListener(settings.tls_listen_address, Path(settings.tls_certificate_file), Path(settings.tls_key_file))
