"""DescribeQueues, DescribeStore and FindMessages."""

from ortoo.common.grpc.errors import Context
from ortoo.enode.rpc.handlers import Handlers
from ortoo.enode.rpc.messages import filled
from ortoo.enode.store.store import Damage
from ortoo.v1 import enode_pb2 as pb


class StorageHandlers(Handlers):
    """What lies where."""

    async def DescribeQueues(self, request: pb.DescribeQueuesRequest, context: Context) -> pb.DescribeQueuesResponse:
        """First and next offset of each queue of a topic."""
        await self.topics.arrival(request.topic_id)
        queues = self.store.describe_queues(request.topic_id)
        return pb.DescribeQueuesResponse(queues=[filled(pb.QueueRange, one) for one in queues])

    async def FindMessages(self, request: pb.FindMessagesRequest, context: Context) -> pb.FindMessagesResponse:
        """Where messages with a key or an id lie."""
        await self.topics.arrival(request.topic_id)
        found = await self.store.find_messages(
            request.topic_id,
            key=request.key,
            message_id=request.message_id,
            begin_ms=request.begin_ms,
            end_ms=request.end_ms,
            limit=request.limit,
        )
        return pb.FindMessagesResponse(places=[filled(pb.MessagePlace, one) for one in found])

    async def DescribeStore(self, request: pb.DescribeStoreRequest, context: Context) -> pb.DescribeStoreResponse:
        """Sizes, positions, health, and which snodes are attached."""
        store, snodes = self.store.describe(), self.attached.names()
        return filled(pb.DescribeStoreResponse, store, damages=map(_damage, store.damages), snodes=snodes)


def _damage(damage: Damage) -> pb.Damage:
    return filled(pb.Damage, damage, queues=[filled(pb.DamagedQueue, one) for one in damage.queues])
