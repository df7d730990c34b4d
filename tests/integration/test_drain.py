"""A stop in two stages: first readiness turns red while everything is served, then open calls end."""

import asyncio
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ortoo.client import connect
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.scrape import get
from tests.integration.draining import DRAIN_DELAY_S, drains_until


async def test_readiness_goes_red_before_anything_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Health and /readyz fail at once; sends on open connections still work until the delay has expired."""
    drained = drains_until(monkeypatch)
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    settings = {"snode": {"drain_delay_s": DRAIN_DELAY_S, "metrics_address": metrics}}
    async with open_cluster(tmp_path, settings=settings) as cluster, Channels() as channels:
        health = health_pb2_grpc.HealthStub(channels.channel_to(cluster.address))
        async with connect(cluster.address) as mq, Background("test") as background:
            await mq.admin.create_topic("t")
            async with mq.producer("t") as producer:
                await producer.send(b"before")
                assert (await get(metrics, "/readyz")).status == 200
                watch = health.Watch(health_pb2.HealthCheckRequest())
                assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
                stopping = background.spawn("stop", cluster.close("snode-0"))
                assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
                assert (await get(metrics, "/readyz")).status == 503
                receipt = await producer.send(b"during")
                assert receipt.offset >= 0
                assert not stopping.done()
            watch.cancel()
            drained.set()
            await stopping


async def test_an_enode_releases_its_lease_before_its_server_drains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snodes then choose other enodes, while the calls that are under way still end well."""
    drained = drains_until(monkeypatch)
    async with (
        open_cluster(tmp_path, settings={"enode": {"drain_delay_s": DRAIN_DELAY_S}}) as cluster,
        connect(cluster.address) as mq,
        Background("test") as background,
    ):
        stopping = background.spawn("stop", cluster.close("enode-0"))
        while any(enode.alive for enode in (await mq.admin.describe_cluster()).enodes):
            await cluster.clock.sleep(0.02)
        assert not stopping.done()
        drained.set()
        await stopping


async def test_a_server_drains_for_its_delay() -> None:
    """Also if no call is open."""
    clock = SystemClock()
    async with GrpcServer("127.0.0.1:0", [], drain_delay_s=0.3):
        begun_s = clock.monotonic_s()
    assert clock.monotonic_s() - begun_s >= 0.3


async def test_enode_is_red_while_it_refuses_messages(tmp_path: Path) -> None:
    """A full disk turns readiness red, and space turns it green again, without a restart."""
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    settings = {"enode": {"metrics_address": metrics, "health_interval_s": 0.05}}
    async with open_cluster(tmp_path, settings=settings) as cluster:
        enode = cluster.running["enode-0"]
        appender = enode.store._appender  # type: ignore[attr-defined]  # a disk that is full is hard to come by
        await until(metrics, 200)  # a machine that stalls for the length of a lease makes it red, too
        appender.full = "the disk is full"
        await until(metrics, 503)
        appender.full = ""
        await until(metrics, 200)


async def until(metrics: str, status: int) -> None:
    """Wait until /readyz answers that."""
    async with asyncio.timeout(60):
        while (await get(metrics, "/readyz")).status != status:
            pass
