"""Reads from an offset, and the offsets of groups and queues."""

import itertools
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from apache.rocketmq.v2 import service_pb2 as pb
from apache.rocketmq.v2.definition_pb2 import Code, MessageQueue, QueryOffsetPolicy
from ortoo.common.errors import OutOfRange
from ortoo.common.filters.selection import select_rows
from ortoo.common.records.message_id import message_id_text
from ortoo.snode.cluster.directory import check_readable
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import EnodeLinks, FetchBatchesRequest, QueueRange
from ortoo.snode.pull.queue_reader import check_in_range, messages_of
from ortoo.snode.rocketmq.clients.settings_reply import RECEIVE_BATCH_MAX
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError, ok_status, status_of
from ortoo.snode.rocketmq.protocol.filters import compile_filter
from ortoo.snode.rocketmq.protocol.messages import DeliveryInfo, to_ms, write_message
from ortoo.snode.rocketmq.protocol.names import group_name, topic_name


@dataclass(frozen=True, slots=True)
class PullMessageActivity:
    """The calls PullMessage, UpdateOffset, GetOffset and QueryOffset, for the queue that the request names."""

    watch: DirectoryWatch
    links: EnodeLinks

    async def pull(
        self, caller: Caller, request: pb.PullMessageRequest
    ) -> AsyncGenerator[pb.PullMessageResponse, None]:
        """Yield messages of a queue from an offset on, then the next offset.

        Errors: GrpcProxyError, NotFound, Invalid.
        """
        group_name(request.group)
        topic, queue = await self._queue(request.message_queue)
        message_filter = compile_filter(request.filter_expression)
        count_max = min(max(request.batch_size, 1), RECEIVE_BATCH_MAX)
        wait_ms = caller.wait_ms(to_ms(request.long_polling_timeout))
        link = self.links.to(queue.enode)
        try:
            fetch_request = FetchBatchesRequest(topic.topic_id, queue.queue_id, request.offset, wait_ms=wait_ms)
            fetched = await link.fetch(fetch_request)
        except OutOfRange as error:
            yield pb.PullMessageResponse(status=status_of(error))
            yield pb.PullMessageResponse(next_offset=min(max(request.offset, error.begin_offset), error.end_offset))
            return
        namespace, next_offset = request.message_queue.topic.resource_namespace, request.offset
        frames: list[pb.PullMessageResponse] = []
        for stored in fetched.batches:
            part = select_rows(stored, next_offset, None, message_filter)
            next_offset, room = part.next_offset, count_max - len(frames)
            found = list(itertools.islice(messages_of(part), room + 1))
            if len(found) > room:
                found.pop()
                next_offset = found[-1][0] + 1
            for offset, message in found:
                made = message_id_text(topic.topic_id, queue.enode, queue.queue_id, offset)
                place = DeliveryInfo(*queue, offset, part.stored_at_ms, made)
                frames.append(pb.PullMessageResponse(message=write_message(message, place, namespace)))
            if len(frames) >= count_max:
                break
        refused = GrpcProxyError(Code.MESSAGE_NOT_FOUND, "no new message")
        yield pb.PullMessageResponse(status=ok_status() if frames else status_of(refused))
        for frame in frames:
            yield frame
        yield pb.PullMessageResponse(next_offset=next_offset)

    async def update(self, caller: Caller, request: pb.UpdateOffsetRequest) -> pb.UpdateOffsetResponse:
        """Commit a group's offset in a queue. When the call returns, the offset is durable."""
        group = group_name(request.group)
        topic, queue = await self._queue(request.message_queue)
        check_in_range(await self._range(topic, queue), queue, request.offset, "offset")
        await self.links.to(queue.enode).commit_offsets(topic.topic_id, group, [(queue.queue_id, request.offset, 0)])
        return pb.UpdateOffsetResponse(status=ok_status())

    async def get(self, caller: Caller, request: pb.GetOffsetRequest) -> pb.GetOffsetResponse:
        """The committed offset of a group in a queue. Errors: GrpcProxyError with OFFSET_NOT_FOUND."""
        group = group_name(request.group)
        topic, queue = await self._queue(request.message_queue)
        offsets = await self.links.to(queue.enode).query_offsets(topic.topic_id, group, (queue.queue_id,))
        if (offset := offsets.get(queue.queue_id)) is None:
            raise GrpcProxyError(Code.OFFSET_NOT_FOUND, f"group {group} has no offset in {queue}")
        return pb.GetOffsetResponse(status=ok_status(), offset=offset)

    async def query(self, caller: Caller, request: pb.QueryOffsetRequest) -> pb.QueryOffsetResponse:
        """The first or the end offset of a queue, or its first offset at or after a time.

        Errors: GrpcProxyError with BAD_REQUEST.
        """
        topic, queue = await self._queue(request.message_queue)
        match request.query_offset_policy:
            case QueryOffsetPolicy.BEGINNING:
                offset = (await self._range(topic, queue)).begin_offset
            case QueryOffsetPolicy.END:
                offset = (await self._range(topic, queue)).end_offset
            case QueryOffsetPolicy.TIMESTAMP if request.HasField("timestamp"):
                stored_at_ms = to_ms(request.timestamp)
                offset = await self.links.to(queue.enode).find_offset(topic.topic_id, queue.queue_id, stored_at_ms)
            case QueryOffsetPolicy.TIMESTAMP:
                raise GrpcProxyError(Code.BAD_REQUEST, "the policy is TIMESTAMP, but no timestamp is set; set it")
            case unknown:
                raise GrpcProxyError(Code.BAD_REQUEST, f"policy {unknown} is unknown; use BEGINNING, END or TIMESTAMP")
        return pb.QueryOffsetResponse(status=ok_status(), offset=offset)

    async def _queue(self, queue: MessageQueue) -> tuple[Topic, Queue]:
        topic = await self.watch.topic(topic_name(queue.topic))
        if queue.id < 0:
            raise GrpcProxyError(Code.BAD_REQUEST, f"queue id {queue.id}; give a queue id of the route, at least 0")
        found = Queue(topic.name, queue.broker.name, queue.id)
        check_readable(topic, found)
        return topic, found

    async def _range(self, topic: Topic, queue: Queue) -> QueueRange:
        ranges = await self.links.to(queue.enode).describe_queues(topic.topic_id)
        return next((r for r in ranges if r.queue_id == queue.queue_id), QueueRange(queue.queue_id, 0, 0))
