"""Members of groups in snodes that read all groups, for tests of rolling upgrades."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from ortoo.common.process.clock import Clock
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


Key = tuple[str, str]
"""(group, client id)."""
MembershipChange = GroupMember | str
"""A record about an own member: the member, or the session id of a member that has left."""


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member in the shared store. Of two records about one client id, that with the higher number is newer."""

    number: int
    member: GroupMember


class SharedMembership(Membership):
    """The members of this snode, and those of other snodes in the shared store. `incarnation` identifies this snode.

    Own members take part at once, whether or not the shared store answers. If two sessions have the same client id in a
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
        """Add a member of this snode, or change it; the change is also sent to the shared store."""
        if self.members(group).get(member.client_id) != member:
            self._publish((group, member.client_id), member)
            super().join(group, member)

    def leave(self, group: str, client_id: str, session_id: str) -> None:
        """Remove a member of this snode; the change is also sent to the shared store."""
        if self._is_current_session(group, client_id, session_id):
            self._publish((group, client_id), session_id)
            super().leave(group, client_id, session_id)

    def groups(self) -> Iterable[str]:
        """The groups that have members, sorted by name; every snode returns the same list."""
        return sorted(self._members)

    def own_members(self) -> dict[Key, GroupMember]:
        """The members of this snode."""
        return {key: member for key, member in self._all_members().items() if self._is_own(member)}

    def _all_members(self) -> dict[Key, GroupMember]:
        return {(group, one): member for group, members in self._members.items() for one, member in members.items()}

    def _is_own(self, member: GroupMember) -> bool:
        return member.incarnation == self._incarnation

    def on_published(self, key: Key, change: MembershipChange, number: int) -> None:
        """Record that the shared store has accepted the record `change` under `number`."""
        self._numbers[key] = max(number, self._numbers.get(key, 0))
        if self.unpublished.get(key) == change:
            del self.unpublished[key]
            if isinstance(change, str):
                self._numbers.pop(key, None)

    def apply_stored(self, key: Key, number: int, member: GroupMember | None) -> None:
        """Apply a record from the shared store; `member` is None if the member has left. Older records are ignored."""
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
        """Forget the numbers of all records, because the shared store may have been emptied and its counter reset."""
        self._numbers.clear()

    def numbers(self) -> dict[Key, int]:
        """The number of each member's newest record. The caller takes them before it reads the shared store."""
        return dict(self._numbers)

    def reconcile(self, stored: Mapping[Key, StoredMember], numbers_before: Mapping[Key, int]) -> None:
        """Compare the members with the whole content of the shared store, which may have lost records or its counter.

        Members of other snodes that the store lacks are removed; own members that it lacks are sent to it. A
        stored record applies even if its number is smaller, because the store's counter may be reset. To a member
        whose record arrived after `numbers_before` was taken, only a newer record applies.
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
        """The members of other snodes whose incarnation is not in `alive`."""
        return [
            ((group, client_id), member)
            for group, members in self._members.items()
            for client_id, member in members.items()
            if member.incarnation not in alive and not self._is_own(member)
        ]

    def remove_dead(self, key: Key, session_id: str) -> None:
        """Remove a member of a dead snode, unless another session uses its client id now."""
        super().leave(*key, session_id)

    def _publish(self, key: Key, change: MembershipChange) -> None:
        self.unpublished[key] = change
        self.on_unpublished()
