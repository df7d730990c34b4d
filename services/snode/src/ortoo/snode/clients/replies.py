"""Delivers replies to the sessions of their requesters. A reply is not stored."""

from dataclasses import dataclass
from typing import Any

from ortoo.common.errors import Unavailable
from ortoo.common.groups.requests import address_key
from ortoo.snode.clients.sessions import ClientSessions
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.membership.group_members import GroupMember
from ortoo.snode.membership.group_membership import REQUESTER_GROUP_PREFIX, Membership

REPLY_TIMEOUT_S = 3.0
"""Time in which a requester confirms a reply."""


@dataclass(slots=True, eq=False)
class ReplyRouter:
    """Finds the session of a requester by its address, at this snode or at another one."""

    runtime: Runtime
    directory: DirectoryCache
    membership: Membership
    sessions: ClientSessions
    delivered: int = 0
    """Number of replies that requesters of this snode have confirmed."""

    async def find(self, reply_to: str) -> GroupMember:
        """The requester with this address. Errors: Invalid for a malformed address, Unavailable if not connected."""
        group = REQUESTER_GROUP_PREFIX + address_key(reply_to)
        await self.membership.follow(group)
        members = self.membership.members(group)
        if not members:
            raise _not_connected(reply_to)
        return max(members.values(), key=lambda member: member.since_ms)

    def other_snode(self, requester: GroupMember) -> str:
        """The address of the snode that has the requester; empty if it is this snode. Errors: Unavailable."""
        if requester.snode == self.runtime.settings.name:
            return ""
        for snode in self.directory.snodes():
            if snode.name == requester.snode and snode.alive:
                return snode.cluster_address or snode.address
        raise Unavailable(f"snode {requester.snode} of requester {requester.client_id} is unreachable; retry")

    async def deliver(self, requester: GroupMember, command_id: str, command: Any) -> Any:
        """Send a reply to a requester of this snode as a command; returns the requester's answer.

        Errors: Unavailable if the requester does not answer, Overloaded.
        """
        session = self.sessions.find_open(requester.session_id)
        if session is None:
            raise _not_connected(requester.client_id)
        answer = await self.sessions.command(session, command_id, command, REPLY_TIMEOUT_S)
        self.delivered += 1
        return answer


def _not_connected(requester: str) -> Unavailable:
    return Unavailable(
        f"the requester {requester[:300]} is not connected to a snode now; retry until the request's timeout",
        field="reply_to",
    )
