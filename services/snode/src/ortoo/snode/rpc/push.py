"""The two directions of one Push call."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Conflict, Invalid, OrtooError
from ortoo.common.errors.status import failure_of
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.snode.clients.sessions import TEXT_LENGTH_MAX, ClientSessions
from ortoo.snode.cluster.wire import envelope_to, queue_of, queue_to
from ortoo.snode.membership.members import CloseReason, Member, merged
from ortoo.snode.pull.offsets import StartFrom, StartRule
from ortoo.snode.push.outbox import AcknowledgedOffsets, Assigned, Closed, Delivery, Event, Opened
from ortoo.snode.push.session import PushPlan, PushSession
from ortoo.snode.push.sessions import Sessions
from ortoo.snode.rpc.members import strategy, subscriptions
from ortoo.snode.rpc.requests import read_failed
from ortoo.v1 import consumer_pb2


class PushCall:
    """Joins a stream of requests and a session."""

    def __init__(
        self,
        sessions: Sessions,
        clients: ClientSessions,
        requests: AsyncIterator[consumer_pb2.PushRequest],
        member: Member,
    ) -> None:
        """`member` says at which snode, and for which peer."""
        self._sessions = sessions
        self._clients = clients
        self._requests = requests
        self._member = member
        self._error: OrtooError | None = None

    async def open(self) -> PushSession:
        """Read the first request, which opens the session. Errors: Invalid, NotFound, Conflict, Forbidden."""
        async for request in self._requests:
            if request.WhichOneof("event") != "open":
                break
            session = await self._open(request.open)
            session.call = asyncio.current_task()
            return session
        raise Invalid("the first request of Push must be `open`, with group and subscriptions", field="open")

    async def _open(self, wanted: consumer_pb2.OpenSession) -> PushSession:
        check_group_name(wanted.group, "open.group")
        if len(wanted.client_id) > TEXT_LENGTH_MAX:
            raise Invalid(f"{len(wanted.client_id)} characters; at most {TEXT_LENGTH_MAX}", field="open.client_id")
        member = self._attached(wanted) if wanted.session_id else self._alone(wanted)
        filters = await self._sessions.filters(member.subscriptions, "open.subscriptions")
        plan = PushPlan(
            wanted.group,
            member.client_id,
            filters,
            _start(wanted),
            broadcast=member.broadcast,
            member_session_id=wanted.session_id,
            heartbeat_interval_ms=self._sessions.heartbeat_interval_ms,
            expiry_ms=int(self._sessions.expiry_s * 1000),
        )

        def as_member(session: PushSession) -> Member:
            return dataclasses.replace(
                member,
                client_id=session.client_id,
                session_id=session.member_session_id,
                pushed=True,
                active=True,
            )

        return await self._sessions.open(plan, as_member)

    def _attached(self, wanted: consumer_pb2.OpenSession) -> Member:
        """The client's session has registered it already."""
        client = self._clients.get(wanted.session_id)
        member = client.consumers.get(wanted.group)
        if member is None:
            raise Conflict(
                f"the session has not registered as a consumer of group {wanted.group}; register_consumer first",
                field="open.group",
            )
        if wanted.subscriptions:
            member = dataclasses.replace(
                member, subscriptions=merged(member.subscriptions, subscriptions(wanted.subscriptions))
            )
        client.consumers[wanted.group] = dataclasses.replace(member, pushed=True, active=True)
        return member

    def _alone(self, wanted: consumer_pb2.OpenSession) -> Member:
        return dataclasses.replace(
            self._member,
            client_id=wanted.client_id,
            subscriptions=merged((), subscriptions(wanted.subscriptions)),
            broadcast=wanted.message_model == consumer_pb2.MESSAGE_MODEL_BROADCAST,
            strategy=strategy(wanted.strategy),
            configured=tuple(map(queue_of, wanted.configured_queues)),
            rooms=tuple(wanted.rooms),
            room=wanted.room,
            language=wanted.language,
            client_version=wanted.client_version,
        )

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

    async def responses(self, session: PushSession) -> AsyncIterator[Bulky]:
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
        elif kind == "subscribe":
            await self._sessions.subscribe(session, subscriptions(request.subscribe.subscriptions))
        elif kind == "suspend":
            session.suspend(None if request.suspend.everything else frozenset(map(queue_of, request.suspend.queues)))
        elif kind == "open":
            raise Invalid("the session is open already; open another one on a stream of its own", field="open")
        return True


def _start(wanted: consumer_pb2.OpenSession) -> StartRule:
    start_from = {
        consumer_pb2.START_FROM_FIRST: StartFrom.FIRST,
        consumer_pb2.START_FROM_TIME: StartFrom.TIME,
    }.get(wanted.start_from, StartFrom.LAST)
    kept = {queue_of(one.queue): one.offset for one in wanted.start_offsets}
    if any(offset < 0 for offset in kept.values()):
        raise Invalid("an offset is negative; give 0 or more", field="open.start_offsets")
    return StartRule(start_from, wanted.start_time_ms, kept)


def _response(event: Event) -> Bulky:
    if isinstance(event, Delivery):
        bulks = (event.batch.records,) if event.batch is not None else ()
        return Bulky(consumer_pb2.PushResponse(delivery=_delivery(event)), bulks)
    return Bulky(_small_response(event))


def _small_response(event: Opened | Assigned | AcknowledgedOffsets | Closed) -> consumer_pb2.PushResponse:
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
                session_id=event.session_id,
                heartbeat_interval_ms=event.heartbeat_interval_ms,
                expiry_ms=event.expiry_ms,
                client_id=event.client_id,
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
        batch=envelope_to(delivery.batch) if delivery.batch is not None else None,
        rows=delivery.rows,
        topic_id=delivery.topic_id,
        failure=failure_of(delivery.loss) if delivery.loss is not None else None,
    )
