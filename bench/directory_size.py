"""The cost of a large directory: a name server, an enode and a snode that start with many topics on many enodes."""

import argparse
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc

from bench.processes import memory_mib, running_s
from bench.report import Figures, main
from bench.route_watchers import store_topics
from ortoo.cli.demo.role_subprocess import RoleSubprocess
from ortoo.client import connect
from ortoo.v1.namesrv_pb2 import CreateTopicRequest, RegisterEnodeRequest, WatchRoutesRequest
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.v1.topic_pb2 import Enode

METHOD = (
    "name server, one enode and a snode, each a process. The database has `topics` topics, each on `enodes` enodes, of "
    "which only the first exists and the others are registrations. Measured for each process: processor seconds and "
    "memory after it has the directory. Then the time to create a topic and to send the first message to it"
)


def starter(stack: AsyncExitStack, folder: Path, figures: Figures) -> Callable[..., Awaitable[RoleSubprocess]]:
    """A function that starts a process of a role until the end of `stack`, and notes its time of start."""

    async def start(role: str, **environ: str) -> RoleSubprocess:
        process = RoleSubprocess(role, environ, folder / f"{role}.log")
        stack.push_async_callback(process.stop)
        began_s = time.monotonic()
        await process.start()
        figures[f"{role}_start_s"] = round(time.monotonic() - began_s, 1)
        return process

    return start


async def measure(arguments: argparse.Namespace) -> Figures:
    """Start the processes with the directory."""
    figures: Figures = {}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ortoo-bench-")))
        await store_topics(folder / "namesrv", int(arguments.topics), int(arguments.enodes))

        start = starter(stack, folder, figures)
        namesrv = await start("namesrv", DATA_DIR=str(folder / "namesrv"), LEASE_S="3600")
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(namesrv.address))
        stub = NameServiceStub(channel)
        for at in range(1, int(arguments.enodes)):
            registered = Enode(name=f"enode-{at}", address="127.0.0.1:1", store_id=f"s{at}")
            await stub.RegisterEnode(RegisterEnodeRequest(enode=registered))
        received_bytes = 0
        async for part in stub.WatchRoutes(WatchRoutesRequest(accepts_placement_sets=True)):
            received_bytes += part.ByteSize()
            if not part.more:
                break
        figures["snapshot_mb"] = round(received_bytes / 1e6, 1)
        common = {"NAMESRV_ADDRESS": namesrv.address}
        enode = await start("enode", DATA_DIR=str(folder / "enode"), NAME="enode-0", **common)
        others = {"enode": enode, "snode": await start("snode", **common)}
        async with connect(others["snode"].address) as mq:
            began_s = time.monotonic()
            await stub.CreateTopic(CreateTopicRequest(name="everywhere"))
            figures["create_topic_ms"] = round((time.monotonic() - began_s) * 1000)
            await mq.admin.create_topic("here", enodes=["enode-0"])
            began_s = time.monotonic()
            async with mq.producer("here") as producer:
                await producer.send(b"body")
            figures["first_send_ms"] = round((time.monotonic() - began_s) * 1000)
        for name, process in {"namesrv": namesrv, **others}.items():
            figures[f"{name}_processor_s"] = round(running_s(process.process_id), 1)
            figures[f"{name}_mib"] = round(memory_mib(process.process_id))
    return figures


if __name__ == "__main__":
    main("directory_size", METHOD, measure, topics=99_990, enodes=100)
