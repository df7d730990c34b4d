"""A name server that remembers nothing, a real enode and a real snode in one process, for tests of the snode."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from ortoo.common.grpc_channels import Channels
from ortoo.common.grpc_server import GrpcServer
from ortoo.enode import settings as enode_settings
from ortoo.enode.app import RunningEnode, open_enode
from ortoo.enode.store_settings import StoreSettings
from ortoo.snode.app import open_snode
from ortoo.snode.settings import Settings
from ortoo.v1 import namesrv_pb2, topic_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.v1.namesrv_pb2_grpc import NameServiceServicer, add_NameServiceServicer_to_server
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub


class FakeNameServer(NameServiceServicer):  # type: ignore[misc]
    """Topics and groups in two dicts; every registration is believed."""

    def __init__(self) -> None:
        self.version = 100
        self.topics: dict[str, topic_pb2.Topic] = {}
        self.groups: dict[str, topic_pb2.Group] = {}
        self.enodes: dict[str, topic_pb2.Enode] = {}
        self.get_topic_calls = 0
        self._changed = asyncio.Event()

    def _change(self) -> None:
        self.version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def RegisterEnode(self, request: Any, context: Any) -> Any:
        request.enode.alive = True
        if self.enodes.get(request.enode.name) != request.enode:
            self.enodes[request.enode.name] = request.enode
            self._change()
        return namesrv_pb2.RegisterEnodeResponse(lease_ms=60_000, version=self.version)

    async def RegisterSnode(self, request: Any, context: Any) -> Any:
        return namesrv_pb2.RegisterSnodeResponse(lease_ms=60_000, version=self.version)

    async def Unregister(self, request: Any, context: Any) -> Any:
        if request.enode in self.enodes:
            self.enodes[request.enode].alive = False
            self._change()
        return namesrv_pb2.UnregisterResponse()

    async def CreateTopic(self, request: Any, context: Any) -> Any:
        count = request.read_queue_count or 4
        topic = topic_pb2.Topic(
            name=request.name,
            topic_id=0xABC0 + len(self.topics),
            version=self.version + 1,
            permission=request.permission or topic_pb2.PERMISSION_READ_WRITE,
            placements=[
                topic_pb2.Placement(
                    enode=name, read_queue_count=count, write_queue_count=request.write_queue_count or count
                )
                for name in request.enodes or self.enodes
            ],
        )
        self.topics[request.name] = topic
        self._change()
        return namesrv_pb2.CreateTopicResponse(topic=topic)

    async def GetTopic(self, request: Any, context: Any) -> Any:
        self.get_topic_calls += 1
        if request.name not in self.topics:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such topic")
        return namesrv_pb2.GetTopicResponse(topic=self.topics[request.name])

    async def PutGroup(self, request: Any, context: Any) -> Any:
        request.group.version = self.version + 1
        request.group.slow_consumer_threshold_messages = request.group.slow_consumer_threshold_messages or 1024
        request.group.slow_consumer_grace_ms = request.group.slow_consumer_grace_ms or 10_000
        self.groups[request.group.name] = request.group
        self._change()
        return namesrv_pb2.PutGroupResponse(group=request.group)

    async def WatchRoutes(self, request: Any, context: Any) -> AsyncIterator[Any]:
        while True:
            changed = self._changed
            yield namesrv_pb2.WatchRoutesResponse(
                version=self.version,
                snapshot=True,
                topics=self.topics.values(),
                groups=self.groups.values(),
                enodes=self.enodes.values(),
            )
            await changed.wait()


for _name in (
    "UpdateTopic",
    "DeleteTopic",
    "ListTopics",
    "DeleteGroup",
    "ListGroups",
):
    setattr(FakeNameServer, _name, lambda self, request, context: None)
FakeNameServer.__abstractmethods__ = frozenset()


@dataclass
class Cluster:
    """What a test needs of it."""

    names: FakeNameServer
    names_address: str
    snode_address: str
    channel: grpc.aio.Channel
    folder: Path
    enodes: dict[str, RunningEnode] = field(default_factory=dict)
    stops: dict[str, contextlib.AsyncExitStack] = field(default_factory=dict)

    @property
    def producer(self) -> ProducerServiceStub:
        """Sends."""
        return ProducerServiceStub(self.channel)

    @property
    def consumer(self) -> ConsumerServiceStub:
        """Receives."""
        return ConsumerServiceStub(self.channel)

    @property
    def admin(self) -> AdminServiceStub:
        """Operates."""
        return AdminServiceStub(self.channel)

    async def topic(self, name: str, queues: int = 1) -> topic_pb2.Topic:
        """Create a topic through the snode."""
        answer = await self.admin.CreateTopic(namesrv_pb2.CreateTopicRequest(name=name, read_queue_count=queues))
        return answer.topic

    async def start_enode(self, name: str) -> None:
        """Start an enode, or start it again on its store."""
        address = self.enodes[name].address if name in self.enodes else "127.0.0.1:0"
        settings = enode_settings.Settings(
            name=name,
            listen_address=address,
            namesrv_address=self.names_address,
            data_dir=self.folder / name,
            stop_grace_s=0.2,
            store=StoreSettings(enode=name, segment_bytes=16 << 20),
        )
        stack = contextlib.AsyncExitStack()
        self.enodes[name] = await stack.enter_async_context(open_enode(settings))
        self.stops[name] = stack

    async def stop_enode(self, name: str) -> None:
        """Stop an enode in good order."""
        await self.stops.pop(name).aclose()


@contextlib.asynccontextmanager
async def cluster(folder: Path, *, enodes: Sequence[str] = ("e1",), **overrides: Any) -> AsyncIterator[Cluster]:
    """Run one snode over enodes; `overrides` are settings of the snode."""
    names = FakeNameServer()
    server = GrpcServer("127.0.0.1:0", [("names", lambda s: add_NameServiceServicer_to_server(names, s))], grace_s=0.1)
    async with server, Channels() as channels:
        settings = Settings(
            listen_address="127.0.0.1:0", namesrv_address=server.address, **{"stop_grace_s": 1.0, **overrides}
        )
        running = Cluster(names, server.address, "", channels.to("127.0.0.1:1"), folder)
        try:
            for name in enodes:
                await running.start_enode(name)
            async with open_snode(settings) as snode:
                running.snode_address = snode.address
                running.channel = channels.to(snode.address)
                while len([e for e in names.enodes.values() if e.alive]) < len(enodes):
                    await names._changed.wait()
                yield running
        finally:
            for stack in running.stops.values():
                await stack.aclose()
