"""Many dead letters in a short time: messages are sent in batches and parked by offset."""

from functools import partial

from ortoo.client import Client, Message, Queue
from ortoo.client.core.wire import wire_queue
from ortoo.v1 import pull_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

AT_ONCE = 1_024
"""The server's limit of offsets in a call."""
SENT_AT_ONCE = 10_000
PARK_LEVEL = -1


async def park_many(mq: Client, group: str, topic: str, count: int) -> Queue:
    """Park `count` messages of a new topic with one queue for a group; returns the queue of the topic."""
    await mq.admin.create_topic(topic, queue_count=1)
    async with mq.producer(topic) as producer:
        for first in range(0, count, SENT_AT_ONCE):
            bodies = [Message(b"%d" % number) for number in range(first, min(count, first + SENT_AT_ONCE))]
            await (await producer.send_many(bodies))
    queue = (await mq.admin.describe_topic(topic)).queues[0].queue
    call = partial(mq.admin._connection.call, ConsumerServiceStub, timeout_s=60.0)
    for first in range(0, count, AT_ONCE):
        end = min(count, first + AT_ONCE)
        nack = pull_pb2.NackMessagesRequest(
            group=group, queue=wire_queue(queue), delay_level=PARK_LEVEL, error="broken"
        )
        nack.offsets.extend(range(first, end))
        await call("NackMessages", nack)
        # An enode remembers the nacked messages above the committed offset, and limits their number.
        offset = pull_pb2.ConsumerOffset(queue=wire_queue(queue), offset=end)
        await call("CommitOffsets", pull_pb2.CommitConsumerOffsetsRequest(group=group, offsets=[offset]))
    return queue
