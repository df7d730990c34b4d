"""Who is in which group. One snode keeps it in memory; several share it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ortoo.common.process.clock import Clock
from ortoo.snode.membership.members import Member

PRODUCERS = "producers/"
"""What the names of groups of producers begin with here; no group of consumers can be called so."""


class Membership(Protocol):
    """The members of all groups. Every change gives the group a higher generation and is told to the listener."""

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the group's name after each change."""

    def join(self, group: str, member: Member) -> None:
        """Add a member of this snode, or change it; one with the same client id is replaced wherever it is."""

    def leave(self, group: str, client_id: str, session_id: str) -> None:
        """Take a member of this snode away; nothing happens if the client id is another session's by now."""

    def members(self, group: str) -> Mapping[str, Member]:
        """The members now, by client id."""

    def groups(self) -> Iterable[str]:
        """Groups with members."""

    def generation(self, group: str) -> int:
        """The number of the group's present state."""

    def advance(self, group: str) -> int:
        """Give the group a higher generation because something else has changed, such as a topic's queues."""


@dataclass(slots=True, eq=False)
class Generations:
    """One count for all groups, from wall-clock milliseconds on, so that it grows over restarts.

    Begin at the time.
    """

    clock: Clock
    _last: int = field(default=0, init=False)

    def next(self) -> int:
        """A number higher than all before."""
        self._last = max(self._last + 1, self.clock.now_ms())
        return self._last


class LocalMembership:
    """Membership of a cluster with one snode."""

    def __init__(self, clock: Clock) -> None:
        """Begin without groups."""
        self._groups: dict[str, dict[str, Member]] = {}
        self._versions: dict[str, int] = {}
        self._generations = Generations(clock)
        self._listener: Callable[[str], None] = lambda group: None

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the group's name after each change."""
        self._listener = listener

    def join(self, group: str, member: Member) -> None:
        """Add a member, or change it."""
        members = self._groups.setdefault(group, {})
        if members.get(member.client_id) != member:
            members[member.client_id] = member
            self.advance(group)

    def leave(self, group: str, client_id: str, session_id: str) -> None:
        """Take a member away."""
        members = self._groups.get(group, {})
        member = members.get(client_id)
        if member is None or member.session_id != session_id:
            return
        del members[client_id]
        self.advance(group)
        if not members:
            del self._groups[group]
            del self._versions[group]

    def members(self, group: str) -> Mapping[str, Member]:
        """The members now."""
        return self._groups.get(group, {})

    def groups(self) -> Iterable[str]:
        """Groups with members."""
        return list(self._groups)

    def generation(self, group: str) -> int:
        """The number of the group's present state."""
        return self._versions.get(group, 0)

    def advance(self, group: str) -> int:
        """Give the group a higher generation."""
        generation = self._generations.next()
        if group in self._groups:
            self._versions[group] = generation
        self._listener(group)
        return generation
