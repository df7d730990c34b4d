"""KEDA's external scaler in the snode, called as KEDA does."""

import asyncio
from pathlib import Path

import pytest

from ortoo.client import ConsumerSettings, connect
from ortoo.common.errors import Invalid, NotFound, OrtooError, Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.keda import externalscaler_pb2 as pb
from ortoo.keda.externalscaler_pb2_grpc import ExternalScalerStub
from ortoo.verification.servers.cluster import open_cluster

METADATA = {"group": "g", "topic": "t", "lagThreshold": "50", "oldestAgeSeconds": "30"}


async def test_scaler_follows_the_lag_from_zero_and_back(tmp_path: Path) -> None:
    """Inactive without work, active with it, the lag and its age as numbers, inactive after the acknowledgement."""
    async with open_cluster(tmp_path) as cluster, Channels() as channels, asyncio.timeout(60):
        scaler = ExternalScalerStub(channels.channel_to(cluster.address))
        about = pb.ScaledObjectRef(name="o", namespace="n", scalerMetadata=METADATA)
        async with connect(cluster.address) as mq:
            await mq.admin.create_topic("t")
            call = scaler.StreamIsActive(about)
            watch = aiter(call)
            assert (await scaler.IsActive(about)).result is False
            assert (await anext(watch)).result is False
            async with mq.producer("t") as producer:
                for sending in await producer.send_many([b"x"] * 120):
                    await sending
            assert (await scaler.IsActive(about)).result is True
            assert (await anext(watch)).result is True
            spec = await scaler.GetMetricSpec(about)
            assert {(one.metricName, one.targetSize) for one in spec.metricSpecs} == {
                ("lag", 50),
                ("oldest-age-seconds", 30),
            }

            async def value(name: str) -> int:
                answer = await scaler.GetMetrics(pb.GetMetricsRequest(scaledObjectRef=about, metricName=name))
                return answer.metricValues[0].metricValue

            assert await value("lag") == 120
            assert 0 <= await value("oldest-age-seconds") < 30
            async with mq.consumer("g", "t", ConsumerSettings(from_beginning=True, ack_interval_ms=10)) as consumer:
                seen = 0
                async for batch in consumer.batches():
                    seen += len(batch.bodies())
                    batch.ack()
                    if seen == 120:
                        break
            assert (await anext(watch)).result is False
            assert (await value("lag"), await value("oldest-age-seconds")) == (0, 0)
            call.cancel()


@pytest.mark.parametrize(
    ("metadata", "kind", "said"),
    [
        ({"topic": "t"}, Invalid, "scalerMetadata.group"),
        ({**METADATA, "lagTreshold": "1"}, Invalid, "scalerMetadata.lagTreshold"),
        ({**METADATA, "lagThreshold": "many"}, Invalid, "scalerMetadata.lagThreshold"),
        ({**METADATA, "topic": "nowhere"}, NotFound, "nowhere"),
    ],
)
async def test_wrong_trigger_is_refused_by_name(
    tmp_path: Path, metadata: dict[str, str], kind: type[OrtooError], said: str
) -> None:
    """The mistake in a ScaledObject is named, so that `kubectl describe` shows it."""
    async with open_cluster(tmp_path) as cluster, Channels() as channels:
        scaler = ExternalScalerStub(channels.channel_to(cluster.address))
        with pytest.raises(kind, match=said), rpc_errors("snode"):
            await scaler.IsActive(pb.ScaledObjectRef(scalerMetadata=metadata))


async def test_an_enode_that_is_away_is_an_error_and_not_no_work(tmp_path: Path) -> None:
    """While messages cannot be counted the scaler gets an error: "inactive" would scale to zero in an outage."""
    async with open_cluster(tmp_path) as cluster, Channels() as channels, asyncio.timeout(60):
        scaler = ExternalScalerStub(channels.channel_to(cluster.address))
        about = pb.ScaledObjectRef(name="o", namespace="n", scalerMetadata=METADATA)
        async with connect(cluster.address) as mq:
            await mq.admin.create_topic("t")
            await cluster.close("enode-0")
            with pytest.raises(Unavailable, match="does not mean that it is 0"), rpc_errors("snode"):
                await scaler.IsActive(about)
            with pytest.raises(Unavailable), rpc_errors("snode"):
                await scaler.GetMetrics(pb.GetMetricsRequest(scaledObjectRef=about, metricName="lag"))
