"""Who is in which group. One snode keeps it in memory; several share it, and `MembershipStore` moves it to and fro."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from ortoo.common.process.clock import Clock
from ortoo.snode.membership.members import Member

PRODUCERS = "producers/"
"""What the names of groups of producers begin with here; no group of consumers can be called so."""


class Membership:
    """The members of all groups, as long as this snode is the only one.

    Every change gives the group a higher generation and is told to the listener.
    """

    def __init__(self, clock: Clock) -> None:
        """Begin without groups."""
        self._clock = clock
        self._last = 0
        self._versions: dict[str, int] = {}
        self._own: dict[str, dict[str, Member]] = {}
        self.on_change: Callable[[str], None] = lambda group: None
        """Called with the group's name after each change."""

    def join(self, group: str, member: Member) -> None:
        """Add a member of this snode, or change it; one with the same client id is replaced wherever it is."""
        members = self._own.setdefault(group, {})
        if members.get(member.client_id) != member:
            members[member.client_id] = member
            self.advance(group)

    def leave(self, group: str, client_id: str, session_id: str) -> None:
        """Take a member of this snode away; nothing happens if the client id is another session's by now."""
        if self._is_here(group, client_id, session_id):
            members = self._own[group]
            del members[client_id]
            if not members:
                del self._own[group]
            self.advance(group)

    def _is_here(self, group: str, client_id: str, session_id: str) -> bool:
        member = self._own.get(group, {}).get(client_id)
        return member is not None and member.session_id == session_id

    def members(self, group: str) -> Mapping[str, Member]:
        """The members now, by client id."""
        return self._own.get(group, {})

    def groups(self) -> Iterable[str]:
        """Groups with members."""
        return list(self._own)

    def generation(self, group: str) -> int:
        """The number of the group's present state; 0 when nobody is in it."""
        return self._versions.get(group, 0)

    def advance(self, group: str) -> int:
        """Give the group a higher generation, also because something else has changed, such as a topic's queues.

        There is one count for all groups, from wall-clock milliseconds on, so that it grows over restarts.
        """
        generation = self._last = self._versions[group] = max(self._last + 1, self._clock.now_ms())
        self.on_change(group)
        if self._is_empty(group):
            del self._versions[group]
        return generation

    def _is_empty(self, group: str) -> bool:
        return not self._own.get(group)


Key = tuple[str, str]
"""(group, client id)."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A member as the shared store has it; a higher number is the later word about its client id."""

    number: int
    member: Member


class SharedMembership(Membership):
    """The snode's own members, and what it knows of the others'.

    The own ones count at once, whether or not the shared store answers. Of two sessions with one client id in a group
    the one that the store heard of last stays; the other is told that it was replaced.
    """

    def __init__(self, incarnation: str, clock: Clock) -> None:
        """Begin without groups."""
        super().__init__(clock)
        self.unsaid: dict[Key, Member | None] = {}
        """What the shared store has not been told: the member, or that it has left. The newest word of each."""
        self._incarnation = incarnation
        self._others: dict[str, dict[str, Placed]] = {}
        self._numbers: dict[Key, int] = {}
        self._gone: dict[Key, str] = {}
        self._merged: dict[str, dict[str, Member]] = {}
        self.on_unsaid: Callable[[], None] = lambda: None
        """Called when there is something to tell the shared store."""

    def join(self, group: str, member: Member) -> None:
        """Add a member, or change it, and say so."""
        if self._own.get(group, {}).get(member.client_id) != member:
            self._others.get(group, {}).pop(member.client_id, None)
            self._say((group, member.client_id), member)
            super().join(group, member)

    def leave(self, group: str, client_id: str, session_id: str) -> None:
        """Take a member away, and say so."""
        if self._is_here(group, client_id, session_id):
            self._gone[group, client_id] = session_id
            self._say((group, client_id), None)
            super().leave(group, client_id, session_id)

    def members(self, group: str) -> Mapping[str, Member]:
        """The members now."""
        found = self._merged.get(group)
        if found is None:
            others = {client_id: placed.member for client_id, placed in self._others.get(group, {}).items()}
            found = {**others, **self._own.get(group, {})}
            if found:
                self._merged[group] = found
        return found

    def groups(self) -> Iterable[str]:
        """Groups with members."""
        return sorted({group for kind in (self._own, self._others) for group, members in kind.items() if members})

    def advance(self, group: str) -> int:
        """Give the group a higher generation."""
        self._merged.pop(group, None)
        return super().advance(group)

    def _is_empty(self, group: str) -> bool:
        return super()._is_empty(group) and not self._others.get(group)

    def own(self) -> dict[Key, Member]:
        """The members of this snode."""
        return {(group, one): member for group, members in self._own.items() for one, member in members.items()}

    def gone_session(self, key: Key) -> str:
        """The session whose departure is to be told."""
        return self._gone.get(key, "")

    def said(self, key: Key, member: Member | None, number: int) -> None:
        """The shared store has taken our word; it is its `number`th about anybody."""
        self._numbers[key] = max(number, self._numbers.get(key, 0))
        if key in self.unsaid and self.unsaid[key] == member:
            del self.unsaid[key]
            if member is None:
                self._gone.pop(key, None)
                self._numbers.pop(key, None)

    def heard(self, key: Key, number: int, member: Member | None) -> None:
        """The shared store says who is a member, or that it has left. Older news than known is passed over."""
        if number <= self._numbers.get(key, 0) or key in self.unsaid:
            return
        group, client_id = key
        if member is not None and member.incarnation == self._incarnation:
            if client_id not in self._own.get(group, {}):
                self._gone[key] = member.session_id
                self._say(key, None)  # of ours, and gone by now
            return
        own = self._own.get(group, {})
        if member is None:
            self._numbers.pop(key, None)
            if client_id in own:
                self._say(key, own[client_id])  # somebody took this snode for dead
            if self._others.get(group, {}).pop(client_id, None) is not None:
                self.advance(group)
            return
        self._numbers[key] = number
        own.pop(client_id, None)
        others = self._others.setdefault(group, {})
        known = others.get(client_id)
        others[client_id] = Placed(number, member)
        if known is None or known.member != member:
            self.advance(group)

    def forget_numbers(self) -> None:
        """The shared store may have begun anew, and its numbers with it."""
        self._numbers.clear()

    def numbers(self) -> dict[Key, int]:
        """The number of the newest word about each member; to be taken before the shared store is read."""
        return dict(self._numbers)

    def reconcile(self, found: Mapping[Key, Placed], before: Mapping[Key, int]) -> None:
        """Compare with everything that the shared store has: others that it does not have are gone, own ones are said.

        The store may have lost what it was told, and its count with it. So its word counts, whatever its number,
        unless something newer was heard since `before`.
        """
        own = self.own()
        others = {(group, one) for group, members in self._others.items() for one in members}
        unheard = {key for key in {*own, *others, *found} if self._numbers.get(key, 0) == before.get(key, 0)}
        for group, members in list(self._others.items()):
            for client_id in [one for one in members if (group, one) not in found and (group, one) in unheard]:
                self._numbers.pop((group, client_id), None)
                del members[client_id]
                self.advance(group)
        for key, placed in found.items():
            if key in unheard:
                self._numbers.pop(key, None)
            self.heard(key, placed.number, placed.member)
        for key, member in self.own().items():
            placed_own = found.get(key)
            if key not in self.unsaid and key in unheard and (placed_own is None or placed_own.member != member):
                self._say(key, member)

    def of_snodes_not_in(self, alive: Collection[str]) -> list[tuple[Key, Member]]:
        """Members of other snodes whose incarnation is not `alive`."""
        return [
            ((group, client_id), placed.member)
            for group, others in self._others.items()
            for client_id, placed in others.items()
            if placed.member.incarnation not in alive
        ]

    def drop(self, key: Key, session_id: str) -> None:
        """A member of another snode is gone."""
        group, client_id = key
        others = self._others.get(group, {})
        placed = others.get(client_id)
        if placed is not None and placed.member.session_id == session_id:
            del others[client_id]
            self.advance(group)

    def _say(self, key: Key, member: Member | None) -> None:
        self.unsaid[key] = member
        self.on_unsaid()
