"""DescribeQueues, MeasureQueues, DescribeStore and FindMessages."""

import asyncio
import contextlib

from ortoo.common.errors import NotFound, OrtooError
from ortoo.common.errors.status import failure_of
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import write
from ortoo.enode.rpc.handlers import EnodeHandlers
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import enode_topics_pb2 as topics_pb


class StorageHandlers(EnodeHandlers):
    """The methods that describe queues and the store, and search messages."""

    async def DescribeQueues(self, request: pb.DescribeQueuesRequest, context: Context) -> pb.DescribeQueuesResponse:
        """Get the first and the next offset of each queue of a topic."""
        await self.topics.wait_for(request.topic_id)
        queues = self.store.describe_queues(request.topic_id)
        return pb.DescribeQueuesResponse(queues=[write(pb.QueueRange, one) for one in queues])

    async def DescribeQueuesOfTopics(
        self, request: topics_pb.DescribeQueuesOfTopicsRequest, context: Context
    ) -> topics_pb.DescribeQueuesOfTopicsResponse:
        """Get the first and the next offset of each queue of many topics. Unknown topics are left out."""
        topics = []
        await asyncio.gather(*map(self._wait_for, filter(self.topics.is_missing, request.topic_ids)))
        for topic_id in request.topic_ids:
            with contextlib.suppress(NotFound):
                queues = self.store.describe_queues(topic_id)
                described = topics_pb.TopicQueues(
                    topic_id=topic_id,
                    begin_offsets=[one.begin_offset for one in queues],
                    end_offsets=[one.end_offset for one in queues],
                    last_stored_at_ms=self.store.last_times_ms(topic_id) if request.with_last_times else (),
                )
                topics.append(described)
        now_ms = self.store.engine.clock.now_ms() if request.with_last_times else 0
        return topics_pb.DescribeQueuesOfTopicsResponse(topics=topics, now_ms=now_ms)

    async def MeasureQueues(
        self, request: topics_pb.MeasureStoredQueuesRequest, context: Context
    ) -> topics_pb.MeasureStoredQueuesResponse:
        """Get the stored bytes of queues from an offset on."""
        missing = {one.topic_id for one in request.queues if self.topics.is_missing(one.topic_id)}
        await asyncio.gather(*map(self._wait_for, sorted(missing)))
        return topics_pb.MeasureStoredQueuesResponse(sizes=[await self._measure(one) for one in request.queues])

    async def _measure(self, start: topics_pb.MeasuredStoredQueue) -> topics_pb.StoredQueueSize:
        try:
            size = await self.store.measure_queue(start.topic_id, start.queue_id, start.from_offset, start.bytes_max)
        except OrtooError as error:
            return topics_pb.StoredQueueSize(failure=failure_of(error))
        return write(topics_pb.StoredQueueSize, size)

    async def _wait_for(self, topic_id: int) -> None:
        with contextlib.suppress(NotFound):
            await self.topics.wait_for(topic_id)

    async def TrimQueues(self, request: topics_pb.TrimQueuesRequest, context: Context) -> topics_pb.TrimQueuesResponse:
        """Make the oldest messages of queues unreadable."""
        await self.topics.wait_for(request.topic_id)
        offsets = {one.queue_id: one.before_offset for one in request.queues}
        trimmed = await self.store.trims.trim(request.topic_id, offsets)
        return topics_pb.TrimQueuesResponse(queues=[write(topics_pb.TrimmedStoredQueue, one) for one in trimmed])

    async def FindMessages(self, request: pb.FindMessagesRequest, context: Context) -> pb.FindMessagesResponse:
        """Find the places of messages with a key or an id."""
        await self.topics.wait_for(request.topic_id)
        found = await self.store.find_messages(
            request.topic_id,
            key=request.key,
            message_id=request.message_id,
            begin_ms=request.begin_ms,
            end_ms=request.end_ms,
            limit=request.limit,
        )
        return pb.FindMessagesResponse(places=[write(pb.MessagePlace, one) for one in found])

    async def DescribeStore(self, request: pb.DescribeStoreRequest, context: Context) -> pb.DescribeStoreResponse:
        """Get sizes, positions, health, and the attached snodes."""
        return write(pb.DescribeStoreResponse, self.store.describe(), snodes=self.attached.names())
