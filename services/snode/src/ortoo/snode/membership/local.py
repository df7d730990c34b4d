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
        self._members: dict[str, dict[str, Member]] = {}
        self.on_change: Callable[[str], None] = lambda group: None
        """Called with the group's name after each change."""

    def join(self, group: str, member: Member) -> None:
        """Add a member of this snode, or change it; one with the same client id is replaced wherever it is."""
        if self.members(group).get(member.client_id) != member:
            self._put(group, member)

    def leave(self, group: str, client_id: str, session_id: str) -> None:
        """Take a member away; nothing happens if the client id is another session's by now."""
        if self._has(group, client_id, session_id):
            self._remove(group, client_id)

    def _has(self, group: str, client_id: str, session_id: str) -> bool:
        member = self.members(group).get(client_id)
        return member is not None and member.session_id == session_id

    def members(self, group: str) -> Mapping[str, Member]:
        """The members now, by client id."""
        return self._members.get(group, {})

    def groups(self) -> Iterable[str]:
        """Groups with members."""
        return list(self._members)

    def generation(self, group: str) -> int:
        """The number of the group's present state; 0 when nobody is in it."""
        return self._versions.get(group, 0)

    def advance(self, group: str) -> int:
        """Give the group a higher generation, also because something else has changed, such as a topic's queues.

        There is one count for all groups, from wall-clock milliseconds on, so that it grows over restarts.
        """
        generation = self._last = self._versions[group] = max(self._last + 1, self._clock.now_ms())
        self.on_change(group)
        if group not in self._members:
            del self._versions[group]
        return generation

    def _put(self, group: str, member: Member) -> None:
        self._members.setdefault(group, {})[member.client_id] = member
        self.advance(group)

    def _remove(self, group: str, client_id: str) -> None:
        members = self._members[group]
        del members[client_id]
        if not members:
            del self._members[group]
        self.advance(group)


Key = tuple[str, str]
"""(group, client id)."""
Word = Member | str
"""What a snode says of its own: a member, or the id of a session that has left."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A member as the shared store has it; a higher number is the later word about its client id."""

    number: int
    member: Member


class SharedMembership(Membership):
    """The snode's own members, and what it knows of the others'; a member is the snode's whose incarnation it names.

    The own ones count at once, whether or not the shared store answers. Of two sessions with one client id in a group
    the one that the store heard of last stays; the other is told that it was replaced.
    """

    def __init__(self, incarnation: str, clock: Clock) -> None:
        """Begin without groups."""
        super().__init__(clock)
        self.unsaid: dict[Key, Word] = {}
        """What the shared store has not been told. The newest word of each."""
        self._incarnation = incarnation
        self._numbers: dict[Key, int] = {}
        self.on_unsaid: Callable[[], None] = lambda: None
        """Called when there is something to tell the shared store."""

    def join(self, group: str, member: Member) -> None:
        """Add a member, or change it, and say so."""
        if self.members(group).get(member.client_id) != member:
            self._say((group, member.client_id), member)
            super().join(group, member)

    def leave(self, group: str, client_id: str, session_id: str) -> None:
        """Take a member away, and say so."""
        if self._has(group, client_id, session_id):
            self._say((group, client_id), session_id)
            super().leave(group, client_id, session_id)

    def groups(self) -> Iterable[str]:
        """Groups with members, by name: whichever snode is asked for them gives the same list."""
        return sorted(self._members)

    def own(self) -> dict[Key, Member]:
        """The members of this snode."""
        return {key: member for key, member in self._all().items() if self._is_own(member)}

    def _all(self) -> dict[Key, Member]:
        return {(group, one): member for group, members in self._members.items() for one, member in members.items()}

    def _is_own(self, member: Member) -> bool:
        return member.incarnation == self._incarnation

    def said(self, key: Key, word: Word, number: int) -> None:
        """The shared store has taken our word; it is its `number`th about anybody."""
        self._numbers[key] = max(number, self._numbers.get(key, 0))
        if self.unsaid.get(key) == word:
            del self.unsaid[key]
            if isinstance(word, str):
                self._numbers.pop(key, None)

    def heard(self, key: Key, number: int, member: Member | None) -> None:
        """The shared store says who is a member, or that it has left. Older news than known is passed over."""
        if number <= self._numbers.get(key, 0) or key in self.unsaid:
            return
        group, client_id = key
        known = self.members(group).get(client_id)
        if member is not None and self._is_own(member):
            if known is None or not self._is_own(known):
                self._say(key, member.session_id)  # of ours, and gone by now
        elif member is not None:
            self._numbers[key] = number
            if known != member:
                self._put(group, member)
        else:
            self._numbers.pop(key, None)
            if known is not None and self._is_own(known):
                self._say(key, known)  # somebody took this snode for dead
            elif known is not None:
                self._remove(group, client_id)

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
        known = self._all()
        unheard = {key for key in {*known, *found} if self._numbers.get(key, 0) == before.get(key, 0)}
        for key, member in known.items():
            if not self._is_own(member) and key in unheard and key not in found:
                self._numbers.pop(key, None)
                self._remove(*key)
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
            ((group, client_id), member)
            for group, members in self._members.items()
            for client_id, member in members.items()
            if member.incarnation not in alive and not self._is_own(member)
        ]

    def drop(self, key: Key, session_id: str) -> None:
        """A member of another snode is gone."""
        super().leave(*key, session_id)

    def _say(self, key: Key, word: Word) -> None:
        self.unsaid[key] = word
        self.on_unsaid()
