"""The sessions of clients: registration, membership, notification, and end."""

import asyncio
import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Conflict, Invalid, NotFound, Overloaded, Unavailable
from ortoo.common.groups.requests import address_key, reply_address
from ortoo.common.grpc.limits.connections import address_of
from ortoo.common.logs.logger import get_logger
from ortoo.snode import log_events
from ortoo.snode.clients.locked_pulls import LockedPulls
from ortoo.snode.clients.session import (
    UNANSWERED_MAX,
    ClientCommand,
    ClientSession,
    GroupMembers,
    Hello,
)
from ortoo.snode.cluster.group_names import check_consumer_group
from ortoo.snode.cluster.routes import DeliveryMode
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.membership.consumer_groups import ConsumerGroups
from ortoo.snode.membership.fair_table import FairTable
from ortoo.snode.membership.group_members import CloseReason, GroupMember, merge_subscriptions
from ortoo.snode.membership.group_membership import PRODUCER_GROUP_PREFIX, REQUESTER_GROUP_PREFIX
from ortoo.snode.policy.principal import PRINCIPAL, owner_at
from ortoo.snode.push.outbox import SessionClosed, SessionOpened
from ortoo.snode.push.sessions import PushSessions
from ortoo.snode.topics import TopicComponents

SESSIONS_MAX = 25_000
GROUPS_MAX = 1_000
"""Maximum of groups in one session."""
TEXT_LENGTH_MAX = 255
CLOSE_TIMEOUT_S = 10.0
_log = get_logger("sessions")


class ClientSessions:
    """All open sessions of this snode, by id."""

    def __init__(
        self,
        runtime: Runtime,
        groups: ConsumerGroups,
        topics: TopicComponents,
        push_sessions: PushSessions,
        locked_pulls: LockedPulls,
    ) -> None:
        self.client_ids_changed = 0
        """Number of changes of a session's client id."""
        self._runtime = runtime
        self._groups = groups
        self._membership = groups.membership
        self._topics = topics
        self._push_sessions = push_sessions
        self._locked_pulls = locked_pulls
        self._sessions: FairTable[ClientSession] = FairTable(SESSIONS_MAX, "sessions are open")
        self._by_group: dict[str, dict[str, ClientSession]] = {}
        self._closing_until_s: dict[ClientSession, float] = {}
        groups.on_members_changed = self._on_members_changed

    def all(self) -> list[ClientSession]:
        """The open sessions."""
        return list(self._sessions.values())

    def get(self, session_id: str) -> ClientSession:
        """The session with this id. Errors: NotFound, Forbidden if it belongs to another user than the caller."""
        session = self._sessions.get(session_id)
        if session is None:
            raise NotFound(f"there is no session {session_id!r} at this snode; connect again", field="session_id")
        PRINCIPAL.get().check_owner(session.user, "session", "session_id")
        return session

    def find_open(self, session_id: str) -> ClientSession | None:
        """The open session with this id, for the snode's own calls."""
        return self._sessions.get(session_id)

    def find_by_client(self, client_id: str) -> ClientSession | None:
        """The newest session of a client at this snode."""
        found = [session for session in self._sessions.values() if session.client_id == client_id]
        return found[-1] if found else None

    def open(self, hello: Hello, peer: str) -> ClientSession:
        """Open a session for a client at the address `peer`. Errors: Invalid, Overloaded."""
        _check_hello(hello)
        now_s = self._runtime.clock.monotonic_s()
        named = self._runtime.randomness.id_text(), hello, peer, self._runtime.clock.now_ms(), now_s
        session = ClientSession(*named, user=PRINCIPAL.get().user)
        self._sessions.put(session.session_id, session, owner_at(address_of(peer)))
        self._send_opened(session)
        return session

    def touch(self, session: ClientSession) -> None:
        """Restart the session's timeout, because the client has sent a request."""
        session.last_active_s = self._runtime.clock.monotonic_s()

    async def update_hello(self, session: ClientSession, hello: Hello) -> None:
        """Replace the identity of the client. A new client id replaces the old one in all groups. Errors: Invalid."""
        _check_hello(hello)
        if hello == session.hello:
            return
        for group in (*session.consumers, *map(PRODUCER_GROUP_PREFIX.__add__, session.producers)):
            await self._membership.follow(group)
        members = dict(session.consumers)
        producers = list(session.producers)
        for group in (*members, *(PRODUCER_GROUP_PREFIX + one for one in producers)):
            check_owner(self._membership.members(group), hello.client_id)
        if hello.client_id != session.hello.client_id:
            self.client_ids_changed += 1
            _log.emit(log_events.SESSION_CLIENT_ID_CHANGED, was=session.client_id, now=hello.client_id)
            for group in members:
                self._leave_consumer(session, group, CloseReason.CLIENT_LEFT, "the client changed its id")
            self._leave_producers(session)
            self._leave_requester(session)
        session.hello = hello
        if session.reply_to:
            self._join_requester(session)
        for group, member in members.items():
            now = self.as_member(session)
            named = {name: getattr(now, name) for name in ("client_id", "room", "language", "client_version")}
            self._join_consumer(session, group, dataclasses.replace(member, **named))
        for group in producers:
            self._join_producer(session, group)
        self._send_opened(session)

    async def register_producer(self, session: ClientSession, group: str) -> None:
        """Add the client to a group of producers. Errors: Invalid, Overloaded, Forbidden (another user's client id)."""
        check_group_name(group, "group")
        self._check_group_count(session)
        await self._follow_open(session, PRODUCER_GROUP_PREFIX + group)
        check_owner(self._membership.members(PRODUCER_GROUP_PREFIX + group), session.client_id)
        self._join_producer(session, group)

    async def register_requester(self, session: ClientSession, secret: bytes) -> str:
        """Register the client for replies to its requests; returns its address. Errors: Invalid, Forbidden."""
        address = reply_address(session.client_id, secret)
        await self._follow_open(session, REQUESTER_GROUP_PREFIX + address_key(address))
        check_owner(self._membership.members(REQUESTER_GROUP_PREFIX + address_key(address)), session.client_id)
        if address != session.reply_to:
            self._leave_requester(session)
        session.reply_to = address
        self._join_requester(session)
        return address

    async def register_consumer(self, session: ClientSession, group: str, requested: GroupMember) -> GroupMembers:
        """Add the client to a group of consumers as `requested`, or change its membership; returns all group members.

        Errors: Invalid, NotFound (topic), Conflict if the group may not consume, Forbidden (broadcast is disabled).
        """
        check_consumer_group(group)
        self._check_group_count(session)
        await self._membership.follow(group)
        check_owner(self._membership.members(group), session.client_id)
        registered = session.consumers.get(group)
        subscriptions = merge_subscriptions(
            registered.subscriptions if registered is not None else (), requested.subscriptions
        )
        filters = await self._push_sessions.compile_filters(group, subscriptions, "subscriptions")
        await self._topics.group_settings.check(group, broadcast=requested.broadcast)
        if not requested.broadcast:
            await self._topics.delivery_modes.ensure_mode(group, filters, DeliveryMode.OFFSETS)
        if session.is_closing:
            raise Conflict("the session is closed")
        push = self._push_sessions.find(group, session.client_id)
        is_attached = push is not None and push.member_session_id == session.session_id
        if push is not None and is_attached:
            push.subscribe(filters)
        member = dataclasses.replace(
            requested,
            subscriptions=subscriptions,
            pushed=requested.pushed or is_attached,
            active=is_attached or not requested.pushed,
            since_ms=registered.since_ms if registered is not None else self._runtime.clock.now_ms(),
        )
        self._join_consumer(session, group, member)
        return self.members(group)

    def unregister_producer(self, session: ClientSession, group: str) -> None:
        """Remove the client from a group of producers; no effect if it is not in the group."""
        if group in session.producers:
            session.producers.pop(group, None)
            self._membership.leave(PRODUCER_GROUP_PREFIX + group, session.client_id, session.session_id)

    def unregister_consumer(self, session: ClientSession, group: str) -> None:
        """Remove the client from a group of consumers; no effect if it is not in the group."""
        push = self._push_sessions.find(group, session.client_id)
        if push is not None:
            push.has_left = True
        self._leave_consumer(session, group, CloseReason.CLIENT_LEFT, "the client left the group")

    async def follow(self, group: str) -> GroupMembers:
        """The current group members of a group at all snodes."""
        await self._membership.follow(group)
        return self.members(group)

    def members(self, group: str) -> GroupMembers:
        """The current group members of a group."""
        return GroupMembers(group, self._membership.generation(group), dict(self._membership.members(group)))

    async def command(self, session: ClientSession, command_id: str, command: Any, timeout_s: float) -> Any:
        """Send a command to a client; returns its answer.

        Errors: Overloaded if too many events wait for the client, Unavailable if the client does not answer in time.
        """
        if len(session.commands) >= UNANSWERED_MAX:
            raise Overloaded(f"client {session.client_id} has not answered {UNANSWERED_MAX} commands; retry later")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        event = ClientCommand(command)
        session.outbox.put(event)
        session.commands[command_id] = answer
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait([answer])
        except TimeoutError:
            raise Unavailable(f"client {session.client_id} did not answer within {timeout_s:.1f} s") from None
        finally:
            session.commands.pop(command_id, None)
            if not answer.done() or answer.cancelled():
                session.outbox.discard(event)
        if answer.cancelled():
            raise Unavailable(f"client {session.client_id} disconnected before it answered")
        return answer.result()

    def on_command_result(self, session: ClientSession, command_id: str, result: Any) -> None:
        """Record a client's answer to a command; a late answer is dropped."""
        answer = session.commands.get(command_id)
        if answer is not None and not answer.done():
            answer.set_result(result)

    def close(self, session: ClientSession, reason: CloseReason, message: str, *, reopens: bool = False) -> None:
        """End a session; no effect if it is already ending. Every session ends by this method.

        `reopens` = the client is expected to open another session at once. Until then it stays a member of its consumer
        groups, so that its queues go to no other member.
        """
        if session.is_closing:
            return
        session.is_closing = True
        self._sessions.remove(session.session_id)
        for group in list(session.consumers):
            self._leave_consumer(session, group, reason, message, reopens=reopens)
        self._leave_producers(session)
        self._leave_requester(session)
        has_died = reason is CloseReason.EXPIRED or (reason is CloseReason.CLIENT_LEFT and not session.has_left)
        self._locked_pulls.end_session(session, is_interrupted=has_died)
        for command in session.commands.values():
            command.cancel()
        session.outbox.put(SessionClosed(reason, message))
        self._closing_until_s[session] = self._runtime.clock.monotonic_s() + CLOSE_TIMEOUT_S

    def on_call_ended(self, session: ClientSession) -> None:
        """Record that the Connect call of a closed session has ended, so that `sweep` does not cancel it."""
        self._closing_until_s.pop(session, None)

    def close_all(self, reason: CloseReason, message: str) -> None:
        """End every session."""
        for session in self.all():
            self.close(session, reason, message)

    async def sweep(self) -> None:
        """End the sessions of silent clients; called about once a second."""
        now_s = self._runtime.clock.monotonic_s()
        for session in self.all():
            expiry_s = max(self._push_sessions.expiry_s, session.expiry_s)
            if now_s - session.last_active_s > expiry_s:
                self.close(session, CloseReason.EXPIRED, f"the client sent nothing for {expiry_s:.0f} s")
        for session, deadline_s in list(self._closing_until_s.items()):
            if deadline_s < now_s:
                del self._closing_until_s[session]
                if session.call is not None:
                    session.call.cancel()

    def _send_opened(self, session: ClientSession) -> None:
        session.expiry_s = self._push_sessions.expiry_s
        expiry_ms, interval_ms = int(session.expiry_s * 1000), self._push_sessions.heartbeat_interval_ms
        session.outbox.put(SessionOpened(session.session_id, interval_ms, expiry_ms, session.client_id))

    def as_member(self, session: ClientSession) -> GroupMember:
        """The client of a session in the form of a group member without queues."""
        hello, runtime = session.hello, self._runtime
        return GroupMember(
            session.client_id,
            session.session_id,
            runtime.settings.name,
            runtime.incarnation,
            pushed=False,
            active=False,
            room=hello.room,
            language=hello.language,
            client_version=hello.client_version,
            peer=session.peer,
            since_ms=session.since_ms,
            user=session.user,
        )

    async def _follow_open(self, session: ClientSession, group: str) -> None:
        """Wait for the members of a group. Errors: Conflict if the session was closed meanwhile."""
        await self._membership.follow(group)
        if session.is_closing:
            raise Conflict("the session is closed")

    def _check_group_count(self, session: ClientSession) -> None:
        if len(session.consumers) + len(session.producers) >= GROUPS_MAX:
            raise Overloaded(f"a session may be in {GROUPS_MAX} groups; open another session", field="group")

    def _join_producer(self, session: ClientSession, group: str) -> None:
        session.producers[group] = None
        self._membership.join(PRODUCER_GROUP_PREFIX + group, self.as_member(session))

    def _leave_producers(self, session: ClientSession) -> None:
        for group in list(session.producers):
            self.unregister_producer(session, group)

    def _join_requester(self, session: ClientSession) -> None:
        self._membership.join(REQUESTER_GROUP_PREFIX + address_key(session.reply_to), self.as_member(session))

    def _leave_requester(self, session: ClientSession) -> None:
        if session.reply_to:
            group = REQUESTER_GROUP_PREFIX + address_key(session.reply_to)
            self._membership.leave(group, session.client_id, session.session_id)

    def _join_consumer(self, session: ClientSession, group: str, member: GroupMember) -> None:
        session.consumers[group] = member
        self._by_group.setdefault(group, {})[session.session_id] = session
        self._membership.join(group, member)

    def _leave_consumer(
        self, session: ClientSession, group: str, reason: CloseReason, message: str, *, reopens: bool = False
    ) -> None:
        if session.consumers.pop(group, None) is None:
            return
        watching = self._by_group[group]
        del watching[session.session_id]
        if not watching:
            del self._by_group[group]
        push = self._push_sessions.find(group, session.client_id)
        if push is not None and push.member_session_id == session.session_id:
            push.has_left |= session.has_left
            self._push_sessions.start_close(push, reason, message)
        leave = partial(self._membership.leave, group, session.client_id, session.session_id)
        if reopens:
            self._groups.leave_later(leave, self._runtime.background)
        else:
            leave()

    def _on_members_changed(self, group: str, version: int, members: Mapping[str, GroupMember]) -> None:
        notify = self._topics.group_settings.get(group).notify_members_changed
        for session in list(self._by_group.get(group, {}).values()):
            member = members.get(session.client_id)
            if member is not None and member.session_id != session.session_id:
                self.close(
                    session,
                    CloseReason.REPLACED,
                    f"another session of client {session.client_id} has replaced this one; "
                    "give each client a unique id",
                )
            elif notify:
                session.outbox.put(GroupMembers(group, version, dict(members)))


def check_owner(members: Mapping[str, GroupMember], client_id: str) -> None:
    """Refuse to replace another user's client in a group. Errors: Forbidden."""
    member = members.get(client_id)
    if member is not None:
        PRINCIPAL.get().check_owner(member.user, "client id", "client_id")


def _check_hello(hello: Hello) -> None:
    for name in ("client_id", "language", "client_version", "room"):
        length = len(getattr(hello, name))
        if length > TEXT_LENGTH_MAX:
            raise Invalid(f"{length} characters; give at most {TEXT_LENGTH_MAX}", field=f"hello.{name}")
