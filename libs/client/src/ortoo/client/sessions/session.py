"""A client's session: identifies the client, registers its groups and receives their events."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Self

from ortoo.client import log_events
from ortoo.client.core.closed import ClientClosed
from ortoo.client.core.connection import Connection
from ortoo.client.core.reconnecting_session import ReconnectingSession
from ortoo.client.core.wire import LANGUAGE, client_version
from ortoo.client.requests.requester import Requester
from ortoo.client.sessions.commands import GroupMembership, run_command, take_reply
from ortoo.client.sessions.group_view import GroupView
from ortoo.common.errors import Conflict, NotFound, OrtooError
from ortoo.common.errors.status import error_of
from ortoo.common.groups.allocation import AllocationStrategy
from ortoo.common.grpc.enum_values import known_or
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.v1 import consumer_pb2, pull_pb2, session_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.v1.session_pb2_grpc import SessionServiceStub

_log = get_logger("session")


@dataclass(slots=True)
class _JoinedGroup:
    registration: session_pb2.RegisterConsumer
    member: GroupMembership
    registered: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Session(ReconnectingSession[session_pb2.ConnectRequest, session_pb2.ConnectResponse]):
    """The client's session with a snode, which holds its group memberships.

    It is opened when the first group is joined or the first request is sent. After a break it is reopened at the next
    snode with all groups and the registration for replies.
    """

    def __init__(self, connection: Connection, requester: Requester) -> None:
        """Nothing is sent before the first `join` or the first request of `requester`."""
        super().__init__(connection, lambda it: SessionServiceStub(it).Connect(), session_pb2.ConnectRequest)
        self.session_id = ""
        """Assigned by the server; empty while there is no session."""
        self.client_id = connection.client_id
        self._background = Background("session")
        self._groups: dict[str, _JoinedGroup] = {}
        self._is_needed = asyncio.Event()
        self._requester = requester
        self._requester.on_needed = self._on_requester_needed

    async def __aenter__(self) -> Self:
        await self._background.__aenter__()
        self._background.spawn("keep", self.run())
        return self

    async def __aexit__(self, *ended: Any) -> None:
        self._is_closing = True
        self._requester.close()
        try:
            if self.session_id:
                await self._close_session()
        finally:
            await self._background.__aexit__(*ended)

    async def join(self, registration: session_pb2.RegisterConsumer, member: GroupMembership) -> None:
        """Register as a member of a group until `leave`; returns when a snode has accepted the registration.

        Errors: Conflict when this client is in the group already, the refusal of the server, or ClientClosed.
        """
        if self._is_closing:
            raise ClientClosed
        if registration.group in self._groups:
            raise Conflict(
                f"this client is already a member of {registration.group!r}; connect another client", field="group"
            )
        joined = self._groups[registration.group] = _JoinedGroup(registration, member)
        self._is_needed.set()
        self._register(joined)
        try:
            await joined.registered
        except BaseException:
            self.leave(registration.group)  # the snode may have accepted it
            raise

    def update_registration(self, registration: session_pb2.RegisterConsumer) -> None:
        """Change the topics of a member."""
        joined = self._groups[registration.group]
        joined.registration = registration
        self._register(joined)

    def leave(self, group: str) -> None:
        """Unregister from a group; later sessions do not register it again."""
        if self._groups.pop(group, None) is not None:
            self._send(unregister_consumer=session_pb2.UnregisterConsumer(group=group))

    def reopen(self, session_id: str) -> None:
        """Replace the session with this id, because the client's calls reach a snode that does not have it.

        The snode behind an address changes when a load balancer gives the client another connection, while an open
        stream continues on the old one. The next session uses the new connection.
        """
        if session_id == self.session_id:
            self._send(close=consumer_pb2.CloseSession(reopens=True))

    def _on_requester_needed(self) -> None:
        self._is_needed.set()
        self._register_requester()

    def _register_requester(self) -> None:
        self._send(register_requester=session_pb2.RegisterRequester(secret=self._requester.secret))

    def _register(self, joined: _JoinedGroup) -> None:
        self._send(register_consumer=joined.registration)

    async def run(self) -> None:
        """Open the session when the first group is joined, and keep it open until it is closed."""
        await self._is_needed.wait()
        await super().run()

    def _send_opening(self) -> None:
        connection = self._connection
        hello = session_pb2.Hello(
            client_id=connection.client_id, language=LANGUAGE, client_version=client_version(), zone=connection.zone
        )
        self._send(hello=hello)
        if self._requester.is_needed:
            self._register_requester()
        for joined in self._groups.values():
            self._register(joined)

    def _on_stream_end(self) -> None:
        self.session_id = ""

    def _on_refused(self, error: OrtooError) -> bool:
        """Report the refusal to pending joins and to members; later joins are tried again."""
        self._requester.on_refused(error)
        for group, joined in list(self._groups.items()):
            if joined.registered.done():
                joined.member.on_refused(error)
                self._groups.pop(group)
            else:
                joined.registered.set_exception(error)
        return False

    def _on_response(self, response: session_pb2.ConnectResponse) -> bool:
        kind = response.WhichOneof("event")
        if kind == "opened":
            self.session_id, self.client_id = response.opened.session_id, response.opened.client_id
        elif kind == "registered":
            self._on_registered(response.registered)
        elif kind == "members_changed":
            self._on_members_changed(response.members_changed)
        elif kind == "requester_registered":
            self._on_requester_registered(response.requester_registered)
        elif kind == "command" and response.command.HasField("deliver_reply"):
            self._send(command_result=take_reply(response.command, self._requester))
        elif kind == "command":
            self._background.spawn("command", self._run_command(response.command))
        return self._on_session_event(response)

    def _on_registered(self, answer: session_pb2.Registered) -> None:
        joined = self._groups.get(answer.group)
        if joined is None:
            return
        if answer.HasField("failure"):
            error = error_of(answer.failure)
            may_end = isinstance(error, NotFound) or error.retry_after_ms > 0  # a disabled group may be enabled again
            if error.retriable or (joined.registered.done() and may_end):
                self._connection.retry_log.emit(
                    _log, log_events.REGISTRATION_REJECTED_RETRYING, error, group=answer.group
                )
                self._background.spawn("register again", self._retry_registration(joined))
            elif joined.registered.done():
                self._groups.pop(answer.group)
                joined.member.on_refused(error)
            else:
                joined.registered.set_exception(error)
            return
        self._on_members_changed(answer.members)
        if not joined.registered.done():
            joined.registered.set_result(None)

    def _on_requester_registered(self, answer: session_pb2.RequesterRegistered) -> None:
        if not answer.HasField("failure"):
            self._requester.on_registered(answer.reply_to)
        elif (error := error_of(answer.failure)).retriable:
            self._background.spawn("register requester again", self._retry_requester(error))
        else:
            self._requester.on_refused(error)

    async def _retry_requester(self, error: OrtooError) -> None:
        self._connection.retry_log.emit(_log, log_events.REGISTRATION_REJECTED_RETRYING, error, group="")
        await self._connection.clock.sleep(self._connection.backoff.max_s)
        self._register_requester()

    async def _retry_registration(self, joined: _JoinedGroup) -> None:
        await self._connection.clock.sleep(self._connection.backoff.max_s)
        if self._groups.get(joined.registration.group) is joined:
            self._register(joined)

    def _on_members_changed(self, news: session_pb2.MembersChanged) -> None:
        joined = self._groups.get(news.group)
        if joined is not None:
            joined.member.on_members_changed(_group_view_of(news))

    async def _run_command(self, command: session_pb2.Command) -> None:
        members = {group: joined.member for group, joined in self._groups.items()}
        result = await run_command(command, members, self._connection)
        self._send(command_result=result)


async def query_group_view(connection: Connection, group: str) -> GroupView:
    """Query the members of a group, for members without notifications. Errors: Unavailable."""
    request = pull_pb2.QueryMembersRequest(group=group)
    answer = await connection.call(ConsumerServiceStub, "QueryMembers", request)
    sharing = set(answer.client_ids)
    members = [member for member in answer.members if member.client_id in sharing]
    return GroupView(
        tuple(answer.client_ids),
        {it.client_id: frozenset(wanted.topic for wanted in it.subscriptions) for it in members},
        {it.client_id: it.zone for it in members},
        _strategy_of(group, answer.strategy),
    )


def _group_view_of(news: session_pb2.MembersChanged) -> GroupView:
    ids = tuple(news.client_ids)
    return GroupView(
        ids,
        {one: frozenset(it.topics) for one, it in zip(ids, news.member_topics, strict=False)}
        if news.member_topics
        else None,
        dict(zip(ids, news.zones, strict=False)),
        _strategy_of(news.group, news.strategy),
    )


def _strategy_of(group: str, number: int) -> AllocationStrategy:
    """The group's strategy. An unknown strategy, of a newer version, is logged and replaced by the default."""
    strategy = known_or(AllocationStrategy, number or AllocationStrategy.AVERAGELY, None)
    if strategy is None:
        _log.emit(log_events.ALLOCATION_STRATEGY_UNKNOWN, group=group, strategy=number)
        return AllocationStrategy.AVERAGELY
    return strategy
