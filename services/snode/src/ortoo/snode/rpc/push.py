"""The two directions of one Push call."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Conflict, Invalid, OrtooError
from ortoo.common.grpc.bulk_calls import envelope_to
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.grpc.errors import request_failed
from ortoo.common.grpc.messages import write
from ortoo.snode.clients.sessions import TEXT_LENGTH_MAX, ClientSessions, check_owner
from ortoo.snode.cluster.wire import queue_of, queue_to
from ortoo.snode.membership.group_members import CloseReason, Member, Subscription, merged
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.snode.pull.offsets import StartFrom, StartRule
from ortoo.snode.push.outbox import AcknowledgedOffsets, Assigned, Closed, Delivery, Event, Opened
from ortoo.snode.push.session import PushPlan, PushSession
from ortoo.snode.push.sessions import Sessions
from ortoo.snode.rpc.conversion import failure_to, how_consuming, subscriptions
from ortoo.snode.rpc.streams import Kept, first_request
from ortoo.v1 import consumer_pb2 as pb


@dataclass(slots=True, eq=False)
class PushCall:
    """Connects the requests of a call to a push session."""

    sessions: Sessions
    clients: ClientSessions
    requests: AsyncIterator[pb.PushRequest]
    member: Member
    """The snode and the peer of the client."""
    _error: OrtooError | None = None
    _news: tuple[Subscription, ...] = field(default=(), init=False)
    """Subscriptions that arrived while the session was being opened."""
    _kept: Kept = field(init=False)
    """Requests, by kind."""

    async def open(self) -> PushSession:
        """Read the first request, which opens the session. Errors: Invalid, NotFound, Conflict, Forbidden."""
        request = await first_request(self.requests, "open", "Push must be `open`, with group and subscriptions")
        session = await self._open(request.open)
        session.call = asyncio.current_task()
        return session

    async def _open(self, wanted: pb.OpenSession) -> PushSession:
        check_group_name(wanted.group, "open.group")
        if len(wanted.client_id) > TEXT_LENGTH_MAX:
            raise Invalid(f"{len(wanted.client_id)} characters; give at most {TEXT_LENGTH_MAX}", field="open.client_id")
        member = self._attached(wanted) if wanted.session_id else self._alone(wanted)
        filters = await self.sessions.filters(wanted.group, member.subscriptions, "open.subscriptions")
        plan = PushPlan(
            wanted.group,
            member.client_id,
            filters,
            _start(wanted),
            broadcast=member.broadcast,
            member_session_id=wanted.session_id,
            heartbeat_interval_ms=self.sessions.heartbeat_interval_ms,
            expiry_ms=int(self.sessions.expiry_s * 1000),
        )

        def as_member(session: PushSession) -> Member:
            joining = self._attached(wanted) if wanted.session_id else member  # it may have disconnected
            joining = dataclasses.replace(
                joining, client_id=session.client_id, session_id=session.member_session_id, pushed=True, active=True
            )
            self._kept = Kept(session.memory)
            self._kept.keep("open", wanted.ByteSize())
            if wanted.session_id:
                self.clients.get(wanted.session_id).consumers[wanted.group] = joining
            if joining.subscriptions != member.subscriptions:
                self._news = joining.subscriptions
            return dataclasses.replace(joining, subscriptions=member.subscriptions)  # with their filters

        return await self.sessions.open(plan, as_member)

    def _attached(self, wanted: pb.OpenSession) -> Member:
        """The registration in the client's session."""
        client = self.clients.get(wanted.session_id)
        member = client.consumers.get(wanted.group)
        if member is None:
            raise Conflict(
                f"the session has not registered as a consumer of group {wanted.group}; call register_consumer first",
                field="open.group",
            )
        if wanted.subscriptions:
            member = dataclasses.replace(
                member, subscriptions=merged(member.subscriptions, subscriptions(wanted.subscriptions))
            )
        return member

    def _alone(self, wanted: pb.OpenSession) -> Member:
        check_owner(self.sessions.parts.groups.membership.members(wanted.group), wanted.client_id)
        return dataclasses.replace(
            self.member,
            user=PRINCIPAL.get().user,
            client_id=wanted.client_id,
            subscriptions=merged((), subscriptions(wanted.subscriptions)),
            room=wanted.room,
            language=wanted.language,
            client_version=wanted.client_version,
            **how_consuming(wanted),
        )

    async def read(self, session: PushSession) -> None:
        """Execute the client's requests until it leaves or disconnects."""
        try:
            if self._news:
                await self.sessions.subscribe(session, self._news)
            async for request in self.requests:
                session.heard()
                if not await self._act(session, request):
                    return
        except Exception as failure:
            self._error = request_failed(failure, "Push")
        await self.sessions.close(session, CloseReason.CLIENT_LEFT, "the client ended its side of the stream")

    async def responses(self, session: PushSession) -> AsyncIterator[Bulky]:
        """The events for the client, until the session is closed."""
        while True:
            event = await session.outbox.next()
            if isinstance(event, Closed) and self._error is not None:
                raise self._error
            is_last = isinstance(event, Closed)
            yield _response(event)
            del event
            if is_last:
                return

    async def _act(self, session: PushSession, request: pb.PushRequest) -> bool:
        kind = request.WhichOneof("event")
        if kind == "acknowledge":
            for item in request.acknowledge.offsets:
                session.acknowledge(queue_of(item.queue), item.offset, item.generation)
        elif kind == "credit":
            session.grant(request.credit.messages, request.credit.bytes)
        elif kind == "close":
            await self.sessions.close(session, CloseReason.CLIENT_LEFT, "the client left")
            return False
        elif kind == "subscribe":
            self._kept.keep(kind, request.subscribe.ByteSize())
            await self.sessions.subscribe(session, subscriptions(request.subscribe.subscriptions))
        elif kind == "suspend":
            self._kept.keep(kind, request.suspend.ByteSize())
            session.suspend(None if request.suspend.everything else frozenset(map(queue_of, request.suspend.queues)))
        elif kind == "open":
            raise Invalid("the session is already open; open another one on its own stream", field="open")
        return True


def _start(wanted: pb.OpenSession) -> StartRule:
    start_from = {
        pb.START_FROM_FIRST: StartFrom.FIRST,
        pb.START_FROM_TIME: StartFrom.TIME,
    }.get(wanted.start_from, StartFrom.LAST)
    kept = {queue_of(one.queue): one.offset for one in wanted.start_offsets}
    if any(offset < 0 for offset in kept.values()):
        raise Invalid("an offset is negative; give 0 or more", field="open.start_offsets")
    return StartRule(start_from, wanted.start_time_ms, kept)


def _response(event: Event) -> Bulky:
    match event:
        case Delivery(batch=batch):
            envelope = envelope_to(batch) if batch is not None else None
            delivery = write(pb.Delivery, event, batch=envelope, failure=failure_to(event.loss))
            return Bulky(pb.PushResponse(delivery=delivery), (batch.records,) if batch is not None else ())
        case AcknowledgedOffsets():
            offsets = [
                pb.AcknowledgedOffset(queue=queue_to(queue), offset=offset, generation=generation)
                for queue, offset, generation in event.offsets
            ]
            return Bulky(pb.PushResponse(acknowledged=pb.Acknowledged(offsets=offsets)))
        case Assigned():
            queues = map(queue_to, event.queues)
            return Bulky(pb.PushResponse(assignment=pb.Assignment(generation=event.generation, queues=queues)))
        case Opened():
            return Bulky(pb.PushResponse(opened=write(pb.SessionOpened, event)))
        case Closed():
            return Bulky(pb.PushResponse(closed=write(pb.SessionClosed, event)))
