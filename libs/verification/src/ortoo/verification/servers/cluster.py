"""A whole cluster in this process: real services, real gRPC on free ports, real files.

    async with open_cluster(folder) as cluster:
        await cluster.create_topic("t")
        ... connect to cluster.address ...
        await cluster.close("enode-0")
        await cluster.open_enode("enode-0")     # a graceful restart, same port

For tests that need `kill -9` see processes.py.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ortoo.common.groups.handle_seal import HandleKey, HandleKeys, HandleSeals
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.cluster_token import cluster_channels, cluster_token
from ortoo.common.grpc.messages import read
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.service import Running, log_late_stop
from ortoo.enode import app as enode_app
from ortoo.enode import settings as enode_settings
from ortoo.enode.disk.disk import Disk
from ortoo.enode.log.settings import StoreSettings
from ortoo.namesrv import app as namesrv_app
from ortoo.namesrv import settings as namesrv_settings
from ortoo.snode import app as snode_app
from ortoo.snode import settings as snode_settings
from ortoo.v1 import namesrv_pb2, namesrv_pb2_grpc, topic_pb2
from ortoo.verification.servers.ports import free_address

SMALL_STORE = StoreSettings(segment_bytes=4 << 20, headroom_bytes=0)
STOP_GRACE_S = 1.0
REGISTERED_TIMEOUT_S = 60.0
"""The time within which an enode must have registered at the name server."""


@dataclass(slots=True)
class InProcessCluster:
    """The services that are open, by name; each keeps its port and its data when it is closed and opened again."""

    folder: Path
    clock: Clock
    randomness: Randomness
    channels: Channels
    store: StoreSettings = SMALL_STORE
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    _parts: dict[str, contextlib.AsyncExitStack] = field(default_factory=dict)
    _addresses: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where clients connect."""
        return self._addresses["snode-0"]

    def address_of(self, name: str) -> str:
        """The address of a service, or its last address while closed."""
        return self._addresses[name]

    async def open_namesrv(self) -> Running:
        """Open the name server, also after a close."""
        chosen = namesrv_settings.NamesrvSettings(**self._settings("namesrv", data_dir=self.folder / "namesrv"))
        return await self._open(
            "namesrv-0", namesrv_app.open_namesrv(chosen, clock=self.clock, randomness=self.randomness)
        )

    async def open_enode(
        self, name: str, *, disk: Disk | None = None, registers: bool = True
    ) -> enode_app.RunningEnode:
        """Open an enode, also after a close. `registers` = it must get a lease."""
        chosen = enode_settings.EnodeSettings(
            **self._settings("enode", name, data_dir=self.folder / name, store=self.store, name=name)
        )
        running = await self._open(
            name, enode_app.open_enode(chosen, clock=self.clock, randomness=self.randomness, disk=disk)
        )
        assert isinstance(running, enode_app.RunningEnode)
        if registers and "namesrv-0" in self.running:
            await self._registered(name)
        return running

    async def open_snode(self, name: str) -> Running:
        """Open a snode, also after a close."""
        chosen = snode_settings.SnodeSettings(**self._settings("snode", name, name=name))
        return await self._open(name, snode_app.open_snode(chosen, clock=self.clock, randomness=self.randomness))

    async def close(self, name: str) -> None:
        """Drain and close one service; does nothing when it is not open."""
        self.running.pop(name, None)
        parts = self._parts.pop(name, None)
        if parts is not None:
            stopping = asyncio.Event()
            stopping.set()
            async with Background("stop") as background:
                background.spawn("late", log_late_stop(stopping, SystemClock()))
                await parts.aclose()

    async def close_all(self) -> None:
        """Close everything, snodes first."""
        for name in reversed(tuple(self._parts)):
            await self.close(name)

    async def create_topic(
        self,
        name: str,
        *,
        queues: int = 4,
        enodes: tuple[str, ...] = (),
        message_type: "topic_pb2.MessageType.ValueType" = topic_pb2.MESSAGE_TYPE_UNSPECIFIED,
    ) -> topic_pb2.Topic:
        """Create a topic at the name server."""
        request = namesrv_pb2.CreateTopicRequest(
            name=name, read_queue_count=queues, enodes=enodes, message_type=message_type
        )
        return (await self.name_service.CreateTopic(request)).topic

    @property
    def name_service(self) -> namesrv_pb2_grpc.NameServiceStub:
        """The name server's methods."""
        return namesrv_pb2_grpc.NameServiceStub(self.channels.channel_to(self._addresses["namesrv-0"]))

    async def seals(self) -> HandleSeals:
        """The handle seals of this cluster, with the keys that its name server gives to snodes."""
        watch = self.name_service.WatchRoutes(namesrv_pb2.WatchRoutesRequest(include_handle_keys=True))
        news = await watch.read()
        watch.cancel()
        assert isinstance(news, namesrv_pb2.WatchRoutesResponse)
        seals = HandleSeals(self.clock.now_ms)
        seals.use_keys(HandleKeys(tuple(read(HandleKey, key) for key in news.handle_keys.keys)))
        return seals

    async def _registered(self, enode: str) -> None:
        async with asyncio.timeout(REGISTERED_TIMEOUT_S):
            async for news in self.name_service.WatchRoutes(namesrv_pb2.WatchRoutesRequest()):
                if any(known.name == enode and known.alive for known in news.enodes):
                    return

    def _settings(self, role: str, process: str = "namesrv-0", /, **own: Any) -> dict[str, Any]:
        shared = {"listen_address": self._addresses.get(process) or free_address(), "stop_grace_s": STOP_GRACE_S}
        if role != "namesrv":
            shared["namesrv_address"] = self._addresses["namesrv-0"]
        return shared | own | self.settings.get(role, {})

    async def _open(self, name: str, opening: contextlib.AbstractAsyncContextManager[Running]) -> Running:
        assert name not in self._parts, f"{name} is open already"
        parts = contextlib.AsyncExitStack()
        running = await parts.enter_async_context(opening)
        self._parts[name], self.running[name], self._addresses[name] = parts, running, running.address
        return running


@contextlib.asynccontextmanager
async def open_cluster(
    folder: Path,
    *,
    enodes: int = 1,
    snodes: int = 1,
    store: StoreSettings = SMALL_STORE,
    settings: dict[str, dict[str, Any]] | None = None,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
) -> AsyncIterator[InProcessCluster]:
    """Open a name server, `enode-0`... and `snode-0`...

    `settings` holds the settings of each role by its name.
    """
    # A test calls the name server as a snode does: a name server itself has no role at its own port.
    clock, chosen = clock or SystemClock(), snode_settings.SnodeSettings(**(settings or {}).get("snode", {}))
    async with cluster_channels(chosen, cluster_token(chosen.cluster_token_file, clock)) as channels:
        cluster = InProcessCluster(folder, clock, randomness or Randomness(), channels, store, settings or {})
        try:
            await cluster.open_namesrv()
            for number in range(enodes):
                await cluster.open_enode(f"enode-{number}")
            for number in range(snodes):
                await cluster.open_snode(f"snode-{number}")
            yield cluster
        finally:
            await cluster.close_all()
