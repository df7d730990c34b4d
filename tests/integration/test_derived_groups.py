"""No client consumes in a group whose name the servers derive from another group's name.

They record under such names who owns a lite topic, and which dead letters were replayed. Permissions on all groups
except one must not reach these records of that one.
"""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from apache.rocketmq.v2.definition_pb2 import ClientType, FilterExpression, MessageQueue, Resource
from apache.rocketmq.v2.service_pb2 import HeartbeatRequest, ReceiveMessageRequest
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Client, Invalid, Queue, connect
from ortoo.client.core.wire import wire_queue
from ortoo.common.groups.group_topics import DERIVED_PREFIXES
from ortoo.common.groups.sinks import SINK_GROUP_PREFIX
from ortoo.v1 import pop_pb2, pull_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.verification.servers.cluster import open_cluster

QUEUE = wire_queue(Queue("jobs", "enode-0", 0))
CALLS: dict[str, Any] = {
    "LockQueues": pull_pb2.LockQueuesRequest(client_id="c", queues=[QUEUE]),
    "UnlockQueues": pull_pb2.UnlockQueuesRequest(client_id="c", queues=[QUEUE]),
    "Pull": pull_pb2.PullRequest(queue=QUEUE),
    "NackMessages": pull_pb2.NackMessagesRequest(queue=QUEUE, offsets=[0]),
    "CommitOffsets": pull_pb2.CommitConsumerOffsetsRequest(offsets=[pull_pb2.ConsumerOffset(queue=QUEUE)]),
    "Pop": pop_pb2.PopRequest(topic="jobs"),
}


async def refused(mq: Client, method: str, group: str) -> None:
    """Call a method for a group; it is refused, and the error names the field and the remedy."""
    request = type(CALLS[method])()
    request.CopyFrom(CALLS[method])
    request.group = group
    with pytest.raises(Invalid, match="only the servers use; choose another group") as caught:
        await mq._connection.call(ConsumerServiceStub, method, request)
    assert caught.value.field == "group"


async def test_groups_with_derived_names_are_refused(tmp_path: Path) -> None:
    """Each way to consume, in both protocols; a namespace makes no such name either."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=1)
        for prefix in (*DERIVED_PREFIXES, SINK_GROUP_PREFIX):
            for method in CALLS:
                if (prefix, method) != (SINK_GROUP_PREFIX, "CommitOffsets"):  # the account of a sink
                    await refused(mq, method, f"{prefix}g")
            with pytest.raises(Invalid, match="only the servers use"):
                async with mq.consumer(f"{prefix}g", ["jobs"]) as consumer, asyncio.timeout(60):
                    await anext(aiter(consumer))
            await said_by_rocketmq(cluster.address, Resource(resource_namespace=prefix.rstrip("%"), name="g"))


async def said_by_rocketmq(address: str, group: Resource) -> None:
    """Heartbeat and receive with this group are refused."""
    metadata = (("x-mq-client-id", "tester"), ("x-mq-language", "PYTHON"))
    topic = Resource(name="jobs")
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = MessagingServiceStub(channel)
        beat = await stub.Heartbeat(
            HeartbeatRequest(group=group, client_type=ClientType.SIMPLE_CONSUMER), metadata=metadata
        )
        queue = MessageQueue(topic=topic)
        receive = ReceiveMessageRequest(
            group=group, message_queue=queue, filter_expression=FilterExpression(expression="*"), batch_size=1
        )
        first = await anext(aiter(stub.ReceiveMessage(receive, metadata=metadata)))
        for status in (beat.status, first.status):
            assert "only the servers use" in status.message, status
