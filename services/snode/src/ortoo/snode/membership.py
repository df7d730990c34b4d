"""Who is in which group. One snode keeps it in memory; several will share it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ortoo.common.clock import Clock


@dataclass(frozen=True, slots=True)
class Member:
    """One session in a group."""

    member_id: str
    client_id: str
    topics: frozenset[str]


class Membership(Protocol):
    """The members of all groups. Every change gives the group a higher generation and is told to the listener."""

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the group's name after each change."""

    async def join(self, group: str, member: Member) -> None:
        """Add a member, or replace it."""

    async def leave(self, group: str, member_id: str) -> None:
        """Take a member away; nothing happens if it is gone already."""

    def members(self, group: str) -> Mapping[str, Member]:
        """The members now, by id."""

    def generation(self, group: str) -> int:
        """The number of the group's present state."""

    def advance(self, group: str) -> None:
        """Give the group a higher generation because something else has changed, such as a topic's queues."""


class LocalMembership:
    """Membership of a cluster with one snode."""

    def __init__(self, clock: Clock) -> None:
        """Generations begin at wall-clock milliseconds, so that they grow over restarts."""
        self._clock = clock
        self._groups: dict[str, dict[str, Member]] = {}
        self._generations: dict[str, int] = {}
        self._last = 0
        self._listener: Callable[[str], None] = lambda group: None

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the group's name after each change."""
        self._listener = listener

    async def join(self, group: str, member: Member) -> None:
        """Add a member, or replace it."""
        members = self._groups.setdefault(group, {})
        if members.get(member.member_id) != member:
            members[member.member_id] = member
            self.advance(group)

    async def leave(self, group: str, member_id: str) -> None:
        """Take a member away."""
        members = self._groups.get(group, {})
        if members.pop(member_id, None) is None:
            return
        self.advance(group)
        if not members:
            del self._groups[group]
            del self._generations[group]

    def members(self, group: str) -> Mapping[str, Member]:
        """The members now."""
        return self._groups.get(group, {})

    def generation(self, group: str) -> int:
        """The number of the group's present state."""
        return self._generations.get(group, 0)

    def advance(self, group: str) -> None:
        """Give the group a higher generation."""
        # One count for all groups: a group that empties and fills again within a millisecond must not go back.
        self._last = max(self._last + 1, self._clock.now_ms())
        self._generations[group] = self._last
        self._listener(group)
