"""The two directions of one Push call."""

import asyncio
from collections.abc import AsyncIterator

from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.status import failure_of
from ortoo.snode.close_reason import CloseReason
from ortoo.snode.push_outbox import AcknowledgedOffsets, Assigned, Closed, Delivery, Event, Opened
from ortoo.snode.push_session import PushSession
from ortoo.snode.rpc.requests import read_failed
from ortoo.snode.sessions import Sessions
from ortoo.snode.wire import batch_to, queue_of, queue_to
from ortoo.v1 import consumer_pb2


class PushCall:
    """Joins a stream of requests and a session."""

    def __init__(self, sessions: Sessions, requests: AsyncIterator[consumer_pb2.PushRequest]) -> None:
        self._sessions = sessions
        self._requests = requests
        self._error: OrtooError | None = None

    async def open(self) -> PushSession:
        """Read the first request, which opens the session. Errors: Invalid, NotFound, Conflict."""
        async for request in self._requests:
            if request.WhichOneof("event") != "open":
                break
            wanted = request.open
            session = await self._sessions.open(
                wanted.group,
                wanted.client_id,
                [(item.topic, item.tag_expression, item.sql_expression) for item in wanted.subscriptions],
                from_first=wanted.start_from == consumer_pb2.START_FROM_FIRST,
            )
            session.call = asyncio.current_task()
            return session
        raise Invalid("the first request of Push must be `open`, with group and subscriptions", field="open")

    async def read(self, session: PushSession) -> None:
        """Do what the client asks until it leaves or breaks off."""
        try:
            async for request in self._requests:
                session.heard()
                if not await self._act(session, request):
                    return
        except Exception as failure:
            self._error = read_failed(failure, "Push")
        await self._sessions.close(session, CloseReason.CLIENT_LEFT, "the client ended its side of the stream")

    async def responses(self, session: PushSession) -> AsyncIterator[consumer_pb2.PushResponse]:
        """Everything for the client, until the session is closed."""
        while True:
            event = await session.next_event()
            if isinstance(event, Closed) and self._error is not None:
                raise self._error
            yield _response(event)
            if isinstance(event, Closed):
                return

    async def _act(self, session: PushSession, request: consumer_pb2.PushRequest) -> bool:
        kind = request.WhichOneof("event")
        if kind == "acknowledge":
            for item in request.acknowledge.offsets:
                session.acknowledge(queue_of(item.queue), item.offset, item.generation)
        elif kind == "credit":
            session.grant(request.credit.messages, request.credit.bytes)
        elif kind == "close":
            await self._sessions.close(session, CloseReason.CLIENT_LEFT, "the client left")
            return False
        elif kind == "open":
            raise Invalid("the session is open already; open another one on a stream of its own", field="open")
        return True


def _response(event: Event) -> consumer_pb2.PushResponse:
    if isinstance(event, Delivery):
        return consumer_pb2.PushResponse(delivery=_delivery(event))
    if isinstance(event, AcknowledgedOffsets):
        offsets = [
            consumer_pb2.AcknowledgedOffset(queue=queue_to(queue), offset=offset, generation=generation)
            for queue, offset, generation in event.offsets
        ]
        return consumer_pb2.PushResponse(acknowledged=consumer_pb2.Acknowledged(offsets=offsets))
    if isinstance(event, Assigned):
        return consumer_pb2.PushResponse(
            assignment=consumer_pb2.Assignment(generation=event.generation, queues=map(queue_to, event.queues))
        )
    if isinstance(event, Opened):
        return consumer_pb2.PushResponse(
            opened=consumer_pb2.SessionOpened(
                session_id=event.session_id, heartbeat_interval_ms=event.heartbeat_interval_ms
            )
        )
    return consumer_pb2.PushResponse(
        closed=consumer_pb2.SessionClosed(reason=event.reason.value, message=event.message)  # type: ignore[arg-type]
    )


def _delivery(delivery: Delivery) -> consumer_pb2.Delivery:
    return consumer_pb2.Delivery(
        queue=queue_to(delivery.queue),
        generation=delivery.generation,
        first_offset=delivery.first_offset,
        next_offset=delivery.next_offset,
        stored_at_ms=delivery.stored_at_ms,
        batch=batch_to(delivery.batch) if delivery.batch is not None else None,
        rows=delivery.rows,
        topic_id=delivery.topic_id,
        failure=failure_of(delivery.loss) if delivery.loss is not None else None,
    )
