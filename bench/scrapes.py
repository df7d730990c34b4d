"""The longest send beside scrapes and lists, in a cluster with many topics and groups."""

import argparse
import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import sqlalchemy as sa

from bench.processes import cluster
from bench.report import Figures, main
from bench.route_watchers import store_topics
from ortoo.client import Producer, connect
from ortoo.common.directory.group import Group
from ortoo.common.process.clock import SystemClock
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.engine import create_database_engine, database_url_of
from ortoo.v1 import enode_pb2, findings_pb2, lag_pb2
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub
from ortoo.v1.findings_pb2_grpc import FindingsServiceStub
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.scrape import get

CLOCK = SystemClock()
METHOD = (
    "each role in its own process, and one enode with topics and a group with an offset in each. A producer sends "
    "single messages, each after the one before. The longest send beside a request, and the time of the request"
)
COMMITS_AT_ONCE = 64
Request = Callable[[], Awaitable[object]]


async def store_directory(folder: Path, topics: int) -> None:
    """Write the database of a name server: topics, and a group for each."""
    await store_topics(folder, topics)
    engine = create_database_engine(database_url_of("", folder))
    with engine.begin() as connection:
        groups = [Group(f"g{number}", version=1) for number in range(1, topics + 1)]
        connection.execute(sa.insert(tables.groups), [tables.row_of(tables.groups, one) for one in groups])
    engine.dispose()


async def commit_offsets(stub: EnodeServiceStub, topics: int) -> None:
    """Give each group an offset in its topic."""
    numbers = iter(range(1, topics + 1))

    async def worker() -> None:
        for number in numbers:
            offsets = [enode_pb2.QueueOffset(queue_id=0, offset=0)]
            request = enode_pb2.CommitOffsetsRequest(topic_id=number, group=f"g{number}", offsets=offsets)
            await stub.CommitOffsets(request)

    await asyncio.gather(*(worker() for _ in range(COMMITS_AT_ONCE)))


async def beside(producer: Producer, request: Request) -> Figures:
    """Send messages until the request is answered."""
    longest_s, began_s = 0.0, CLOCK.monotonic_s()
    answering = asyncio.ensure_future(request())
    for _ in itertools.count():
        sent_s = CLOCK.monotonic_s()
        await producer.send(b"x" * 100)
        longest_s = max(longest_s, CLOCK.monotonic_s() - sent_s)
        if answering.done():
            break
    await answering
    return {"longest_send_ms": round(1_000 * longest_s, 1), "request_s": round(CLOCK.monotonic_s() - began_s, 2)}


async def measure(options: argparse.Namespace) -> Figures:
    """Measure each request, after a request of the same kind."""
    with tempfile.TemporaryDirectory(prefix="ortoo-bench-") as name:
        folder = Path(name)
        (folder / "namesrv").mkdir()
        await store_directory(folder / "namesrv", options.topics)
        enode_metrics, snode_metrics = (f"127.0.0.1:{port}" for port in free_ports(2))
        async with (
            cluster(
                folder, NAME="enode-0", METRICS_ADDRESS=enode_metrics, snode_settings={"METRICS_ADDRESS": snode_metrics}
            ) as roles,
            grpc.aio.insecure_channel(roles.enode.address) as channel,
            connect(roles.address) as mq,
            mq.producer("t1") as producer,
        ):
            enode, findings = EnodeServiceStub(channel), FindingsServiceStub(channel)
            await producer.send(b"first")
            await commit_offsets(enode, options.topics)
            requests: dict[str, Request] = {
                "nothing": lambda: CLOCK.sleep(2.0),
                "scrape_enode": lambda: get(enode_metrics, "/metrics"),
                "scrape_snode": lambda: get(snode_metrics, "/metrics"),
                "list_topics": mq.admin.list_topics,
                "list_groups": mq.admin.list_groups,
                "describe_lags": lambda: enode.DescribeLags(lag_pb2.DescribeLagsRequest(group="g1")),
                "list_findings": lambda: findings.ListFindings(findings_pb2.ListFindingsRequest()),
            }
            figures: Figures = {"topics": options.topics}
            for request_name, request in requests.items():
                await request()
                figures[request_name] = await beside(producer, request)
            return figures


if __name__ == "__main__":
    main("scrapes", METHOD, measure, topics=50_000)
