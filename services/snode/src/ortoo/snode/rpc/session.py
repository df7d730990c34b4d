"""SessionService: the two directions of one Connect call."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ortoo.common.errors import OrtooError
from ortoo.common.grpc.layers.call_memory import call_share
from ortoo.common.grpc.errors import Context, request_failed
from ortoo.common.grpc.messages import read, write
from ortoo.snode.clients.session import (
    ClientSession,
    CommandSent,
    GroupMembers,
    Hello,
    RegistrationAnswer,
    SessionEvent,
)
from ortoo.snode.clients.sessions import ClientSessions
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.membership.group_members import CloseReason, sharing, strategy_of
from ortoo.snode.push.outbox import Closed, Opened
from ortoo.snode.rpc.conversion import failure_to, how_consuming, subscriptions
from ortoo.snode.rpc.streams import Kept, first_request
from ortoo.v1 import consumer_pb2, session_pb2_grpc
from ortoo.v1 import session_pb2 as pb

NAME = pb.DESCRIPTOR.services_by_name["SessionService"].full_name


@dataclass(eq=False)
class SessionService(session_pb2_grpc.SessionServiceServicer):
    """Sessions of clients."""

    sessions: ClientSessions
    runtime: Runtime

    async def Connect(
        self, request_iterator: AsyncIterator[pb.ConnectRequest], context: Context
    ) -> AsyncIterator[pb.ConnectResponse]:
        """A session."""
        call = ConnectCall(self.sessions, request_iterator, Kept(call_share(self.runtime.memory, "Connect")))
        session = await call.open(context.peer())
        scope = self.runtime.background.scope("Connect", failed=lambda _: session.call and session.call.cancel())
        scope.start("read", call.read(session))
        try:
            async for response in call.responses(session):
                yield response
        finally:
            scope.cancel()
            self.sessions.close(session, CloseReason.CLIENT_LEFT, "the connection was closed")
            self.sessions.ended(session)


@dataclass(slots=True, eq=False)
class ConnectCall:
    """Connects the requests of a call to a client session."""

    sessions: ClientSessions
    requests: AsyncIterator[pb.ConnectRequest]
    kept: Kept
    """Registrations, by group."""
    _error: OrtooError | None = None

    async def open(self, peer: str) -> ClientSession:
        """Read the first request, which opens the session. Errors: Invalid."""
        request = await first_request(self.requests, "hello", "Connect must be `hello`")
        session = self.sessions.open(read(Hello, request.hello), peer)
        session.call = asyncio.current_task()
        return session

    async def read(self, session: ClientSession) -> None:
        """Execute the client's requests until it leaves or disconnects."""
        message = "the client ended its side of the stream"
        try:
            async for request in self.requests:
                self.sessions.heard(session)
                if request.WhichOneof("event") == "close":
                    message = "the client left"
                    break
                await self._act(session, request)
        except Exception as failure:
            self._error = request_failed(failure, "Connect")
        self.sessions.close(session, CloseReason.CLIENT_LEFT, message)

    async def responses(self, session: ClientSession) -> AsyncIterator[pb.ConnectResponse]:
        """The events for the client, until the session is closed."""
        while True:
            event = await session.outbox.next()
            if isinstance(event, Closed) and self._error is not None:
                raise self._error
            yield _response(event)
            if isinstance(event, Closed):
                return

    async def _act(self, session: ClientSession, request: pb.ConnectRequest) -> None:
        kind = request.WhichOneof("event")
        if kind == "hello":
            self.sessions.rename(session, read(Hello, request.hello))
        elif kind == "command_result":
            self.sessions.answered(session, request.command_result.command_id, request.command_result)
        elif kind is not None and kind.startswith(("register", "unregister")):
            group = getattr(request, kind).group
            try:
                members = await self._register(session, kind, request)
            except OrtooError as error:  # no variable keeps it: its traceback refers to this frame
                session.outbox.put(RegistrationAnswer(request.request_id, group, session.client_id, error))
            else:
                answer = RegistrationAnswer(request.request_id, group, session.client_id, members=members)
                session.outbox.put(answer)

    async def _register(self, session: ClientSession, kind: str, request: pb.ConnectRequest) -> GroupMembers | None:
        match kind:
            case "register_consumer":
                wanted = request.register_consumer
                wish = dataclasses.replace(
                    self.sessions.member(session),
                    subscriptions=subscriptions(wanted.subscriptions),
                    pushed=wanted.consume_type == pb.CONSUME_TYPE_PUSH,
                    **how_consuming(wanted),
                )
                was_bytes, size_bytes = self.kept[wanted.group], wanted.ByteSize()
                self.kept.keep(wanted.group, max(was_bytes, size_bytes))
                try:
                    members = await self.sessions.register_consumer(session, wanted.group, wish)
                except BaseException:
                    self.kept.keep(wanted.group, was_bytes)
                    raise
                self.kept.keep(wanted.group, size_bytes)
                return members
            case "register_producer":
                self.sessions.register_producer(session, request.register_producer.group)
            case "unregister_producer":
                self.sessions.unregister_producer(session, request.unregister_producer.group)
            case _:
                self.sessions.unregister_consumer(session, request.unregister_consumer.group)
                self.kept.keep(request.unregister_consumer.group, 0)
        return None


def _response(event: SessionEvent) -> pb.ConnectResponse:
    match event:
        case Opened():
            return pb.ConnectResponse(opened=write(consumer_pb2.SessionOpened, event))
        case RegistrationAnswer():
            members = _members(event.members) if event.members is not None else None
            registered = write(pb.Registered, event, failure=failure_to(event.error), members=members)
            return pb.ConnectResponse(request_id=event.request_id, registered=registered)
        case GroupMembers():
            return pb.ConnectResponse(members_changed=_members(event))
        case CommandSent():
            return pb.ConnectResponse(command=event.command)
        case Closed():
            return pb.ConnectResponse(closed=write(consumer_pb2.SessionClosed, event))


def _members(event: GroupMembers) -> pb.MembersChanged:
    """The group members, for clients that assign queues."""
    client_ids = sharing(event.members)
    return write(
        pb.MembersChanged,
        event,
        client_ids=client_ids,
        wanted=[pb.MemberTopics(topics=sorted(event.members[one].topics)) for one in client_ids],
        rooms=[event.members[one].room for one in client_ids],
        strategy=strategy_of(event.members),
    )
