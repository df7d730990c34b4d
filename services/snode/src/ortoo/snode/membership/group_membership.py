"""The members of groups. A single snode keeps them in memory; several share them through `MembershipStore`."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from ortoo.common.process.clock import Clock
from ortoo.snode.membership.group_members import GroupMember

PRODUCER_GROUP_PREFIX = "producers/"
"""Prefix of the names of producer groups in the membership. No consumer group can have this prefix."""


class Membership:
    """The members of all groups, if this is the only snode.

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
        """Add or change a member of this snode; it replaces any member with the same client id."""
        if self.members(group).get(member.client_id) != member:
            self._put(group, member)

    def leave(self, group: str, client_id: str, session_id: str) -> None:
        """Remove a member; a no-op if the client id is used by another session now."""
        if self._is_current_session(group, client_id, session_id):
            self._remove(group, client_id)

    def _is_current_session(self, group: str, client_id: str, session_id: str) -> bool:
        member = self.members(group).get(client_id)
        return member is not None and member.session_id == session_id

    def members(self, group: str) -> Mapping[str, GroupMember]:
        """The current members, by client id."""
        return self._members.get(group, {})

    def groups(self) -> Iterable[str]:
        """Groups with members."""
        return list(self._members)

    def generation(self, group: str) -> int:
        """The generation of the group; 0 if it has no members."""
        return self._generations.get(group, 0)

    def advance_generation(self, group: str) -> int:
        """Give the group a higher generation; also called when the queues of its topics have changed.

        One counter serves all groups. It starts from wall-clock milliseconds, so that it grows over restarts.
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


Key = tuple[str, str]
"""(group, client id)."""
MembershipChange = GroupMember | str
"""A record about an own member: the member, or the session id of a member that has left."""


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member in the shared store. Of two records about a client id, the record with the higher number is newer."""

    number: int
    member: GroupMember


class SharedMembership(Membership):
    """The members of this snode, and the stored members of other snodes. `incarnation` is that of this snode.

    Own members take part at once, whether or not the shared store answers. Of two sessions with one client id in a
    group, the session that was stored later stays. The other session is notified that it was replaced.
    """

    def __init__(self, incarnation: str, clock: Clock) -> None:
        """Start without groups."""
        super().__init__(clock)
        self.unpublished: dict[Key, MembershipChange] = {}
        """The records not yet in the shared store, the newest of each member."""
        self._incarnation = incarnation
        self._numbers: dict[Key, int] = {}
        self.on_unpublished: Callable[[], None] = lambda: None
        """Called when there is a record for the shared store."""

    def join(self, group: str, member: GroupMember) -> None:
        """Add or change a member, and record it."""
        if self.members(group).get(member.client_id) != member:
            self._publish((group, member.client_id), member)
            super().join(group, member)

    def leave(self, group: str, client_id: str, session_id: str) -> None:
        """Remove a member, and record it."""
        if self._is_current_session(group, client_id, session_id):
            self._publish((group, client_id), session_id)
            super().leave(group, client_id, session_id)

    def groups(self) -> Iterable[str]:
        """Groups with members, sorted by name; every snode returns the same list."""
        return sorted(self._members)

    def own_members(self) -> dict[Key, GroupMember]:
        """The members of this snode."""
        return {key: member for key, member in self._all_members().items() if self._is_own(member)}

    def _all_members(self) -> dict[Key, GroupMember]:
        return {(group, one): member for group, members in self._members.items() for one, member in members.items()}

    def _is_own(self, member: GroupMember) -> bool:
        return member.incarnation == self._incarnation

    def on_published(self, key: Key, change: MembershipChange, number: int) -> None:
        """Note that the shared store has accepted a record under this number."""
        self._numbers[key] = max(number, self._numbers.get(key, 0))
        if self.unpublished.get(key) == change:
            del self.unpublished[key]
            if isinstance(change, str):
                self._numbers.pop(key, None)

    def apply_stored(self, key: Key, number: int, member: GroupMember | None) -> None:
        """Apply a record from the shared store: a member, or its departure. Older records are ignored."""
        if number <= self._numbers.get(key, 0) or key in self.unpublished:
            return
        group, client_id = key
        current = self.members(group).get(client_id)
        if member is not None and self._is_own(member):
            if current is None or not self._is_own(current):
                self._publish(key, member.session_id)  # an own member that has left
        elif member is not None:
            self._numbers[key] = number
            if current != member:
                self._put(group, member)
        else:
            self._numbers.pop(key, None)
            if current is not None and self._is_own(current):
                self._publish(key, current)  # another snode assumed that this one had ended
            elif current is not None:
                self._remove(group, client_id)

    def reset_numbers(self) -> None:
        """Forget all numbers, because the shared store may have been emptied and its counter reset."""
        self._numbers.clear()

    def numbers(self) -> dict[Key, int]:
        """The number of the newest record of each member; to be taken before the shared store is read."""
        return dict(self._numbers)

    def reconcile(self, stored: Mapping[Key, StoredMember], numbers_before: Mapping[Key, int]) -> None:
        """Compare with the whole shared store: remove members of other snodes that it lacks, and record own members.

        The store may have lost records and its counter, so numbers are not compared with its content. Only members with
        a record received since `numbers_before` are left alone.
        """
        current = self._all_members()
        unchanged = {key for key in {*current, *stored} if self._numbers.get(key, 0) == numbers_before.get(key, 0)}
        for key, member in current.items():
            if not self._is_own(member) and key in unchanged and key not in stored:
                self._numbers.pop(key, None)
                self._remove(*key)
        for key, stored_member in stored.items():
            if key in unchanged:
                self._numbers.pop(key, None)
            self.apply_stored(key, stored_member.number, stored_member.member)
        for key, member in self.own_members().items():
            stored_own = stored.get(key)
            if key not in self.unpublished and key in unchanged and (stored_own is None or stored_own.member != member):
                self._publish(key, member)

    def members_of_dead_snodes(self, alive: Collection[str]) -> list[tuple[Key, GroupMember]]:
        """Members of other snodes whose incarnation is not in `alive`."""
        return [
            ((group, client_id), member)
            for group, members in self._members.items()
            for client_id, member in members.items()
            if member.incarnation not in alive and not self._is_own(member)
        ]

    def remove_dead(self, key: Key, session_id: str) -> None:
        """Remove a member of another snode."""
        super().leave(*key, session_id)

    def _publish(self, key: Key, change: MembershipChange) -> None:
        self.unpublished[key] = change
        self.on_unpublished()
