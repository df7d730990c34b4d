"""SessionService: the two directions of one Connect call."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.errors.status import failure_of
from ortoo.common.process.background import Background
from ortoo.snode.clients.session import (
    ClientSession,
    CommandSent,
    GroupMembers,
    Hello,
    RegistrationAnswer,
    SessionEvent,
)
from ortoo.snode.clients.sessions import ClientSessions, refused
from ortoo.snode.membership.members import CloseReason
from ortoo.snode.push.outbox import Closed, Opened
from ortoo.snode.rpc.members import consumer_wish, members_changed
from ortoo.snode.rpc.requests import read_failed
from ortoo.v1 import consumer_pb2, session_pb2, session_pb2_grpc

NAME = session_pb2.DESCRIPTOR.services_by_name["SessionService"].full_name
Context = grpc.aio.ServicerContext[Any, Any]


class SessionService(session_pb2_grpc.SessionServiceServicer):
    """Sessions."""

    def __init__(self, sessions: ClientSessions, background: Background) -> None:
        self._sessions = sessions
        self._background = background

    async def Connect(
        self, request_iterator: AsyncIterator[session_pb2.ConnectRequest], context: Context
    ) -> AsyncIterator[session_pb2.ConnectResponse]:
        """A session."""
        call = ConnectCall(self._sessions, request_iterator)
        session = await call.open(context.peer())
        session.call = asyncio.current_task()
        reading = self._background.spawn("connect", call.read(session))
        try:
            async for response in call.responses(session):
                yield response
        finally:
            reading.cancel()
            self._sessions.close(session, CloseReason.CLIENT_LEFT, "the connection is gone")
            self._sessions.ended(session)


class ConnectCall:
    """Joins a stream of requests and a session."""

    def __init__(self, sessions: ClientSessions, requests: AsyncIterator[session_pb2.ConnectRequest]) -> None:
        self._sessions = sessions
        self._requests = requests
        self._error: OrtooError | None = None

    async def open(self, peer: str) -> ClientSession:
        """Read the first request, which opens the session. Errors: Invalid."""
        async for request in self._requests:
            if request.WhichOneof("event") != "hello":
                break
            return self._sessions.open(_hello(request.hello), peer)
        raise Invalid("the first request of Connect must be `hello`", field="hello")

    async def read(self, session: ClientSession) -> None:
        """Do what the client asks until it leaves or breaks off."""
        message = "the client ended its side of the stream"
        try:
            async for request in self._requests:
                self._sessions.heard(session)
                if request.WhichOneof("event") == "close":
                    message = "the client left"
                    break
                await self._act(session, request)
        except Exception as failure:
            self._error = read_failed(failure, "Connect")
        self._sessions.close(session, CloseReason.CLIENT_LEFT, message)

    async def responses(self, session: ClientSession) -> AsyncIterator[session_pb2.ConnectResponse]:
        """Everything for the client, until the session is closed."""
        while True:
            event = await session.outbox.next()
            if isinstance(event, Closed) and self._error is not None:
                raise self._error
            yield _response(event)
            if isinstance(event, Closed):
                return

    async def _act(self, session: ClientSession, request: session_pb2.ConnectRequest) -> None:
        kind = request.WhichOneof("event")
        if kind == "hello":
            self._sessions.rename(session, _hello(request.hello))
        elif kind == "command_result":
            self._sessions.answered(session, request.command_result.command_id, request.command_result)
        elif kind is not None and kind.startswith(("register", "unregister")):
            group = getattr(request, kind).group
            try:
                members = await self._register(session, kind, request)
            except OrtooError as error:
                session.outbox.put(refused(request.request_id, group, session, error))
            else:
                answer = RegistrationAnswer(request.request_id, group, session.client_id, members=members)
                session.outbox.put(answer)

    async def _register(
        self, session: ClientSession, kind: str, request: session_pb2.ConnectRequest
    ) -> GroupMembers | None:
        if kind == "register_consumer":
            return await self._sessions.register_consumer(session, consumer_wish(request.register_consumer))
        if kind == "register_producer":
            self._sessions.register_producer(session, request.register_producer.group)
        elif kind == "unregister_producer":
            self._sessions.unregister_producer(session, request.unregister_producer.group)
        else:
            self._sessions.unregister_consumer(session, request.unregister_consumer.group)
        return None


def _hello(hello: session_pb2.Hello) -> Hello:
    return Hello(hello.client_id, hello.language, hello.client_version, hello.room)


def _response(event: SessionEvent) -> session_pb2.ConnectResponse:
    match event:
        case Opened():
            opened = consumer_pb2.SessionOpened(
                session_id=event.session_id,
                heartbeat_interval_ms=event.heartbeat_interval_ms,
                expiry_ms=event.expiry_ms,
                client_id=event.client_id,
            )
            return session_pb2.ConnectResponse(opened=opened)
        case RegistrationAnswer():
            return session_pb2.ConnectResponse(request_id=event.request_id, registered=_registered(event))
        case GroupMembers():
            return session_pb2.ConnectResponse(members_changed=members_changed(event))
        case CommandSent():
            return session_pb2.ConnectResponse(command=event.command)
        case Closed():
            closed = consumer_pb2.SessionClosed(reason=event.reason.value, message=event.message)  # type: ignore[arg-type]
            return session_pb2.ConnectResponse(closed=closed)


def _registered(answer: RegistrationAnswer) -> session_pb2.Registered:
    return session_pb2.Registered(
        group=answer.group,
        failure=failure_of(answer.error) if answer.error is not None else None,
        client_id=answer.client_id,
        members=members_changed(answer.members) if answer.members is not None else None,
    )
