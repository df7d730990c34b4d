"""ConsumerService."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from ortoo.common.background import Background
from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.status import failure_of
from ortoo.snode.close_reason import CloseReason
from ortoo.snode.directory_watch import DirectoryWatch
from ortoo.snode.message_filter import compile_filter
from ortoo.snode.reading import Reading
from ortoo.snode.rpc.long_calls import LongCalls
from ortoo.snode.rpc.push import PushCall
from ortoo.snode.selection import Selected
from ortoo.snode.sessions import Sessions
from ortoo.snode.wire import batch_to, queue_of, queue_to
from ortoo.v1 import consumer_pb2, consumer_pb2_grpc

NAME = consumer_pb2.DESCRIPTOR.services_by_name["ConsumerService"].full_name
Context = grpc.aio.ServicerContext[Any, Any]


class ConsumerService(consumer_pb2_grpc.ConsumerServiceServicer):
    """How messages get out."""

    def __init__(
        self,
        watch: DirectoryWatch,
        sessions: Sessions,
        reading: Reading,
        background: Background,
        long_calls: LongCalls,
    ) -> None:
        self._watch = watch
        self._sessions = sessions
        self._reading = reading
        self._background = background
        self._long_calls = long_calls

    async def Push(
        self, request_iterator: AsyncIterator[consumer_pb2.PushRequest], context: Context
    ) -> AsyncIterator[consumer_pb2.PushResponse]:
        """A push session."""
        call = PushCall(self._sessions, request_iterator)
        session = await call.open()
        reading = self._background.spawn("push", call.read(session))
        try:
            async for response in call.responses(session):
                yield response
        finally:
            # The call may be over because the client is gone: then nothing can be waited for here.
            reading.cancel()
            self._sessions.ended(session)
            leaving = self._sessions.close(session, CloseReason.CLIENT_LEFT, "the connection is gone")
            self._background.spawn("leave", leaving)

    async def Fetch(
        self, request: consumer_pb2.FetchRequest, context: Context
    ) -> AsyncIterator[consumer_pb2.FetchResponse]:
        """Read whole batches of one queue, outside any group."""
        if request.from_offset < 0 or request.to_offset < 0:
            raise Invalid("an offset is negative; give 0 or more", field="from_offset")
        wanted = compile_filter(request.tag_expression, request.sql_expression)
        begun = False
        parts = self._reading.fetch(
            queue_of(request.queue), request.from_offset, request.to_offset, follow=request.follow, wanted=wanted
        )
        try:
            with self._long_calls.running():
                async for topic_id, part in parts:
                    begun = True
                    yield _batch(topic_id, part)
        except OrtooError as error:
            if not begun:
                raise
            yield consumer_pb2.FetchResponse(failure=failure_of(error))

    async def QueryQueues(
        self, request: consumer_pb2.QueryQueuesRequest, context: Context
    ) -> consumer_pb2.QueryQueuesResponse:
        """First and next offset of each queue of a topic."""
        ranges = await self._reading.queue_ranges(await self._watch.topic(request.topic))
        return consumer_pb2.QueryQueuesResponse(
            queues=[
                consumer_pb2.QueueState(queue=queue_to(q), begin_offset=r.begin_offset, end_offset=r.end_offset)
                for q, r in ranges.items()
            ]
        )


def _batch(topic_id: int, part: Selected) -> consumer_pb2.FetchResponse:
    return consumer_pb2.FetchResponse(
        first_offset=part.first_offset,
        next_offset=part.next_offset,
        stored_at_ms=part.stored_at_ms,
        batch=batch_to(part.batch) if part.batch is not None else None,
        rows=part.rows,
        topic_id=topic_id,
    )
