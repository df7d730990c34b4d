"""The cost of many lite topics: a name server, an enode and a snode that start with them, and each new one."""

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import sqlalchemy as sa

from apache.rocketmq.v2 import definition_pb2, service_pb2
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from bench.directory_size import starter
from bench.processes import memory_mib, memory_peak_mib, running_s
from bench.report import Figures, main
from ortoo.cli.demo import role_subprocess
from ortoo.common.directory.topic import MessageType, Permission, Placement
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.catalog.engine import create_database_engine, database_url_of
from ortoo.namesrv.decisions.placements import PlacementSet
from ortoo.namesrv.decisions.topics import LITE_TOPICS_OF_PARENT_MAX, Topic

METHOD = (
    "name server, one enode and a snode, each a process. The database has `lite` lite topics, 9,000 below each parent. "
    "The share `here` of them is on the enode, the others are on an enode that does not run. Measured for each "
    "process: time, processor seconds and memory after it has the directory. Then the time of a send that creates a "
    "lite topic, and of a first send to an existing one. At the end: processor time and written bytes in `idle` s "
    "without requests"
)
READY_TIMEOUT_S = 600.0
OF_PARENT, ROWS_IN_STATEMENT = 9_000, 20_000
assert OF_PARENT < LITE_TOPICS_OF_PARENT_MAX


def store_lite_topics(folder: Path, count: int, here: float) -> None:
    """Write lite topics and their parents into the database of a name server."""
    one, away = (PlacementSet.of((Placement(name, 1, 1),)) for name in ("enode-0", "enode-away"))
    parents = (count + OF_PARENT - 1) // OF_PARENT
    known = [
        Topic(f"p{number}", number + 1, 1, Permission.READ_WRITE, one, 1, MessageType.LITE) for number in range(parents)
    ]
    for number in range(count):
        parent = f"p{number // OF_PARENT}"
        placed = one if number % 1_000 < here * 1_000 else away
        name, topic_id = f"%LMQ%|{parent}|lite-topic-{number:07}", 1_000_000 + number
        known.append(Topic(name, topic_id, 1, Permission.READ_WRITE, placed, 1, MessageType.FIFO, parent=parent))
    engine = create_database_engine(database_url_of("", folder))
    with engine.begin() as connection:
        for at in range(0, len(known), ROWS_IN_STATEMENT):
            rows = [tables.row_of(tables.topics, topic) for topic in known[at : at + ROWS_IN_STATEMENT]]
            connection.execute(sa.insert(tables.topics), rows)
        for placed in (one, away):
            rows = [tables.row_of(tables.placement_sets, place, set_id=placed.set_id) for place in placed]
            connection.execute(sa.insert(tables.placement_sets), rows)
    engine.dispose()


def written_bytes(process_id: int) -> int:
    """The bytes that a process has written so far, to files and to sockets."""
    lines = Path(f"/proc/{process_id}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


async def send_ms(stub: MessagingServiceStub, parent: str, lite_topic: str) -> float:
    """Send one message to a lite topic; returns the time in milliseconds."""
    system = definition_pb2.SystemProperties(message_id=f"m-{lite_topic}", lite_topic=lite_topic)
    message = definition_pb2.Message(topic={"name": parent}, body=b"body", system_properties=system)  # type: ignore[arg-type]
    began_s = time.monotonic()
    request = service_pb2.SendMessageRequest(messages=[message])
    answer = await stub.SendMessage(request, metadata=(("x-mq-client-id", "bench"),))
    if answer.status.code != definition_pb2.OK:
        raise RuntimeError(answer.status.message)
    return (time.monotonic() - began_s) * 1000


async def until_stored(stub: MessagingServiceStub, parent: str, lite_topic: str) -> None:
    """Send until a message is stored, because the enode may still be reading the directory."""
    while True:
        with contextlib.suppress(RuntimeError):
            await send_ms(stub, parent, lite_topic)
            return
        await asyncio.sleep(0.5)


async def measure(arguments: argparse.Namespace) -> Figures:
    """Start the processes with the lite topics."""
    figures: Figures = {}
    role_subprocess.READY_TIMEOUT_S = READY_TIMEOUT_S
    count, here = int(arguments.lite), float(arguments.here)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ortoo-bench-")))
        await (await Catalog.open("", folder / "namesrv", "directory")).close()
        store_lite_topics(folder / "namesrv", count, here)

        start = starter(stack, folder, figures)
        namesrv = await start("namesrv", DATA_DIR=str(folder / "namesrv"), LEASE_S="3600")
        common = {"NAMESRV_ADDRESS": namesrv.address}
        enode = await start("enode", DATA_DIR=str(folder / "enode"), NAME="enode-0", **common)
        processes = {"namesrv": namesrv, "enode": enode, "snode": await start("snode", **common)}
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(processes["snode"].address))
        stub = MessagingServiceStub(channel)
        began_s = time.monotonic()
        last = max(number for number in range(count) if number % 1_000 < here * 1_000)
        await until_stored(stub, f"p{last // OF_PARENT}", f"lite-topic-{last:07}")
        figures["all_known_after_s"] = round(time.monotonic() - began_s, 1)
        for name, process in processes.items():
            figures[f"{name}_processor_s"] = round(running_s(process.process_id), 1)
            figures[f"{name}_mib"] = round(memory_mib(process.process_id))
            figures[f"{name}_peak_mib"] = round(memory_peak_mib(process.process_id))
        await until_stored(stub, "p0", "warm")
        created = [await send_ms(stub, "p0", f"new-{number}") for number in range(20)]
        figures["new_lite_topic_ms"] = round(statistics.median(created), 1)
        known = [number for number in range(5, min(count, OF_PARENT), 17) if number % 1_000 < here * 1_000][:20]
        used = [await send_ms(stub, "p0", f"lite-topic-{number:07}") for number in known]
        figures["first_use_ms"] = round(statistics.median(used), 1)
        before = {name: (running_s(one.process_id), written_bytes(one.process_id)) for name, one in processes.items()}
        await asyncio.sleep(float(arguments.idle))
        for name, process in processes.items():
            processor_s, written = before[name]
            figures[f"{name}_idle_processor_s"] = round(running_s(process.process_id) - processor_s, 2)
            figures[f"{name}_idle_bytes"] = written_bytes(process.process_id) - written
    return figures


if __name__ == "__main__":
    main("lite_topics", METHOD, measure, lite=999_900, here=1.0, idle=30)
