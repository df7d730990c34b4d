"""A queue whose first messages were removed by retention: the offsets of pulls, pushes and new groups."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.client import PullSettings, connect
from ortoo.common.grpc.channels import Channels
from ortoo.keda import externalscaler_pb2
from ortoo.keda.externalscaler_pb2_grpc import ExternalScalerStub
from ortoo.v1 import consumer_pb2, pull_pb2
from ortoo.verification.servers.cluster import SMALL_STORE, open_cluster
from tests.integration.pull_group import PROMPT
from tests.integration.push_client import PushClient
from tests.integration.snode_calls import Snode, batch_request, queue

TRIMMED = dataclasses.replace(
    SMALL_STORE, segment_bytes=64 << 10, retention_bytes=128 << 10, recent_bytes=0, retention_interval_ms=50
)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Snode]:
    """A cluster whose topic t has lost its first messages."""
    async with open_cluster(tmp_path, store=TRIMMED) as cluster, asyncio.timeout(60):
        opened = Snode(cluster)
        await opened.topic("t")
        while (await bounds(opened))[0] == 0:
            await opened.produce(batch_request(1, queue("t"), [b"x" * 8_000] * 4))
        yield opened


async def bounds(running: Snode) -> tuple[int, int]:
    """The first offset that is stored, and the end."""
    request = consumer_pb2.QueryQueuesRequest(topic="t")
    [state] = (await running.consumer.QueryQueues(request)).queues
    return state.begin_offset, state.end_offset


async def is_beginning(running: Snode, offset: int) -> bool:
    """Whether an offset was the first one a moment ago; retention may have advanced since."""
    return 0 < offset <= (await bounds(running))[0]


async def test_an_autoscaler_is_told_the_age_of_a_group_that_retention_has_overtaken(running: Snode) -> None:
    """A group that lags so far needs consumers more than any other, and gets a number and no error."""
    clock = running.cluster.clock
    about = externalscaler_pb2.ScaledObjectRef(scalerMetadata={"group": "g", "topic": "t", "oldestAgeSeconds": "1"})
    request = externalscaler_pb2.GetMetricsRequest(scaledObjectRef=about, metricName="oldest-age-seconds")
    async with Channels() as channels:
        scaler = ExternalScalerStub(channels.channel_to(running.cluster.address))
        began_s = clock.monotonic_s()
        while not (answer := await scaler.GetMetrics(request)).metricValues[0].metricValue:
            assert clock.monotonic_s() < began_s + 20
            await clock.sleep(0.05)
        assert 0 < answer.metricValues[0].metricValue < 60


async def test_an_offset_below_the_first_is_corrected_to_it(running: Snode) -> None:
    """E-155: the answer to a pull below the first offset names that offset. A reader's seek continues there."""
    request = pull_pb2.PullRequest(group="g", queue=queue("t"), offset=0)
    answer = await running.consumer.Pull(request)
    assert answer.status == pull_pb2.PULL_STATUS_OFFSET_ILLEGAL
    assert await is_beginning(running, answer.next_offset)
    async with (
        connect(running.cluster.address) as mq,
        mq.pull_consumer("g", ["t"], dataclasses.replace(PROMPT, from_beginning=True)) as consumer,
    ):
        batch = await consumer.poll(15_000)
        assert batch is not None
        assert await is_beginning(running, batch.offset(0))
        consumer.seek(batch.queue, 0)
        again = await consumer.poll(15_000)
        assert again is not None
        assert await is_beginning(running, again.offset(0))


async def test_a_new_group_begins_with_what_is_left_or_at_the_end(running: Snode) -> None:
    """E-156, E-101: at the first remaining message, or at the end. Without an offset of the group it is -1."""
    stored = await running.consumer.QueryOffsets(pull_pb2.QueryConsumerOffsetsRequest(group="new", topic="t"))
    assert [one.offset for one in stored.offsets] == [-1]
    async with PushClient(running, "first", "t", from_beginning=True) as client:
        assert await is_beginning(running, (await client.delivery()).first_offset)
    async with connect(running.cluster.address) as mq:
        settings = PullSettings(from_time_ms=1, long_poll_ms=500)
        async with mq.pull_consumer("by-time", ["t"], settings) as consumer:
            batch = await consumer.poll(15_000)
            assert batch is not None
            assert await is_beginning(running, batch.offset(0))
    async with PushClient(running, "last", "t") as client:
        await running.until_subscribed("last", "t", 1)
        [receipt] = await running.publish("t", b"y")
        assert (await client.delivery()).first_offset == receipt.offset
