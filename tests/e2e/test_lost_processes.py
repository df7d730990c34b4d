"""A killed process disappears from the other processes' lists."""

import asyncio
from pathlib import Path

import grpc

from ortoo.common.process.clock import SystemClock
from ortoo.v1 import namesrv_pb2, producer_pb2, topic_pb2
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers.processes import process_cluster

CLOCK = SystemClock()
LEASE_S = 3.0


async def directory(address: str) -> dict[str, bool]:
    """Every process that the name server knows, and whether it is alive."""
    async with grpc.aio.insecure_channel(address) as channel:
        async for news in NameServiceStub(channel).WatchRoutes(namesrv_pb2.WatchRoutesRequest()):
            known: list[topic_pb2.Enode | topic_pb2.Snode] = [*news.enodes, *news.snodes]
            return {one.name: one.alive for one in known}
    return {}


async def test_killed_processes_leave_routes_and_lists(tmp_path: Path) -> None:
    """E-023, E-024: a killed enode is in no route, a killed snode in no list of live ones. Both come back."""
    environ = {"namesrv": {"LEASE_S": LEASE_S}, "enode": {}, "snode": {"HEARTBEAT_INTERVAL_S": 0.5}}
    async with asyncio.timeout(280), process_cluster(tmp_path, enodes=2, environ=environ) as cluster:
        async with grpc.aio.insecure_channel(cluster.namesrv.address) as channel:
            await NameServiceStub(channel).CreateTopic(namesrv_pb2.CreateTopicRequest(name="t", read_queue_count=2))

        async def writable() -> set[str]:
            async with grpc.aio.insecure_channel(cluster.snode.address) as channel:
                request = producer_pb2.QueryRouteRequest(topic="t")
                answer = await ProducerServiceStub(channel).QueryRoute(request, wait_for_ready=True)
                return {one.enode for one in answer.writable_queues}

        while await writable() != {"enode-0", "enode-1"}:
            await CLOCK.sleep(0.05)
        await cluster.enodes[1].kill()
        while await writable() != {"enode-0"}:
            await CLOCK.sleep(0.05)
        assert (await directory(cluster.namesrv.address)).get("enode-1", False) is False
        await cluster.enodes[1].start()
        while await writable() != {"enode-0", "enode-1"}:
            await CLOCK.sleep(0.05)
        await cluster.snode.kill()
        while (await directory(cluster.namesrv.address)).get("snode-0"):
            await CLOCK.sleep(0.05)
        await cluster.snode.start()
        while not (await directory(cluster.namesrv.address)).get("snode-0"):
            await CLOCK.sleep(0.05)
        while await writable() != {"enode-0", "enode-1"}:
            await CLOCK.sleep(0.05)
