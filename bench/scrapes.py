"""The longest send beside scrapes and lists, in a cluster with many topics and groups."""

import argparse
import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
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
    "each role in its own process, and one enode with topics and groups with an offset each. A producer sends single "
    "messages, each after the one before. The longest send beside a request, which a process of its own makes, and the "
    "time of the request"
)
COMMITS_AT_ONCE = 64
Request = Callable[[str], Awaitable[object]]
"""Takes an address."""


async def nothing(address: str) -> None:
    """For comparison."""
    await CLOCK.sleep(2.0)


async def scrape(address: str) -> object:
    """All metrics."""
    return await get(address, "/metrics")


async def list_topics(address: str) -> object:
    """All topics."""
    async with connect(address) as mq:
        return await mq.admin.list_topics()


async def list_groups(address: str) -> object:
    """All groups."""
    async with connect(address) as mq:
        return await mq.admin.list_groups()


async def describe_lags(address: str) -> object:
    """The lag of one group."""
    async with grpc.aio.insecure_channel(address) as channel:
        return await EnodeServiceStub(channel).DescribeLags(lag_pb2.DescribeLagsRequest(group="g1"))


async def list_findings(address: str) -> object:
    """The findings of a process."""
    async with grpc.aio.insecure_channel(address) as channel:
        return await FindingsServiceStub(channel).ListFindings(findings_pb2.ListFindingsRequest())


def made(request: Request, address: str) -> float:
    """Make a request in this process; returns its time in seconds."""
    began_s = CLOCK.monotonic_s()
    asyncio.run(_made(request, address))
    return CLOCK.monotonic_s() - began_s


async def _made(request: Request, address: str) -> None:
    await request(address)


async def store_directory(folder: Path, topics: int, count: int) -> None:
    """Write the database of a name server: topics and groups."""
    await store_topics(folder, topics)
    engine = create_database_engine(database_url_of("", folder))
    with engine.begin() as connection:
        groups = [Group(f"g{number}", version=1) for number in range(1, count + 1)]
        connection.execute(sa.insert(tables.groups), [tables.row_of(tables.groups, one) for one in groups])
    engine.dispose()


async def commit_offsets(stub: EnodeServiceStub, groups: int) -> None:
    """Give each group an offset in a topic of its own."""
    numbers = iter(range(1, groups + 1))

    async def worker() -> None:
        for number in numbers:
            offsets = [enode_pb2.QueueOffset(queue_id=0, offset=0)]
            request = enode_pb2.CommitOffsetsRequest(topic_id=number, group=f"g{number}", offsets=offsets)
            await stub.CommitOffsets(request)

    await asyncio.gather(*(worker() for _ in range(COMMITS_AT_ONCE)))


async def beside(producer: Producer, answering: "asyncio.Future[float]") -> Figures:
    """Send messages until a request is answered."""
    longest_s = 0.0
    for _ in itertools.count():
        sent_s = CLOCK.monotonic_s()
        await producer.send(b"x" * 100)
        longest_s = max(longest_s, CLOCK.monotonic_s() - sent_s)
        if answering.done():
            break
    return {"longest_send_ms": round(1_000 * longest_s, 1), "request_s": round(await answering, 2)}


async def measure(options: argparse.Namespace) -> Figures:
    """Measure each request, after a request of the same kind."""
    with tempfile.TemporaryDirectory(prefix="ortoo-bench-") as name:
        folder = Path(name)
        (folder / "namesrv").mkdir()
        await store_directory(folder / "namesrv", options.topics, options.groups)
        enode_metrics, snode_metrics = (f"127.0.0.1:{port}" for port in free_ports(2))
        async with (
            cluster(
                folder, NAME="enode-0", METRICS_ADDRESS=enode_metrics, snode_settings={"METRICS_ADDRESS": snode_metrics}
            ) as roles,
            grpc.aio.insecure_channel(roles.enode.address) as channel,
            connect(roles.address) as mq,
            mq.producer("t1") as producer,
        ):
            await producer.send(b"first")
            await commit_offsets(EnodeServiceStub(channel), options.groups)
            requests: dict[str, tuple[Request, str]] = {
                "nothing": (nothing, ""),
                "scrape_enode": (scrape, enode_metrics),
                "scrape_snode": (scrape, snode_metrics),
                "list_topics": (list_topics, roles.address),
                "list_groups": (list_groups, roles.address),
                "describe_lags": (describe_lags, roles.enode.address),
                "list_findings": (list_findings, roles.enode.address),
            }
            figures: Figures = {"topics": options.topics, "groups": options.groups}
            with ProcessPoolExecutor(1, get_context("spawn")) as other:
                for name_of_request, request in requests.items():
                    call = partial(asyncio.get_running_loop().run_in_executor, other, made, *request)
                    await call()
                    figures[name_of_request] = await beside(producer, call())
            return figures


if __name__ == "__main__":
    main("scrapes", METHOD, measure, topics=50_000, groups=10_000)
