"""Single sends that do not join a batch."""

from ortoo.client.core.connection import Connection
from ortoo.client.core.queues import Receipt
from ortoo.client.requests.requester import DEDUP_ID
from ortoo.common.grpc.messages import read, write
from ortoo.common.records.message import Message
from ortoo.v1 import producer_pb2, record_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub


async def publish_once(connection: Connection, topic: str, message: Message, dedup_id: str) -> Receipt:
    """Send one message with a dedup id. Errors: see `Producer.send_once`."""
    with_dedup_id = message.replace(properties={**message.properties, DEDUP_ID: dedup_id})
    with_dedup_id.check()
    request = producer_pb2.PublishRequest(topic=topic, messages=[write(record_pb2.Message, with_dedup_id)])
    [receipt] = (await connection.call(ProducerServiceStub, "Publish", request)).receipts
    return read(Receipt, receipt, stored_at_ms=0)
