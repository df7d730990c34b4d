"""Readiness of replicas: followers are ready while they are in sync."""

import asyncio
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ortoo.client import connect
from ortoo.enode.leadership.in_sync_health import InSyncHealth
from ortoo.enode.replication.in_sync import LAG_BYTES_MAX
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.ports import free_ports
from tests.integration.enode_replicas import leading, one_member, open_members
from tests.integration.health import until_ready

MESSAGE_BYTES, BEHIND_BYTES = 256 << 10, 40 << 20


async def in_sync(address: str) -> bool:
    """The answer to the readiness probe of a replica."""
    async with grpc.aio.insecure_channel(address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="in-sync"))
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def test_followers_are_ready_while_they_are_in_sync(tmp_path: Path) -> None:
    """All three in a healthy set. The one that remains without a leader is not, so that nothing else is restarted."""
    async with (
        open_cluster(tmp_path, enodes=0) as cluster,
        open_members(cluster) as members,
        asyncio.timeout(90),
    ):
        first = await leading(cluster, members)
        for one in members:
            async with grpc.aio.insecure_channel(one.health_address) as channel:
                await until_ready(channel, "in-sync")
        async with connect(cluster.address) as mq:
            await mq.admin.ensure_topic("t", queue_count=1)
            async with mq.producer("t") as producer:
                await producer.send(b"x")
        # A machine that stalls makes them red for a moment.
        while not all([await in_sync(one.health_address) and InSyncHealth(one.process).is_ready for one in members]):
            await cluster.clock.sleep(0.05)
        second, last = (one for one in members if one is not first)
        for one in (second, first):
            await one.process.stop()
        while await in_sync(last.health_address):
            await cluster.clock.sleep(0.05)
        assert not InSyncHealth(last.process).is_ready


async def test_a_restarted_replica_is_ready_only_when_it_has_caught_up(tmp_path: Path) -> None:
    """It is up long before; the next replica must not be stopped until then."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    chosen = {"replicas": 3, "replica_addresses": ";".join(addresses)}
    async with (
        open_cluster(tmp_path, enodes=0) as cluster,
        one_member(cluster, 1, addresses[0], **chosen) as first,
        one_member(cluster, 2, addresses[1], **chosen) as second,
        asyncio.timeout(120),
    ):
        async with one_member(cluster, 3, addresses[2], **chosen) as third:
            await leading(cluster, [first, second, third])
            while not InSyncHealth(third.process).is_in_sync:
                await cluster.clock.sleep(0.05)
        await leading(cluster, [first, second])
        async with connect(cluster.address) as mq:
            await mq.admin.ensure_topic("t", queue_count=1)
            async with mq.producer("t") as producer:
                await asyncio.gather(
                    *await producer.send_many([bytes(MESSAGE_BYTES)] * (BEHIND_BYTES // MESSAGE_BYTES))
                )
        async with one_member(cluster, 3, addresses[2], **chosen) as third:
            lags_of_unready: list[int] = []
            while not (health := InSyncHealth(third.process)).is_in_sync:
                lags_of_unready.append(health.lag_bytes)
                await cluster.clock.sleep(0.005)
            assert health.lag_bytes <= LAG_BYTES_MAX
            assert max(lags_of_unready) > LAG_BYTES_MAX
            async with grpc.aio.insecure_channel(third.health_address) as channel:
                await until_ready(channel, "in-sync")
