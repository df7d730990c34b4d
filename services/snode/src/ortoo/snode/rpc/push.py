"""The two directions of one Push call."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from ortoo.common.errors import Conflict, Invalid, OrtooError
from ortoo.common.grpc.bulk_calls import envelope_of
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.enum_values import check_known
from ortoo.common.grpc.errors import translate_error
from ortoo.common.grpc.limits.connections import address_of
from ortoo.common.grpc.messages import write
from ortoo.snode.clients.sessions import TEXT_LENGTH_MAX, ClientSessions, check_owner
from ortoo.snode.cluster.group_names import check_consumer_group
from ortoo.snode.cluster.wire import decode_queue, encode_queue
from ortoo.snode.membership.group_members import CloseReason, GroupMember, Subscription, merge_subscriptions
from ortoo.snode.policy.principal import PRINCIPAL, owner_at
from ortoo.snode.pull.offsets import SessionStart, StartFrom
from ortoo.snode.push.outbox import Assignment, Delivery, DurableOffsets, PushEvent, SessionClosed, SessionOpened
from ortoo.snode.push.plan import PushPlan
from ortoo.snode.push.session import PushSession
from ortoo.snode.push.sessions import PushSessions
from ortoo.snode.rpc.conversion import consumer_options, decode_subscriptions, encode_failure
from ortoo.snode.rpc.streams import RequestMemory, first_request
from ortoo.v1 import consumer_pb2 as pb


@dataclass(slots=True, eq=False)
class PushCall:
    """One Push call: passes the client's requests to a push session, and the session's events to the client."""

    sessions: PushSessions
    clients: ClientSessions
    requests: AsyncIterator[pb.PushRequest]
    member: GroupMember
    """The snode and the peer of the client."""
    _error: OrtooError | None = None
    _late_subscriptions: tuple[Subscription, ...] = field(default=(), init=False)
    """Subscriptions that arrived while the session was being opened."""
    _request_memory: RequestMemory = field(init=False)
    """The memory of requests, by kind."""

    async def open(self) -> PushSession:
        """Read the first request, which opens the session. Errors: Invalid, NotFound, Conflict, Forbidden."""
        request = await first_request(self.requests, "open", "Push must be `open`, with group and subscriptions")
        session = await self._open_session(request.open)
        session.call = asyncio.current_task()
        return session

    async def _open_session(self, request: pb.OpenSession) -> PushSession:
        check_consumer_group(request.group, "open.group")
        if len(request.client_id) > TEXT_LENGTH_MAX:
            raise Invalid(
                f"{len(request.client_id)} characters; give at most {TEXT_LENGTH_MAX}", field="open.client_id"
            )
        member = self._registered_member(request) if request.session_id else await self._standalone_member(request)
        filters = await self.sessions.compile_filters(request.group, member.subscriptions, "open.subscriptions")
        plan = PushPlan(
            request.group,
            member.client_id,
            filters,
            _decode_start(request),
            broadcast=member.broadcast,
            member_session_id=request.session_id,
            heartbeat_interval_ms=self.sessions.heartbeat_interval_ms,
            expiry_ms=int(self.sessions.expiry_s * 1000),
            owner=owner_at(address_of(self.member.peer)),
        )

        def as_member(session: PushSession) -> GroupMember:
            joining = self._registered_member(request) if request.session_id else member  # it may have disconnected
            joining = dataclasses.replace(
                joining, client_id=session.client_id, session_id=session.member_session_id, pushed=True, active=True
            )
            self._request_memory = RequestMemory(session.memory)
            self._request_memory.set_size("open", request.ByteSize())
            if request.session_id:
                self.clients.get(request.session_id).consumers[request.group] = joining
            if joining.subscriptions != member.subscriptions:
                self._late_subscriptions = joining.subscriptions
            return dataclasses.replace(joining, subscriptions=member.subscriptions)  # with their filters

        return await self.sessions.open(plan, as_member)

    def _registered_member(self, request: pb.OpenSession) -> GroupMember:
        """The group member that the client has registered in its session."""
        client = self.clients.get(request.session_id)
        member = client.consumers.get(request.group)
        if member is None:
            raise Conflict(
                f"the session has not registered as a consumer of group {request.group}; call register_consumer first",
                field="open.group",
            )
        if request.subscriptions:
            member = dataclasses.replace(
                member,
                subscriptions=merge_subscriptions(member.subscriptions, decode_subscriptions(request.subscriptions)),
            )
        return member

    async def _standalone_member(self, request: pb.OpenSession) -> GroupMember:
        membership = self.sessions.context.groups.membership
        await membership.follow(request.group)
        check_owner(membership.members(request.group), request.client_id)
        return dataclasses.replace(
            self.member,
            user=PRINCIPAL.get().user,
            client_id=request.client_id,
            subscriptions=merge_subscriptions((), decode_subscriptions(request.subscriptions)),
            room=request.zone,
            language=request.language,
            client_version=request.client_version,
            **consumer_options(request),
        )

    async def read(self, session: PushSession) -> None:
        """Execute the client's requests until the client ends the call or disconnects."""
        try:
            if self._late_subscriptions:
                await self.sessions.subscribe(session, self._late_subscriptions)
            async for request in self.requests:
                session.touch()
                if not await self._handle(session, request):
                    return
        except Exception as failure:
            self._error = translate_error(failure, "Push")
        await self.sessions.close(session, CloseReason.CLIENT_LEFT, "the client ended its side of the stream")

    async def responses(self, session: PushSession) -> AsyncIterator[BulkMessage]:
        """Yield the events for the client until the session is closed."""
        while True:
            event = await session.outbox.next()
            if isinstance(event, SessionClosed) and self._error is not None:
                raise self._error
            is_last = isinstance(event, SessionClosed)
            yield _encode_event(event)
            del event
            if is_last:
                return

    async def _handle(self, session: PushSession, request: pb.PushRequest) -> bool:
        kind = request.WhichOneof("event")
        if kind == "commit":
            for item in request.commit.offsets:
                session.commit(decode_queue(item.queue), item.offset, item.generation)
        elif kind == "credit":
            session.grant(request.credit.messages, request.credit.bytes)
        elif kind == "close":
            session.has_left = True
            await self.sessions.close(session, CloseReason.CLIENT_LEFT, "the client left")
            return False
        elif kind == "subscribe":
            self._request_memory.set_size(kind, request.subscribe.ByteSize())
            await self.sessions.subscribe(session, decode_subscriptions(request.subscribe.subscriptions))
        elif kind == "suspend":
            self._request_memory.set_size(kind, request.suspend.ByteSize())
            session.suspend(None if request.suspend.all else frozenset(map(decode_queue, request.suspend.queues)))
        elif kind == "open":
            raise Invalid("the session is already open; open another session in its own call", field="open")
        return True


def _decode_start(request: pb.OpenSession) -> SessionStart:
    check_known(request, "start_from", prefix="open")
    start_from = {
        pb.START_FROM_FIRST: StartFrom.FIRST,
        pb.START_FROM_TIME: StartFrom.TIME,
    }.get(request.start_from, StartFrom.LAST)
    offsets = {decode_queue(one.queue): one.offset for one in request.start_offsets}
    if any(offset < 0 for offset in offsets.values()):
        raise Invalid("an offset is negative; give 0 or more", field="open.start_offsets")
    return SessionStart(start_from, request.start_time_ms, offsets)


def _encode_event(event: PushEvent) -> BulkMessage:
    match event:
        case Delivery(batch=batch):
            envelope = envelope_of(batch) if batch is not None else None
            delivery = write(pb.Delivery, event, batch=envelope, failure=encode_failure(event.loss))
            return BulkMessage(pb.PushResponse(delivery=delivery), (batch.records,) if batch is not None else ())
        case DurableOffsets():
            offsets = [
                pb.CommittedOffset(queue=encode_queue(queue), offset=offset, generation=generation)
                for queue, offset, generation in event.offsets
            ]
            return BulkMessage(pb.PushResponse(committed=pb.Committed(offsets=offsets)))
        case Assignment():
            queues = map(encode_queue, event.queues)
            return BulkMessage(pb.PushResponse(assignment=pb.Assignment(generation=event.generation, queues=queues)))
        case SessionOpened():
            return BulkMessage(pb.PushResponse(opened=write(pb.SessionOpened, event)))
        case SessionClosed():
            return BulkMessage(pb.PushResponse(closed=write(pb.SessionClosed, event)))
