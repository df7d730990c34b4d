"""Conversion of topics from the wire."""

from ortoo.client.admin.descriptions import QueueInfo, TopicDescription, TopicInfo
from ortoo.client.core.queues import Queue
from ortoo.client.core.wire import EnumNames
from ortoo.common.grpc.messages import read
from ortoo.v1 import admin_pb2, topic_pb2

MESSAGE_TYPES = EnumNames("message_type", topic_pb2.MessageType, unspecified="any")
PERMISSIONS = EnumNames("permission", topic_pb2.Permission)


def description_of(answer: admin_pb2.DescribeTopicResponse) -> TopicDescription:
    """A topic and the offset range of each queue."""
    name = answer.topic.name
    queues = (read(QueueInfo, it, queue=Queue(name, it.enode, it.queue_id)) for it in answer.queues)
    return TopicDescription(topic_of(answer.topic), tuple(queues))


def topic_of(topic: topic_pb2.Topic) -> TopicInfo:
    """A topic."""
    return read(
        TopicInfo,
        topic,
        permission=PERMISSIONS.name(topic.permission),
        message_type=MESSAGE_TYPES.name(topic.message_type),
        publish_order=tuple((place.enode, place.queue_count) for place in topic.publish_order.places),
    )
