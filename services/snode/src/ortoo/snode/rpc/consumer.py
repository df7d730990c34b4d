"""ConsumerService: push sessions and reads outside any group. The modules `pulls` and `pop` have its other calls."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.errors.status import failure_of
from ortoo.common.filters.message_filter import compile_filter
from ortoo.common.filters.projection import Columns, columns_of, project
from ortoo.common.filters.selection import SelectedRows
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_calls import envelope_of
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import write
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.wire import decode_queue, encode_queue
from ortoo.snode.membership.group_members import CloseReason, GroupMember
from ortoo.snode.push.session import PushSession
from ortoo.snode.push.sessions import PushSessions
from ortoo.snode.rpc.pop import PopConsumerHandlers
from ortoo.snode.rpc.pulls import PullConsumerHandlers
from ortoo.snode.rpc.push import PushCall
from ortoo.v1 import consumer_pb2 as pb
from ortoo.v1 import consumer_pb2_grpc

NAME = pb.DESCRIPTOR.services_by_name["ConsumerService"].full_name


@dataclass(kw_only=True, eq=False)
class ConsumerService(PopConsumerHandlers, PullConsumerHandlers):
    """The service by which clients receive messages."""

    runtime: Runtime
    push_sessions: PushSessions

    async def Push(  # type: ignore[override]  # see bulk_calls
        self, request_iterator: AsyncIterator[pb.PushRequest], context: Context
    ) -> AsyncIterator[BulkMessage]:
        """Run a push session."""
        snode, incarnation, now_ms = self.runtime.settings.name, self.runtime.incarnation, self.runtime.clock.now_ms()
        local_member = GroupMember("", "", snode, incarnation, peer=context.peer(), since_ms=now_ms)
        call = PushCall(self.push_sessions, self.clients.sessions, request_iterator, local_member)
        session = await call.open()
        scope = self.runtime.background.scope("Push", failed=lambda _: session.on_failure())
        scope.start("read", call.read(session))
        try:
            with self.runtime.stream_ages.track(lambda: self._end(session)):
                async for response in call.responses(session):
                    yield response
                    del response
        finally:
            # The call may have been cancelled by a disconnect; then it could not await anything here.
            scope.cancel()
            self.push_sessions.on_call_ended(session)
            leaving = self.push_sessions.close(session, CloseReason.CLIENT_LEFT, "the connection was closed")
            self.runtime.background.run_contained("leave", leaving)

    def _end(self, session: PushSession) -> None:
        message = "the session has reached its age; open it at another snode"
        self.push_sessions.start_close(session, CloseReason.SHUTDOWN, message, reopens=True)

    async def Fetch(  # type: ignore[override]  # see bulk_calls
        self, request: pb.FetchRequest, context: Context
    ) -> AsyncIterator[BulkMessage]:
        """Read whole batches of one queue, outside any group."""
        if request.from_offset < 0 or request.to_offset < 0:
            raise Invalid("an offset is negative; give 0 or more", field="from_offset")
        message_filter = compile_filter(request.tag_expression, request.sql_expression)
        columns = columns_of(request.columns)
        has_started = False
        queue, begin, end = decode_queue(request.queue), request.from_offset, request.to_offset
        try:
            with self.long_calls.track() as memory:
                parts = self.pull.reader.fetch(
                    queue, begin, end, follow=request.follow, message_filter=message_filter, columns=columns,
                    coalesce=request.coalesce, memory=memory,
                )  # fmt: skip
                async for topic_id, part in parts:
                    has_started = True
                    yield _encode_fetched(topic_id, part, columns)
                    del part
        except OrtooError as error:
            if not has_started:
                raise
            yield BulkMessage(pb.FetchResponse(failure=failure_of(error)))

    async def QueryQueues(self, request: pb.QueryQueuesRequest, context: Context) -> pb.QueryQueuesResponse:
        """The first offset and the end offset of each queue of a topic."""
        ranges = await self.pull.reader.queue_ranges(await self.cluster.watch.topic(request.topic))
        return pb.QueryQueuesResponse(
            queues=[write(pb.QueueState, held, queue=encode_queue(queue)) for queue, held in ranges.items()]
        )


def add_to_server(service: ConsumerService, server: Any) -> None:
    """Add the service to a server."""
    bulk_calls.add_service(server, consumer_pb2_grpc.add_ConsumerServiceServicer_to_server, service, "Push", "Fetch")


def _encode_fetched(topic_id: int, part: SelectedRows, columns: Columns) -> BulkMessage:
    batch = project(part.batch, columns) if part.batch is not None else None
    envelope = envelope_of(batch) if batch is not None else None
    response = write(pb.FetchResponse, part, batch=envelope, topic_id=topic_id)
    return BulkMessage(response, (batch.records,) if batch is not None else ())
