"""A message that a client of RocketMQ's protocol cannot receive, over real gRPC."""

from pathlib import Path

import grpc
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.definition_pb2 import Code, Resource
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import connect
from ortoo.verification.servers.cluster import open_cluster

METADATA = (("x-mq-client-id", "small"), ("x-mq-language", "JAVA"))
TAKEN_BYTES_MAX = 1 << 20
GROUP, TOPIC = Resource(name="g"), Resource(name="t")


async def test_what_a_client_cannot_take_is_counted_waits_and_is_parked(tmp_path: Path) -> None:
    """GRPC at the client refuses one body. The others are received, there is no hot loop, and it is parked."""
    options = (("grpc.max_receive_message_length", TAKEN_BYTES_MAX),)
    async with (
        open_cluster(tmp_path) as cluster,
        connect(cluster.address) as mq,
        grpc.aio.insecure_channel(cluster.address, options) as channel,
    ):
        stub = MessagingServiceStub(channel)
        await cluster.create_topic("t", queues=1)
        await mq.admin.groups.update("g", attempts_max=3, retry="list:400ms")
        bodies = [b"%d" % n for n in range(8)]
        bodies[3] = b"x" * (2 * TAKEN_BYTES_MAX)
        async with mq.producer("t") as producer:
            for body in bodies:
                await producer.send(body)
        request = s.ReceiveMessageRequest(
            group=GROUP,
            message_queue=d.MessageQueue(topic=TOPIC, id=-1),
            filter_expression=d.FilterExpression(type=d.TAG, expression="*"),
            batch_size=16,
            auto_renew=True,
            attempt_id="first",
            long_polling_timeout=Duration(nanos=200_000_000),
        )
        failed, passed, letters = 0, set[bytes](), []
        for number in range(60):
            if len(passed) == len(bodies) - 1 and (letters := [one async for one in mq.admin.list_dead_letters("g")]):
                break
            try:
                taken = [
                    frame.message
                    async for frame in stub.ReceiveMessage(request, metadata=METADATA, timeout=8)
                    if frame.HasField("message")
                ]
            except grpc.aio.AioRpcError:
                failed += 1
                continue  # requests again with the same attempt id, as the official clients do
            request.attempt_id = str(number)
            for one in taken:
                entry = s.AckMessageEntry(receipt_handle=one.system_properties.receipt_handle)
                acks = s.AckMessageRequest(group=GROUP, topic=TOPIC, entries=[entry])
                assert (await stub.AckMessage(acks, metadata=METADATA)).status.code == Code.OK
                passed.add(one.body)
        assert passed == set(bodies) - {bodies[3]}
        [letter] = letters
        assert (letter.message.body, letter.reason, letter.attempts) == (bodies[3], "attempts", 3)
        assert (letter.consumer, letter.error) == ("small", "the client did not receive the message")
        assert failed < 16
