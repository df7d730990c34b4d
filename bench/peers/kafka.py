"""Apache Kafka in KRaft mode: one broker, or three, as it ships, and topics that are flushed with each message."""

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bench.peers import jars
from bench.peers.ours import RETENTION_BYTES
from bench.peers.servers import DidNotStart, Servers, java_server
from ortoo.cli.demo.role_subprocess import free_addresses

HEAP_MIB = 768
G1 = (
    "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
"""The options of Kafka's own start script, apart from the heap."""
SHIPPED: Mapping[str, str] = {}
FLUSHED: Mapping[str, str] = {"flush.messages": "1"}
"""Settings of a topic: none, so that the page cache acknowledges, or a flush with each batch."""
SETTINGS = """process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{address},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{address}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor={copies}
offsets.topic.num.partitions=8
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={in_sync}
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr={in_sync}
min.insync.replicas={in_sync}
log.segment.bytes=134217728
log.retention.bytes={retention}
log.retention.check.interval.ms=10000
"""
"""The last three settings limit the size of each topic; Ortoo's log has the same limit."""
FORMAT_TIMEOUT_S = 120.0


@asynccontextmanager
async def kafka(
    folder: Path,
    brokers: int,
    topics: Mapping[str, Mapping[str, str]],
    queues: int,
    *,
    retention_bytes: int = RETENTION_BYTES,
) -> AsyncIterator[Servers]:
    """Run `brokers` brokers in `folder` with these topics and their settings. Errors: NotHere, DidNotStart."""
    libraries = jars.bring("kafka")
    free = free_addresses(2 * brokers)
    addresses, controllers = free[:brokers], free[brokers:]
    voters = ",".join(f"{number}@{address}" for number, address in enumerate(controllers, 1))
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    in_sync = min(2, brokers)
    async with AsyncExitStack() as stack:
        starts = []
        for number, (address, controller) in enumerate(zip(addresses, controllers, strict=True), 1):
            own = folder / f"broker-{number}"
            own.mkdir(parents=True)
            said = SETTINGS.format(
                number=number, voters=voters, address=address, controller=controller, data=own / "data",
                copies=brokers, in_sync=in_sync, retention=retention_bytes // queues,
            )  # fmt: skip
            (own / "server.properties").write_text(said)
            await _format(own, libraries, cluster_id)
            words, port = ("kafka.Kafka", "server.properties"), int(address.rpartition(":")[2])
            starts.append(
                stack.enter_async_context(
                    java_server(own, f"broker-{number}", libraries, HEAP_MIB, words, port, options=G1)
                )
            )
        process_ids = {f"broker-{number}": pid for number, pid in enumerate(await asyncio.gather(*starts), 1)}
        bootstrap = ",".join(addresses)
        await asyncio.to_thread(_create_topics, bootstrap, topics, queues, brokers)
        yield Servers(bootstrap, process_ids)


async def _format(folder: Path, libraries: Path, cluster_id: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *("java", "-Xmx256m", "-cp", f"{libraries}/*", "kafka.tools.StorageTool", "format"),
        *(f"--cluster-id={cluster_id}", "--config", "server.properties"),  # an id may begin with a dash
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(FORMAT_TIMEOUT_S):
        said, _ = await process.communicate()
    if process.returncode != 0:
        raise DidNotStart(f"a broker's folder was not formatted: {said.decode(errors='replace')[-2000:]}")


def _create_topics(bootstrap: str, topics: Mapping[str, Mapping[str, str]], queues: int, copies: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    new: Sequence[Any] = [
        NewTopic(name, num_partitions=queues, replication_factor=copies, config=dict(settings))
        for name, settings in topics.items()
    ]
    for future in admin.create_topics(new, operation_timeout=60, request_timeout=70).values():
        future.result()
