"""A client of lite topics made of bare calls of RocketMQ's protocol."""

from typing import Any

from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.definition_pb2 import Code, LiteSubscriptionAction, Resource
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub

TOPIC, GROUP = Resource(name="t"), Resource(name="g")
ADD, REMOVE = LiteSubscriptionAction.PARTIAL_ADD, LiteSubscriptionAction.PARTIAL_REMOVE
COMPLETE = LiteSubscriptionAction.COMPLETE_ADD


class LiteClient:
    """One client."""

    def __init__(self, stub: MessagingServiceStub, name: str = "c") -> None:
        self.stub = stub
        self.metadata = (("x-mq-client-id", name),)

    async def sync(
        self, action: "LiteSubscriptionAction.ValueType", *names: str, group: str = "g", topic: str = "t", **more: Any
    ) -> "Code.ValueType":
        """The code of the answer to a change of the subscription."""
        request = s.SyncLiteSubscriptionRequest(
            action=action, topic=Resource(name=topic), group=Resource(name=group), lite_topic_set=names, **more
        )
        return (await self.stub.SyncLiteSubscription(request, metadata=self.metadata)).status.code

    async def live(self, *names: str) -> None:
        """Send the heartbeat and the subscriptions that a client sends every half minute."""
        await self.beat(d.LITE_SIMPLE_CONSUMER)
        assert await self.sync(COMPLETE, *names) == Code.OK

    async def beat(self, client_type: "d.ClientType.ValueType") -> None:
        """Send a heartbeat as a client of this type."""
        request = s.HeartbeatRequest(group=GROUP, client_type=client_type)
        assert (await self.stub.Heartbeat(request, metadata=self.metadata)).status.code == Code.OK

    async def send(self, *sent: tuple[str, bytes], topic: str = "t", tag: str | None = None) -> s.SendMessageResponse:
        """Send (lite topic, body) pairs with one call."""
        messages = [
            d.Message(
                topic=Resource(name=topic),
                body=body,
                system_properties=d.SystemProperties(message_id=body.decode(), lite_topic=name, tag=tag),
            )
            for name, body in sent
        ]
        return await self.stub.SendMessage(s.SendMessageRequest(messages=messages), metadata=self.metadata)

    async def receive(self, count: int = 8, wait_s: float = 0.3, tags: str = "*") -> list[d.Message]:
        """Messages for a simple consumer."""
        wait = Duration(seconds=int(wait_s), nanos=int(wait_s % 1 * 1e9))
        request = s.ReceiveMessageRequest(
            group=GROUP,
            message_queue=d.MessageQueue(topic=TOPIC, id=0),
            filter_expression=d.FilterExpression(type=d.TAG, expression=tags),
            batch_size=count,
            invisible_duration=Duration(seconds=30),
            long_polling_timeout=wait,
        )
        frames = [one async for one in self.stub.ReceiveMessage(request, metadata=self.metadata, timeout=30)]
        assert frames[0].status.code in (Code.OK, Code.MESSAGE_NOT_FOUND)
        return [frame.message for frame in frames if frame.WhichOneof("content") == "message"]

    async def ack(self, message: d.Message) -> "Code.ValueType":
        """Acknowledge one message."""
        system = message.system_properties
        entry = s.AckMessageEntry(
            message_id=system.message_id, receipt_handle=system.receipt_handle, lite_topic=system.lite_topic
        )
        request = s.AckMessageRequest(group=GROUP, topic=TOPIC, entries=[entry])
        return (await self.stub.AckMessage(request, metadata=self.metadata)).status.code


def bodies(messages: list[d.Message]) -> list[bytes]:
    """The sorted bodies of received messages."""
    return sorted(one.body for one in messages)
