"""The cost of many watchers for a name server that restarts, with snapshots and with watches that continue."""

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import sqlalchemy as sa

from bench.processes import memory_mib, memory_peak_mib, running_s
from bench.report import Figures, main
from ortoo.cli.demo.role_subprocess import RoleSubprocess
from ortoo.common.directory.topic import Permission, Placement
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.catalog.engine import create_database_engine, database_url_of
from ortoo.namesrv.decisions.placements import PlacementSet
from ortoo.namesrv.decisions.topics import Topic
from ortoo.v1.namesrv_pb2 import CreateTopicRequest, RegisterEnodeRequest, WatchRoutesRequest, WatchRoutesResponse
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.v1.topic_pb2 import Enode

METHOD = (
    "a name server in its own process, with topics in SQLite, and watchers with a connection each. Processor seconds "
    "of the name server, and its peak memory, for the first messages of all watchers after a start: snapshots, and "
    "watches that continue. Then for one new topic, and for the registration of as many enodes"
)
ENODE = "enode-0"
PATH = "/ortoo.v1.NameService/WatchRoutes"
QUIET_S = 0.5
"""The name server is idle after this time without a message."""


async def store_topics(folder: Path, topics: int, enodes: int = 1) -> None:
    """Write the database of a name server, with topics on the enodes enode-0, enode-1 and so on."""
    placements = PlacementSet.of(tuple(Placement(name, 4, 4) for name in sorted(f"enode-{at}" for at in range(enodes))))
    known = [Topic(f"t{number}", number, 1, Permission.READ_WRITE, placements, 1) for number in range(1, topics + 1)]
    await (await Catalog.open("", folder, "directory")).close()
    engine = create_database_engine(database_url_of("", folder))
    with engine.begin() as connection:
        connection.execute(sa.insert(tables.topics), [tables.row_of(tables.topics, one) for one in known])
        table = tables.placement_sets
        rows = [tables.row_of(table, one, set_id=placements.set_id) for one in placements]
        connection.execute(sa.insert(table), rows)
    engine.dispose()


class Watchers:
    """Watchers of one name server, each with its own connection."""

    def __init__(self, address: str, count: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channels = [grpc.aio.insecure_channel(address, options) for _ in range(count)]
        self.received_bytes = 0
        self.failed = 0
        self._started = 0
        self._quiet = asyncio.Event()

    async def follow(self, channel: Any, request: bytes) -> None:
        """Read one watch until the channel is closed."""
        call: Any = channel.unary_stream(PATH)(request)
        is_first = True
        try:
            async for message in call:
                self.received_bytes += len(message)
                self._started += is_first
                is_first = False
                self._quiet.set()
        except grpc.aio.AioRpcError:
            self.failed += 1
            self._started += is_first

    async def until_quiet(self) -> None:
        """Wait until each watcher has a message, and no message has come for a while."""
        while True:
            self._quiet.clear()
            try:
                async with asyncio.timeout(QUIET_S):
                    await self._quiet.wait()
            except TimeoutError:
                if self._started >= len(self.channels):
                    return


@asynccontextmanager
async def name_server(folder: Path) -> AsyncIterator[RoleSubprocess]:
    """A name server in its own process."""
    process = RoleSubprocess("namesrv", {"DATA_DIR": str(folder)}, folder / "namesrv.log", "")
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


async def measure_start(folder: Path, watchers: int, request: WatchRoutesRequest) -> Figures:
    """The cost of a start with these watchers, of one change, and of registrations."""
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(name_server(folder))
        idle_mib, began_s = memory_mib(process.process_id), running_s(process.process_id)
        group = Watchers(process.address, watchers)
        for channel in group.channels:
            stack.push_async_callback(channel.close)
        tasks = asyncio.TaskGroup()
        await stack.enter_async_context(tasks)
        encoded = request.SerializeToString()
        following = [tasks.create_task(group.follow(channel, encoded)) for channel in group.channels]
        await group.until_quiet()
        first_s, first_mb = running_s(process.process_id) - began_s, group.received_bytes / 1e6
        peak_mib = memory_peak_mib(process.process_id)
        stubs = [NameServiceStub(channel) for channel in group.channels]
        await stubs[0].RegisterEnode(RegisterEnodeRequest(enode=Enode(name=ENODE, address="h:1", store_id="s")))
        await group.until_quiet()
        began_s = running_s(process.process_id)
        await stubs[0].CreateTopic(CreateTopicRequest(name=f"new-{request.since}"))
        await group.until_quiet()
        change_s = running_s(process.process_id) - began_s
        began_s = running_s(process.process_id)
        enodes = [Enode(name=f"e{number}", address="h:1", store_id=f"s{number}") for number in range(watchers)]
        requests = [RegisterEnodeRequest(enode=enode) for enode in enodes]
        await asyncio.gather(*(stub.RegisterEnode(one) for stub, one in zip(stubs, requests, strict=True)))
        await group.until_quiet()
        registrations_s = running_s(process.process_id) - began_s
        failed = group.failed
        for task in following:
            task.cancel()
    return {
        "first_messages_cpu_s": round(first_s, 2),
        "failed_watchers": failed,
        "sent_mb": round(first_mb, 1),
        "idle_mib": idle_mib,
        "peak_mib": peak_mib,
        "one_change_cpu_ms": round(1_000 * change_s, 1),
        "registrations_cpu_s": round(registrations_s, 2),
    }


async def measure(options: argparse.Namespace) -> Figures:
    """Measure two starts of a name server with the same database."""
    with tempfile.TemporaryDirectory(prefix="ortoo-bench-") as name:
        folder = Path(name)
        await store_topics(folder, options.topics)
        snapshots = await measure_start(folder, options.watchers, WatchRoutesRequest())
        async with name_server(folder) as process, grpc.aio.insecure_channel(process.address) as channel:
            call: Any = NameServiceStub(channel).WatchRoutes(WatchRoutesRequest())
            known: WatchRoutesResponse = await call.read()
            call.cancel()
        resumed = WatchRoutesRequest(directory_id=known.directory_id, since=known.version)
        continued = await measure_start(folder, options.watchers, resumed)
    return {"topics": options.topics, "watchers": options.watchers, "snapshots": snapshots, "continued": continued}


if __name__ == "__main__":
    main("route_watchers", METHOD, measure, topics=10_000, watchers=350)
