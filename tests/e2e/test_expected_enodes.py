"""An enode is expected while topics have queues on it, also after a restart of every other process."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from ortoo.client import ConsumerSettings, connect
from ortoo.keda import externalscaler_pb2
from ortoo.keda.externalscaler_pb2_grpc import ExternalScalerStub
from ortoo.v1 import producer_pb2, record_pb2, topic_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers import command
from ortoo.verification.servers.command import CommandResult
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.processes import ProcessCluster, process_cluster
from ortoo.verification.servers.scrape import scraped

DOCTOR = ("ortoo", "doctor", "--json", "--patience", "10")


async def liveness(address: str, metric: str, label: str) -> dict[str, float]:
    """The samples of a metric about enodes, by enode, as Prometheus gets them at an address."""
    found = (await scraped(address))[metric]
    return {dict(labels)[label]: value for labels, value in found.items() if "enode" in dict(labels)[label]}


async def findings(address: str) -> dict[str, dict[str, object]]:
    """The findings of the doctor, by name."""
    outcome = await command.run(DOCTOR, address)
    return {one["name"]: one for one in map(json.loads, outcome.stdout.splitlines())}


@asynccontextmanager
async def without_one_enode(folder: Path) -> AsyncIterator[tuple[ProcessCluster, Sequence[str]]]:
    """A cluster after a restart of every process except enode-1, two addresses of metrics, and a message's id.

    The addresses are those of the name server and the snode. The topic `orders` has messages on both enodes, and the
    message with the id is on enode-1. The group `billing` has acknowledged one on each.
    """
    ports = [f"127.0.0.1:{port}" for port in free_ports(2)]
    environ = {"namesrv": {"METRICS_ADDRESS": ports[0]}, "snode": {"METRICS_ADDRESS": ports[1]}}
    async with process_cluster(folder, enodes=2, environ=environ) as cluster:
        async with connect(cluster.address) as mq, grpc.aio.insecure_channel(cluster.address) as channel:
            await mq.admin.create_topic("orders", queue_count=1)
            publish = ProducerServiceStub(channel).Publish
            for enode in ("enode-0", "enode-1"):
                messages = [record_pb2.Message(body=b"on " + enode.encode())] * 2
                queue = topic_pb2.Queue(topic="orders", enode=enode)
                sent = await publish(producer_pb2.PublishRequest(topic="orders", queue=queue, messages=messages))
            settings = ConsumerSettings(from_beginning=True, ack_interval_ms=20)
            async with mq.consumer("billing", "orders", settings) as consumer:
                acknowledged: set[str] = set()
                async for message in consumer:
                    if message.queue.enode not in acknowledged:
                        message.ack()
                        acknowledged.add(message.queue.enode)
                    if len(acknowledged) == 2:
                        break
        for role in reversed(cluster.roles):
            await role.kill()
        for role in (cluster.namesrv, cluster.enodes[0], cluster.snode):
            await role.start()
        left = ProcessCluster(cluster.folder, cluster.namesrv, cluster.enodes[:1], cluster.snodes)
        await left.wait_until_alive()
        yield cluster, [*ports, sent.receipts[0].message_id]


async def ortoo(cluster: ProcessCluster, *words: str) -> CommandResult:
    """Run the command."""
    return await command.run(("ortoo", *words), cluster.address)


async def test_an_enode_that_does_not_come_back_is_away_everywhere(tmp_path: Path) -> None:
    """Cluster, doctor, lag, tail, explain, KEDA's answer and metrics name the enode that only placements know."""
    async with without_one_enode(tmp_path) as (cluster, (namesrv_metrics, snode_metrics, message_id)):
        shown = (await ortoo(cluster, "cluster")).stdout
        assert [line.split() for line in shown.splitlines() if "enode-1" in line] == [["enode", "enode-1", "-", "away"]]

        found = (await findings(cluster.address))["enode unavailable"]
        assert found["critical"]
        assert "enode-1" in str(found["observed"])
        assert "1 topic" in str(found["observed"])
        assert "ortoo enode forget enode-1" in str(found["remedy"])

        expected = {"enode-0": 1.0, "enode-1": 0.0}
        assert await liveness(namesrv_metrics, "ortoo_process_alive", "node_id") == expected
        assert await liveness(snode_metrics, "ortoo_enode_alive", "enode") == expected

        lag = await ortoo(cluster, "lag", "billing", "orders", "--json")
        assert json.loads(lag.stdout)["unreachable_enodes"] == ["enode-1"]
        assert "enode-1" in (await ortoo(cluster, "lag", "billing", "orders")).stdout

        for words in (("--from-first",), ()):
            tail = await ortoo(cluster, "tail", "orders", *words, "-n", "1")
            assert "on enode-0" in tail.stdout
            assert "enode-1" in tail.stderr
        tail = await ortoo(cluster, "tail", "orders", "--from-first", "--no-follow")
        assert tail.stdout.splitlines() == ["on enode-0"] * 2
        assert tail.exit_code == 1
        assert "enode-1" in tail.stderr

        for words in ((), (message_id,)):
            explained = await ortoo(cluster, "explain", "billing", "orders", *words)
            assert explained.exit_code == 0, explained.stderr
            assert "enode unavailable" in explained.stdout
            assert "enode-1" in explained.stdout

        async with grpc.aio.insecure_channel(cluster.address) as channel:
            trigger = externalscaler_pb2.ScaledObjectRef(scalerMetadata={"group": "billing", "topic": "orders"})
            with pytest.raises(grpc.aio.AioRpcError, match="enode-1"):
                await ExternalScalerStub(channel).GetMetrics(
                    externalscaler_pb2.GetMetricsRequest(scaledObjectRef=trigger, metricName="lag")
                )
