"""The requests of a push consumer that joins a group do not grow with its queues."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ortoo.client import ConsumerSettings, connect
from ortoo.common.process.clock import SystemClock
from ortoo.enode.app import RunningEnode
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster

CLOCK = SystemClock()
STARTING = ("TakeLocksRequest", "QueryOffsetsRequest", "DescribeQueuesRequest", "CommitOffsetsRequest")
"""The requests of a queue that starts. Reads follow, which wait for messages."""


async def join(cluster: InProcessCluster, queues: int, counted: Counter[str]) -> dict[str, int]:
    """The requests to the enode for a group's first consumer of a topic with this number of queues."""
    topic, group = f"of-{queues}", f"group-of-{queues}"
    topic_id = (await cluster.create_topic(topic, queues=queues)).topic_id
    enode: Any = cluster.running["enode-0"]
    assert isinstance(enode, RunningEnode)
    async with asyncio.timeout(60), connect(cluster.address) as mq:
        while enode.store.topic(topic_id) is None:
            await CLOCK.sleep(0.01)
        counted.clear()
        settings = ConsumerSettings(from_beginning=True)
        async with mq.consumer(group, topic, settings):
            while len(enode.store.offsets.of(topic_id, group)) < queues:
                await CLOCK.sleep(0.01)
            return {name: counted[name] for name in STARTING}


async def test_a_joining_consumer_sends_the_same_number_of_requests_for_more_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its locks are taken, and its offsets are read and stored, for all queues of an enode together."""
    counted: Counter[str] = Counter()
    call = GrpcEnodeLink._call

    async def counting(self: GrpcEnodeLink, method: Any, request: object, *more: Any, **named: Any) -> Any:
        counted[type(request).__name__] += 1
        return await call(self, method, request, *more, **named)

    monkeypatch.setattr(GrpcEnodeLink, "_call", counting)
    async with open_cluster(tmp_path) as cluster:
        few, many = [await join(cluster, queues, counted) for queues in (16, 128)]
    assert min(few.values()) >= 1
    for name in STARTING:
        assert many[name] <= few[name] + 3, (few, many)
