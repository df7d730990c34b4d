"""The clients of all snodes: their identity, their queues, and commands, which are forwarded to the client's snode."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ortoo.common.errors import NotFound, Unavailable
from ortoo.snode.clients.sessions import ClientSessions
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.membership.group_members import GroupMember
from ortoo.snode.membership.group_membership import (
    POP_GROUP_PREFIX,
    PRODUCER_GROUP_PREFIX,
    REQUESTER_GROUP_PREFIX,
    Membership,
)
from ortoo.snode.push.session import PushSession
from ortoo.snode.push.sessions import PushSessions


@dataclass(slots=True)
class ClientEntry:
    """One client and the groups in which it is."""

    member: GroupMember
    """The membership in one of its groups, which has the identity of the client."""
    producer_groups: list[str] = field(default_factory=list)
    consumer_groups: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OwnedQueue:
    """A queue that a push session consumes, with the positions that this snode knows."""

    group: str
    queue: Queue
    offset: int
    """The acknowledged offset; -1 = none yet."""
    next_offset: int
    """The offset to be sent next."""
    held_messages: int
    held_bytes: int
    locked: bool
    waiting_ms: int = 0
    """The time for which an acknowledgement has been due; 0 = none is due."""


@dataclass(slots=True, eq=False)
class ClientDirectory:
    """Finds clients of this snode by their sessions, and clients of other snodes by the shared membership."""

    runtime: Runtime
    directory: DirectoryCache
    membership: Membership
    sessions: ClientSessions
    push_sessions: PushSessions

    async def clients(self, group: str = "") -> list[ClientEntry]:
        """The clients in `group`, sorted by client id and session id; if it is empty, all clients."""
        found: dict[tuple[str, str], ClientEntry] = {}
        async for part in self.membership.read_all():
            for name, member in part:
                entry = found.setdefault((member.client_id, member.session_id), ClientEntry(member))
                if name.startswith(REQUESTER_GROUP_PREFIX):
                    continue
                group_name = name.removeprefix(PRODUCER_GROUP_PREFIX).removeprefix(POP_GROUP_PREFIX)
                is_producer = name.startswith(PRODUCER_GROUP_PREFIX)
                groups = entry.producer_groups if is_producer else entry.consumer_groups
                if group_name not in groups:  # a record that changes during the reading may be read twice
                    groups.append(group_name)
        for entry in found.values():
            entry.producer_groups.sort()
            entry.consumer_groups.sort()
        for session in self.sessions.all():
            found.setdefault((session.client_id, session.session_id), ClientEntry(self.sessions.as_member(session)))
        return [
            found[key]
            for key in sorted(found)
            if not group or group in found[key].producer_groups or group in found[key].consumer_groups
        ]

    async def consumers(self, group: str) -> list[GroupMember]:
        """The consumers of a group, sorted by client id, with those that pop."""
        names = (group, POP_GROUP_PREFIX + group)
        for name in names:
            await self.membership.follow(name)
        members = [member for name in names for member in self.membership.members(name).values()]
        return sorted(members, key=lambda member: member.client_id)

    async def subscribed_groups(self, topic: str) -> list[str]:
        """The groups that have a consumer with a subscription to this topic."""
        found: set[str] = set()
        async for part in self.membership.read_all():
            found |= {
                name.removeprefix(POP_GROUP_PREFIX)
                for name, member in part
                if not name.startswith(PRODUCER_GROUP_PREFIX) and topic in member.topics
            }
        return sorted(found)

    async def find(self, client_id: str) -> ClientEntry:
        """The client with this id. Errors: NotFound."""
        for entry in await self.clients():
            if entry.member.client_id == client_id:
                return entry
        raise NotFound(
            f"no client {client_id!r} is connected; AdminService/ListClients lists the connected clients",
            field="client_id",
        )

    def is_local(self, entry: ClientEntry) -> bool:
        """Whether the client is connected to this snode."""
        return entry.member.snode == self.runtime.settings.name

    def address_of(self, entry: ClientEntry) -> str:
        """The address of the snode to which the client is connected. Errors: Unavailable if it is unreachable."""
        for snode in self.directory.snodes():
            if snode.name == entry.member.snode and snode.alive:
                return snode.cluster_address or snode.address
        raise Unavailable(f"snode {entry.member.snode} of client {entry.member.client_id} is unreachable")

    def queues(self, client_id: str, group: str = "") -> list[OwnedQueue]:
        """The queues of a client's push sessions at this snode, in `group` or in all groups."""
        return [
            owned
            for push in self.push_sessions.all()
            if push.client_id == client_id and group in ("", push.group)
            for owned in _owned_queues(push, self.runtime.clock.monotonic_s())
        ]

    async def call(self, client_id: str, command_id: str, command: Any, timeout_s: float) -> Any:
        """Send a command to a client of this snode; returns its answer.

        Errors: NotFound if the client has no session here, Unavailable if it does not answer.
        """
        session = self.sessions.find_by_client(client_id)
        if session is None:
            raise NotFound(
                f"client {client_id} has no session here that accepts commands; "
                "the client must connect through SessionService",
                field="client_id",
            )
        return await self.sessions.command(session, command_id, command, timeout_s)


def _owned_queues(push: PushSession, now_s: float) -> Iterable[OwnedQueue]:
    for feeder in push.feeders.values():
        cursor = feeder.cursor
        committed = -1 if cursor.committed_offset is None else cursor.committed_offset
        yield OwnedQueue(
            push.group,
            cursor.queue,
            committed,
            cursor.sent_offset,
            cursor.unacknowledged_count,
            cursor.unacknowledged_bytes,
            feeder.fence > 0,
            0 if cursor.waiting_since_s is None else int((now_s - cursor.waiting_since_s) * 1000),
        )
