"""A cluster in this process and the bare stubs of its snode."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ortoo.common.records.batch import Message, encode
from ortoo.snode.cluster.wire import encode_batch
from ortoo.v1 import namesrv_pb2, producer_pb2, pull_pb2, record_pb2, topic_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster


class Snode:
    """One snode as a client sees it, and the cluster behind it."""

    def __init__(self, cluster: InProcessCluster) -> None:
        self.cluster = cluster
        channel = cluster.channels.channel_to(cluster.address)
        self.producer = ProducerServiceStub(channel)
        self.consumer = ConsumerServiceStub(channel)
        self.admin = AdminServiceStub(channel)

    async def topic(self, name: str, queues: int = 1) -> topic_pb2.Topic:
        """Create a topic through the snode."""
        request = namesrv_pb2.CreateTopicRequest(name=name, read_queue_count=queues)
        return (await self.admin.CreateTopic(request)).topic

    async def create_topic(self, name: str, **how: Any) -> None:
        """Create a topic with these fields of the request."""
        await self.admin.CreateTopic(namesrv_pb2.CreateTopicRequest(name=name, **how))

    async def route(self, topic: str) -> producer_pb2.QueryRouteResponse:
        """The topic's queues."""
        answer: producer_pb2.QueryRouteResponse = await self.producer.QueryRoute(
            producer_pb2.QueryRouteRequest(topic=topic)
        )
        return answer

    async def until_subscribed(self, group: str, topic: str, queues: int) -> None:
        """Wait until a group has an offset in `count` queues: it receives all messages stored from then on."""
        request = pull_pb2.QueryConsumerOffsetsRequest(group=group, topic=topic)
        while sum(one.offset >= 0 for one in (await self.consumer.QueryOffsets(request)).offsets) < queues:
            await self.cluster.clock.sleep(0.01)

    async def publish(self, topic: str, *bodies: bytes, **fields: Any) -> list[producer_pb2.Receipt]:
        """Send messages with one call; `queue` is the place."""
        queue = fields.pop("queue", None)
        messages = [record_pb2.Message(body=body, **fields) for body in bodies]
        request = producer_pb2.PublishRequest(topic=topic, messages=messages, queue=queue)
        return list((await self.producer.Publish(request)).receipts)

    async def produce(self, *requests: producer_pb2.ProduceRequest) -> dict[int, producer_pb2.ProduceResponse]:
        """Send batches on one stream; the answers by request id, in the order they came."""
        return {answer.request_id: answer async for answer in self.producer.Produce(iter(requests))}


def batch_request(
    request_id: int, queue: topic_pb2.Queue, bodies: list[bytes], tags: list[str | None] | str | None = None
) -> producer_pb2.ProduceRequest:
    """One batch for a stream."""
    of_rows = tags if isinstance(tags, list) else [tags] * len(bodies)
    messages = [Message(body, tag) for body, tag in zip(bodies, of_rows, strict=True)]
    batch = encode_batch(encode(messages, now_ms=1))
    return producer_pb2.ProduceRequest(request_id=request_id, queue=queue, batch=batch)


def queue(topic: str, queue_id: int = 0, enode: str = "enode-0") -> topic_pb2.Queue:
    """A queue's name."""
    return topic_pb2.Queue(topic=topic, enode=enode, queue_id=queue_id)


@contextlib.asynccontextmanager
async def open_snode_cluster(folder: Path, *, enodes: int = 1, **settings: Any) -> AsyncIterator[Snode]:
    """Open a cluster with one snode; `settings` are the snode's."""
    async with open_cluster(folder, enodes=enodes, settings={"snode": settings}) as cluster:
        yield Snode(cluster)
