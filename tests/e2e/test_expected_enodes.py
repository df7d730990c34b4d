"""An enode is expected while topics have queues on it, also after a restart of every other process."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from ortoo.client import ConsumerSettings, connect
from ortoo.common.process.clock import SystemClock
from ortoo.keda import externalscaler_pb2
from ortoo.keda.externalscaler_pb2_grpc import ExternalScalerStub
from ortoo.v1 import producer_pb2, record_pb2, topic_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers import command
from ortoo.verification.servers.command import CommandResult
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.processes import ProcessCluster, process_cluster
from ortoo.verification.servers.scrape import scraped
from tests.findings import OF_THE_MACHINE

pytestmark = pytest.mark.timeout(600)

DOCTOR = ("ortoo", "doctor", "--json", "--patience", "10")


async def liveness(address: str, metric: str, label: str) -> dict[str, float]:
    """The samples of a metric about enodes, by enode, as Prometheus gets them at an address."""
    found = (await scraped(address))[metric]
    return {dict(labels)[label]: value for labels, value in found.items() if "enode" in dict(labels)[label]}


async def findings(address: str) -> dict[str, dict[str, object]]:
    """The findings of the doctor, by name."""
    outcome = await command.run(DOCTOR, address)
    found = {one["name"]: one for one in map(json.loads, outcome.stdout.splitlines())}
    return {name: one for name, one in found.items() if name not in OF_THE_MACHINE}


@asynccontextmanager
async def without_one_enode(folder: Path) -> AsyncIterator[tuple[ProcessCluster, Sequence[str]]]:
    """A cluster after a restart of every process except enode-1, two addresses of metrics, and a message's id.

    The addresses are those of the name server and the snode. The topic `orders` has messages on both enodes, and the
    message with the id is on enode-1. The group `billing` has acknowledged one on each. The topic `lonely` has queues
    only on enode-1.
    """
    ports = [f"127.0.0.1:{port}" for port in free_ports(2)]
    environ = {"namesrv": {"METRICS_ADDRESS": ports[0]}, "snode": {"METRICS_ADDRESS": ports[1]}}
    async with process_cluster(folder, enodes=2, environ=environ) as cluster:
        async with connect(cluster.address) as mq, grpc.aio.insecure_channel(cluster.address) as channel:
            await mq.admin.create_topic("orders", queue_count=1)
            await mq.admin.create_topic("lonely", queue_count=1, enodes=["enode-1"])
            publish = ProducerServiceStub(channel).Publish
            sent = {
                enode: await publish(
                    producer_pb2.PublishRequest(
                        topic="orders",
                        queue=topic_pb2.Queue(topic="orders", enode=enode),
                        messages=[record_pb2.Message(body=b"on " + enode.encode())] * 2,
                    )
                )
                for enode in ("enode-0", "enode-1")
            }
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
        yield cluster, [*ports, sent["enode-1"].receipts[0].message_id]


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
        assert "2 topics" in str(found["observed"])
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

        sent = await ortoo(cluster, "send", "orders", "later", "--delay", "1h", "--json")
        explained = await ortoo(cluster, "explain", "billing", "orders", json.loads(sent.stdout)["message_id"])
        assert "the message is delayed" in explained.stdout

        async with grpc.aio.insecure_channel(cluster.address) as channel:
            trigger = externalscaler_pb2.ScaledObjectRef(scalerMetadata={"group": "billing", "topic": "orders"})
            with pytest.raises(grpc.aio.AioRpcError, match="enode-1"):
                await ExternalScalerStub(channel).GetMetrics(
                    externalscaler_pb2.GetMetricsRequest(scaledObjectRef=trigger, metricName="lag")
                )


async def forgotten(cluster: ProcessCluster, metrics: str) -> None:
    """Check that nothing expects enode-1, and that all topics can be used."""
    assert "enode-1" not in (await ortoo(cluster, "cluster")).stdout
    async with asyncio.timeout(120):
        while await findings(cluster.address):  # a snode that has just started is not connected yet
            await SystemClock().sleep(0.1)
    assert await liveness(metrics, "ortoo_process_alive", "node_id") == {"enode-0": 1.0}
    lag = json.loads((await ortoo(cluster, "lag", "billing", "orders", "--json")).stdout)
    assert (lag["unreachable_enodes"], len(lag["queues"])) == ([], 1)
    assert (await ortoo(cluster, "send", "lonely", "again")).exit_code == 0


async def test_a_forgotten_enode_is_expected_no_more_and_returns_only_with_permission(tmp_path: Path) -> None:
    """Without --lose the topics that it has are named. Afterwards its store needs `accept-store`, also after a restart.

    When it is accepted, it offers its topics with all messages.
    """
    async with without_one_enode(tmp_path) as (cluster, (metrics, _, message_id)):
        running = await ortoo(cluster, "enode", "forget", "enode-0", "--lose")
        assert (running.exit_code, "has a lease" in running.stderr) == (1, True)
        unknown = await ortoo(cluster, "enode", "forget", "enode-7", "--lose")
        assert (unknown.exit_code, "no enode 'enode-7'" in unknown.stderr) == (1, True)
        refused = await ortoo(cluster, "enode", "forget", "enode-1")
        assert refused.exit_code == 1
        assert "all messages of 1 topic: lonely" in refused.stderr
        assert "not drained: orders" in refused.stderr
        assert "enode-1" in (await ortoo(cluster, "cluster")).stdout

        done = await ortoo(cluster, "enode", "forget", "enode-1", "--lose", "--json")
        assert (done.exit_code, done.stderr) == (0, "")
        said = json.loads(done.stdout)
        assert "orders" in said["reduced_topics"]
        assert said["moved_topics"] == ["lonely"]
        await forgotten(cluster, metrics)
        again = await ortoo(cluster, "enode", "forget", "enode-1", "--json")
        assert (again.exit_code, json.loads(again.stdout)["moved_topics"]) == (0, [])
        await cluster.namesrv.restart()
        await cluster.snode.restart()
        left = ProcessCluster(cluster.folder, cluster.namesrv, cluster.enodes[:1], cluster.snodes)
        await left.wait_until_alive()
        await forgotten(cluster, metrics)

        await cluster.enodes[1].start()
        async with asyncio.timeout(120):
            while "store mismatch" not in (found := await findings(cluster.address)):
                await SystemClock().sleep(0.1)
        assert "was forgotten by an operator" in str(found["store mismatch"]["observed"])
        store = re.search(r"accept-store enode-1 (\S+?)[`\s]", str(found["store mismatch"]["observed"]))
        assert store is not None
        assert (await ortoo(cluster, "enode", "accept-store", "enode-1", store.group(1))).exit_code == 0
        await cluster.wait_until_alive()
        async with asyncio.timeout(120):
            while "orders" not in (await ortoo(cluster, "topic", "offered")).stdout:
                await SystemClock().sleep(0.1)
        assert (await ortoo(cluster, "topic", "adopt", "orders")).exit_code == 0
        assert "on enode-1" in (await ortoo(cluster, "message", "get", "orders", message_id)).stdout
