"""What a snode stands on: the directory, links to the enodes, members of groups, tasks, time."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from ortoo.common.cluster.address_server import found_name_servers
from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.common.telemetry.tracing import Tracing, open_tracing
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.name_server import NameServer
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import LinkFactory, Links
from ortoo.snode.enodes.pool import EnodeLinks
from ortoo.snode.membership.local import LocalMembership
from ortoo.snode.membership.shared import SharedMembership
from ortoo.snode.membership.store import MembershipStore, redis_client
from ortoo.snode.observe.recorded_links import RecordedLinks
from ortoo.snode.observe.trace_topic import TraceTopic
from ortoo.snode.observe.traces import TracedLinks
from ortoo.snode.settings import Settings


@dataclass(frozen=True, slots=True)
class Ground:
    """Open for as long as the snode is."""

    settings: Settings
    incarnation: str
    """New at each start."""
    clock: Clock
    randomness: Randomness
    background: Background
    channels: Channels
    directory: Directory
    name_servers: NameServers
    name_server: NameServer
    watch: DirectoryWatch
    enodes: EnodeLinks
    membership: LocalMembership | SharedMembership
    membership_store: MembershipStore | None
    tracing: Tracing | None
    trace_topic: TraceTopic | None

    @property
    def enode_timeout_s(self) -> float:
        """How long an enode may take to answer."""
        return self.settings.enode_timeout_ms / 1000


@contextlib.asynccontextmanager
async def open_ground(
    settings: Settings,
    clock: Clock,
    randomness: Randomness,
    links: LinkFactory,
    connect_redis: Callable[[str], Any] = redis_client,
) -> AsyncIterator[Ground]:
    """Connect to what is around. Nothing is served yet. Errors: Unavailable, Invalid."""
    async with contextlib.AsyncExitStack() as parts:
        channels = await parts.enter_async_context(Channels())
        background = await parts.enter_async_context(Background("snode"))
        directory = Directory()
        name_servers = await found_name_servers(settings.namesrv_address, background=background, clock=clock)
        name_server = NameServer(name_servers, channels)
        tracing = await parts.enter_async_context(
            open_tracing("snode", settings.name, settings.trace_endpoint, clock=clock, randomness=randomness)
        )
        opened: Links = await parts.enter_async_context(
            links(
                background=background,
                clock=clock,
                timeout_s=settings.enode_timeout_ms / 1000,
                in_flight_bytes_max=settings.enode_in_flight_bytes,
            )
        )
        trace_topic: TraceTopic | None = None
        if tracing is not None:
            opened = TracedLinks(opened, tracing)
        if settings.trace_topic:
            trace_topic = TraceTopic(settings.trace_topic, settings.name, clock)
            opened = RecordedLinks(opened, trace_topic, directory, clock)
        incarnation = randomness.id_text()
        membership: LocalMembership | SharedMembership = LocalMembership(clock)
        store: MembershipStore | None = None
        if settings.redis_url:
            membership = SharedMembership(incarnation, clock)
            store = MembershipStore(
                connect_redis(settings.redis_url),
                membership,
                incarnation=incarnation,
                prefix=settings.redis_prefix,
                timeout_s=settings.membership_timeout_s,
                clock=clock,
                randomness=randomness,
            )
            await parts.enter_async_context(store.open(background))
        yield Ground(
            settings,
            incarnation,
            clock,
            randomness,
            background,
            channels,
            directory,
            name_servers,
            name_server,
            DirectoryWatch(directory, name_server, clock=clock, randomness=randomness),
            EnodeLinks(directory, opened),
            membership,
            store,
            tracing,
            trace_topic,
        )
