"""The members of groups. A single snode keeps them in memory; several share them through `MembershipStore`."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from ortoo.common.process.clock import Clock
from ortoo.common.process.long_work import in_slices
from ortoo.snode.membership.group_members import GroupMember

PRODUCER_GROUP_PREFIX = "producers/"
"""Prefix of the names of producer groups in the membership. No consumer group can have this prefix."""
POP_GROUP_PREFIX = "pops/"
"""Prefix under which the popping consumers of a group are listed. No consumer group can have this prefix."""

REQUESTER_GROUP_PREFIX = "requesters/"
"""Prefix under which the session of a requester is listed by its address. No consumer group can have this prefix."""


class Membership:
    """The members of all groups, for a cluster with one snode.

    Every change gives the group a higher generation and notifies the listener.
    """

    def __init__(self, clock: Clock) -> None:
        """Start without groups."""
        self._clock = clock
        self._last_generation = 0
        self._generations: dict[str, int] = {}
        self._members: dict[str, dict[str, GroupMember]] = {}
        self.on_change: Callable[[str], None] = lambda group: None
        """Called with the group's name after each change."""

    def join(self, group: str, member: GroupMember) -> None:
        """Add a member of this snode, or change it. It replaces a member with the same client id."""
        if self.members(group).get(member.client_id) != member:
            self._put(group, member)

    def leave(self, group: str, client_id: str, session_id: str) -> None:
        """Remove a member; no effect if another session uses the client id now."""
        if self._is_current_session(group, client_id, session_id):
            self._remove(group, client_id)

    def _is_current_session(self, group: str, client_id: str, session_id: str) -> bool:
        member = self.members(group).get(client_id)
        return member is not None and member.session_id == session_id

    def members(self, group: str) -> Mapping[str, GroupMember]:
        """The current members of a group, by client id."""
        return self._members.get(group, {})

    def groups(self) -> Iterable[str]:
        """The groups that have members."""
        return list(self._members)

    async def follow(self, group: str) -> None:
        """Wait until `members` has the members of a group at all snodes. A single snode has them always."""

    def is_known(self, group: str) -> bool:
        """Whether `follow` would not wait."""
        del group
        return True

    def is_complete(self, group: str) -> bool:
        """Whether `members` has all members of a group, as far as they can be known now."""
        del group
        return True

    async def read_all(self) -> AsyncIterator[list[tuple[str, GroupMember]]]:
        """The members of all groups of the cluster, each with its group, in parts between which they may change."""
        known = [(group, member) for group in self.groups() for member in self.members(group).values()]
        async for part in in_slices(known, self._clock):
            yield part

    def generation(self, group: str) -> int:
        """The generation of the group; 0 if it has no members."""
        return self._generations.get(group, 0)

    def advance_generation(self, group: str) -> int:
        """Give a group a higher generation, because its members or the queues of its topics have changed; returns it.

        Invariant: a generation of a group is used once, so an owner with an older one is always recognized.
        All groups have one counter. It starts from the clock's milliseconds, so that it also grows over restarts.
        """
        generation = self._last_generation = self._generations[group] = max(
            self._last_generation + 1, self._clock.now_ms()
        )
        self.on_change(group)
        if group not in self._members:
            del self._generations[group]
        return generation

    def _put(self, group: str, member: GroupMember) -> None:
        self._members.setdefault(group, {})[member.client_id] = member
        self.advance_generation(group)

    def _remove(self, group: str, client_id: str) -> None:
        members = self._members[group]
        del members[client_id]
        if not members:
            del self._members[group]
        self.advance_generation(group)
