"""SessionService: the two directions of one Connect call."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ortoo.common.errors import OrtooError
from ortoo.common.grpc.enum_values import check_known
from ortoo.common.grpc.errors import Context, translate_error
from ortoo.common.grpc.layers.call_memory import open_call_share
from ortoo.common.grpc.messages import read, write
from ortoo.snode.clients.session import (
    ClientCommand,
    ClientSession,
    GroupMembers,
    Hello,
    RegistrationResult,
    RequesterResult,
    SessionEvent,
)
from ortoo.snode.clients.sessions import ClientSessions
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.membership.group_members import CloseReason, assignable_client_ids, strategy_of
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.snode.push.outbox import SessionClosed, SessionOpened
from ortoo.snode.rpc.conversion import consumer_options, decode_subscriptions, encode_failure
from ortoo.snode.rpc.streams import RequestMemory, first_request
from ortoo.v1 import consumer_pb2, session_pb2_grpc
from ortoo.v1 import session_pb2 as pb

NAME = pb.DESCRIPTOR.services_by_name["SessionService"].full_name


@dataclass(eq=False)
class SessionService(session_pb2_grpc.SessionServiceServicer):
    """The service for client sessions."""

    sessions: ClientSessions
    runtime: Runtime

    async def Connect(
        self, request_iterator: AsyncIterator[pb.ConnectRequest], context: Context
    ) -> AsyncIterator[pb.ConnectResponse]:
        """Run a client session."""
        call = ConnectCall(
            self.sessions, request_iterator, RequestMemory(open_call_share(self.runtime.memory, "Connect"))
        )
        session = await call.open(context.peer())
        scope = self.runtime.background.scope("Connect", failed=lambda _: session.call and session.call.cancel())
        scope.start("read", call.read(session))
        try:
            with self.runtime.stream_ages.track(lambda: self._end(session)):
                async for response in call.responses(session):
                    yield response
        finally:
            scope.cancel()
            self.sessions.close(session, CloseReason.CLIENT_LEFT, "the connection was closed")
            self.sessions.on_call_ended(session)

    def _end(self, session: ClientSession) -> None:
        message = "the session has reached its age; connect to another snode"
        self.sessions.close(session, CloseReason.SHUTDOWN, message, reopens=True)


@dataclass(slots=True, eq=False)
class ConnectCall:
    """One Connect call: passes the client's requests to a client session, and the session's events to the client."""

    sessions: ClientSessions
    requests: AsyncIterator[pb.ConnectRequest]
    request_memory: RequestMemory
    """The memory of registrations, by group."""
    _error: OrtooError | None = None

    async def open(self, peer: str) -> ClientSession:
        """Read the first request, which opens the session. Errors: Invalid."""
        request = await first_request(self.requests, "hello", "Connect must be `hello`")
        session = self.sessions.open(read(Hello, request.hello, room=request.hello.zone), peer)
        session.call = asyncio.current_task()
        return session

    async def read(self, session: ClientSession) -> None:
        """Execute the client's requests until the client ends the call or disconnects."""
        message, reopens = "the client ended its side of the stream", False
        try:
            async for request in self.requests:
                if session.is_closing:
                    return  # it has left its groups already, so that a registration now would never end
                self.sessions.touch(session)
                if request.WhichOneof("event") == "close":
                    session.has_left, message, reopens = True, "the client left", request.close.reopens
                    break
                await self._handle(session, request)
        except Exception as failure:
            self._error = translate_error(failure, "Connect")
        self.sessions.close(session, CloseReason.CLIENT_LEFT, message, reopens=reopens)

    async def responses(self, session: ClientSession) -> AsyncIterator[pb.ConnectResponse]:
        """Yield the events for the client until the session is closed."""
        while True:
            event = await session.outbox.next()
            if isinstance(event, SessionClosed) and self._error is not None:
                raise self._error
            yield _encode_event(event)
            if isinstance(event, SessionClosed):
                return

    async def _handle(self, session: ClientSession, request: pb.ConnectRequest) -> None:
        kind = request.WhichOneof("event")
        if kind == "hello":
            await self.sessions.update_hello(session, read(Hello, request.hello, room=request.hello.zone))
        elif kind == "command_result":
            self.sessions.on_command_result(session, request.command_result.command_id, request.command_result)
        elif kind == "register_requester":
            try:
                reply_to = await self.sessions.register_requester(session, request.register_requester.secret)
            except OrtooError as error:
                session.outbox.put(RequesterResult(request.request_id, error=error))
            else:
                session.outbox.put(RequesterResult(request.request_id, reply_to))
        elif kind is not None and kind.startswith(("register", "unregister")):
            group = getattr(request, kind).group
            try:
                members = await self._register(session, kind, request)
            except OrtooError as error:  # no variable keeps it: its traceback refers to this frame
                session.outbox.put(RegistrationResult(request.request_id, group, session.client_id, error))
            else:
                answer = RegistrationResult(request.request_id, group, session.client_id, members=members)
                session.outbox.put(answer)

    async def _register(self, session: ClientSession, kind: str, request: pb.ConnectRequest) -> GroupMembers | None:
        match kind:
            case "register_consumer":
                registration = request.register_consumer
                check_known(registration, "consume_type")
                requested = dataclasses.replace(
                    self.sessions.as_member(session),
                    subscriptions=decode_subscriptions(registration.subscriptions),
                    pushed=registration.consume_type == pb.CONSUME_TYPE_PUSH,
                    **consumer_options(registration),
                )
                was_bytes, size_bytes = self.request_memory[registration.group], registration.ByteSize()
                self.request_memory.set_size(registration.group, max(was_bytes, size_bytes))
                try:
                    members = await self.sessions.register_consumer(session, registration.group, requested)
                except BaseException:
                    self.request_memory.set_size(registration.group, was_bytes)
                    raise
                self.request_memory.set_size(registration.group, size_bytes)
                return members
            case "register_producer":
                await self.sessions.register_producer(session, request.register_producer.group)
            case "unregister_producer":
                self.sessions.unregister_producer(session, request.unregister_producer.group)
            case _:
                self.sessions.unregister_consumer(session, request.unregister_consumer.group)
                self.request_memory.set_size(request.unregister_consumer.group, 0)
        return None


def _encode_event(event: SessionEvent) -> pb.ConnectResponse:
    match event:
        case SessionOpened():
            return pb.ConnectResponse(opened=write(consumer_pb2.SessionOpened, event))
        case RegistrationResult():
            members = _encode_members(event.members) if event.members is not None else None
            registered = write(pb.Registered, event, failure=encode_failure(event.error), members=members)
            return pb.ConnectResponse(request_id=event.request_id, registered=registered)
        case RequesterResult():
            requester = pb.RequesterRegistered(reply_to=event.reply_to, failure=encode_failure(event.error))
            return pb.ConnectResponse(request_id=event.request_id, requester_registered=requester)
        case GroupMembers():
            return pb.ConnectResponse(members_changed=_encode_members(event))
        case ClientCommand():
            return pb.ConnectResponse(command=event.command)
        case SessionClosed():
            return pb.ConnectResponse(closed=write(consumer_pb2.SessionClosed, event))


def _encode_members(event: GroupMembers) -> pb.MembersChanged:
    """The group members, for clients that assign queues. The list has only topics that their user may see."""
    principal = PRINCIPAL.get()
    client_ids = assignable_client_ids(event.members)
    return write(
        pb.MembersChanged,
        event,
        client_ids=client_ids,
        member_topics=[
            pb.MemberTopics(topics=sorted(filter(principal.may_see, event.members[one].topics))) for one in client_ids
        ],
        zones=[event.members[one].room for one in client_ids],
        strategy=strategy_of(event.members),
    )
