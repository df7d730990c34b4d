"""The members of this snode, and those of other snodes in the shared store, group by group. Without input or output."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ortoo.common.process.clock import Clock
from ortoo.snode.membership.group_members import GroupMember
from ortoo.snode.membership.group_membership import Membership

FOLLOW_TIMEOUT_S = 2.0
"""Time for which a request waits for the members of a group. Then it continues with the known ones."""
UNUSED_S = 60.0
"""A group without own members is forgotten this time after its last use."""
UNUSED_MAX = 10_000
"""Maximum of followed groups without own members; beyond it, those that were not used lately are forgotten sooner."""
Key = tuple[str, str]
"""(group, client id)."""
MembershipChange = GroupMember | str
"""A record about an own member: the member, or the session id of a member that has left."""


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member in the shared store. Of two records about one client id, that with the higher number is newer."""

    number: int
    member: GroupMember


@dataclass(slots=True)
class FollowedGroup:
    """A group whose members this snode knows, from the store's content and the changes after it."""

    used_s: float
    """The last use of the group without own members, on the monotonic clock."""
    is_known: bool = False
    """Whether the members were read once. Until then, no queues are assigned."""
    waiting: asyncio.Event | None = None
    """Set when the members are known, or cannot be read now; None = no request waits."""
    version: int = 0
    """The group's version in the store at the last reading."""
    read_at: int = 0
    """The number of the store's last record at the last reading."""
    changes: int = 0
    """The number of later records that arrived."""
    heard: dict[str, int] | None = None
    """The number of the newest record that arrived about each client during a reading; None = no reading."""
    listed: set[str] | None = None
    """The clients that a reading has found so far."""

    def end_waiting(self) -> None:
        """Let waiting requests continue."""
        if self.waiting is not None:
            self.waiting.set()
            self.waiting = None


class SharedMembership(Membership):
    """The members of the followed groups at all snodes. `incarnation` identifies this snode.

    A snode follows the groups that have a member at it, and for a while those that it was asked about. Own members take
    part at once if the store does not answer. If two sessions have the same client id in a group, the session that was
    stored later stays. The other session is notified that it was replaced.
    """

    def __init__(self, incarnation: str, clock: Clock) -> None:
        """Start without groups and without the store."""
        super().__init__(clock)
        self.unpublished: dict[Key, MembershipChange] = {}
        """The records not yet in the shared store, the newest of each member."""
        self.unread: dict[str, None] = {}
        """The followed groups whose content of the store is needed, in the order of the requests."""
        self.on_unpublished: Callable[[], None] = lambda: None
        """Called when there is a record for the shared store."""
        self.on_unread: Callable[[], None] = lambda: None
        """Called when there is a group to read."""
        self.is_connected = False
        """Whether the store answers. Otherwise the known members are all that can be known."""
        self.read_store: Callable[[], AsyncIterator[list[tuple[str, GroupMember]]]] = super().read_all
        """Reads the members of all groups from the store. Errors: `read_errors`."""
        self.read_errors: tuple[type[Exception], ...] = ()
        self._incarnation = incarnation
        self._followed: dict[str, FollowedGroup] = {}
        self._numbers: dict[Key, int] = {}
        self._deferred: dict[Key, tuple[int, GroupMember | None]] = {}
        """The newest record that arrived about each client with an unpublished record, which counts more until then."""
        self._places: dict[str, Counter[str]] = {}
        """Incarnation of a snode to the number of its known members in each group."""

    def join(self, group: str, member: GroupMember) -> None:
        """Add a member of this snode, or change it; the change is also sent to the shared store."""
        self._follow(group)
        if self.members(group).get(member.client_id) != member:
            self._publish((group, member.client_id), member)
            super().join(group, member)

    def leave(self, group: str, client_id: str, session_id: str) -> None:
        """Remove a member of this snode; the change is also sent to the shared store."""
        if self._is_current_session(group, client_id, session_id):
            self._publish((group, client_id), session_id)
            super().leave(group, client_id, session_id)

    def groups(self) -> Iterable[str]:
        """The followed groups that have members, sorted by name."""
        return sorted(self._members)

    async def follow(self, group: str) -> None:
        """Wait until the members of a group at all snodes are known, for FOLLOW_TIMEOUT_S at most."""
        followed = self._follow(group)
        if not self.is_complete(group):
            waiting = followed.waiting = followed.waiting or asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_TIMEOUT_S):
                    await waiting.wait()

    async def read_all(self) -> AsyncIterator[list[tuple[str, GroupMember]]]:
        """The members of all groups in the store; while it does not answer, the known ones.

        If the store stops answering during the reading, the known members follow those that were read.
        """
        if self.is_connected:
            with contextlib.suppress(*self.read_errors):
                async for part in self.read_store():
                    yield part
                return
        async for part in super().read_all():
            yield part

    def is_complete(self, group: str) -> bool:
        """Whether the members of a group are known, as far as the store can be read."""
        followed = self._followed.get(group)
        return not self.is_connected or followed is None or followed.is_known

    def is_known(self, group: str) -> bool:
        """Whether `follow` would not wait."""
        followed = self._followed.get(group)
        return not self.is_connected or (followed is not None and followed.is_known)

    def follows(self, group: str) -> bool:
        """Whether records about this group are of interest."""
        return group in self._followed

    def _follow(self, group: str) -> FollowedGroup:
        followed, now_s = self._followed.get(group), self._clock.monotonic_s()
        if followed is None:
            followed = self._followed[group] = FollowedGroup(now_s)
            self.request_reading(group)
        followed.used_s = now_s
        return followed

    def request_reading(self, group: str) -> None:
        """Ask for the content of the store about a followed group."""
        self.unread[group] = None
        self.on_unread()

    def forget_unused(self) -> None:
        """Forget the groups that have no member here and were not used lately; to be called every few seconds."""
        now_s, own = self._clock.monotonic_s(), self._places.get(self._incarnation, Counter[str]())
        waiting = {group for group, _ in self.unpublished}
        unused = [group for group in self._followed if group not in own and group not in waiting]
        unused.sort(key=lambda group: self._followed[group].used_s)
        surplus = len(unused) - UNUSED_MAX
        for place, group in enumerate(unused):
            if place >= surplus and now_s - self._followed[group].used_s < UNUSED_S:
                return
            for client_id in list(self.members(group)):
                self._numbers.pop((group, client_id), None)
                self._remove(group, client_id)
            self._followed.pop(group).end_waiting()
            self.unread.pop(group, None)

    # The store's connection

    def on_connected(self) -> None:
        """The store answers, and each followed group was read."""
        self.is_connected = True

    def on_disconnected(self) -> None:
        """The store does not answer. The known members stay; queues of newer groups are assigned to these."""
        self.is_connected = False
        for group, followed in list(self._followed.items()):
            followed.heard = followed.listed = None
            followed.end_waiting()
            if not followed.is_known:
                self.on_change(group)

    def read_all_again(self) -> None:
        """Ask for the content of the store about every followed group, because the store may have lost records."""
        self._numbers.clear()
        for group in self._followed:
            self.request_reading(group)

    # A reading of one group

    def begin_reading(self, group: str) -> bool:
        """Begin to compare a group with the store; returns whether it is still followed."""
        self.unread.pop(group, None)
        followed = self._followed.get(group)
        if followed is None:
            return False
        followed.heard, followed.listed = {}, set()
        return True

    def set_version(self, group: str, version: int, number: int) -> None:
        """Note the group's version, and the number of the store's last record, at the begin of a reading."""
        if (followed := self._followed.get(group)) is not None:
            followed.version, followed.read_at, followed.changes = version, number, 0
            if followed.heard is not None:
                followed.changes = sum(heard > number for heard in followed.heard.values())

    def apply_reading(self, group: str, stored: Mapping[str, StoredMember]) -> None:
        """Apply a part of a group's content.

        A stored record applies even if its number is smaller, because the store's counter may be reset. To a member
        whose record arrived during the reading, only a newer record applies.
        """
        followed = self._followed.get(group)
        if followed is None or followed.heard is None or followed.listed is None:
            return
        for client_id, one in stored.items():
            key = (group, client_id)
            if client_id not in followed.heard:
                self._numbers.pop(key, None)
            elif one.number <= followed.heard[client_id]:
                continue
            current = self.members(group).get(client_id)
            if current is not None and current != one.member and self._is_own(current) and self._is_own(one.member):
                continue  # not listed: the own member is written again
            followed.listed.add(client_id)
            self.apply_stored(key, one.number, one.member)

    def finish_reading(self, group: str) -> None:
        """End the reading: members of other snodes that the store lacks are removed, own ones are sent to it."""
        followed = self._followed.get(group)
        if followed is None or followed.heard is None or followed.listed is None:
            return
        gone = self.members(group).keys() - followed.listed - followed.heard.keys()
        followed.heard = followed.listed = None
        for client_id in gone:
            key, member = (group, client_id), self.members(group)[client_id]
            if not self._is_own(member):
                self._numbers.pop(key, None)
                self._remove(group, client_id)
            elif key not in self.unpublished:
                self._publish(key, member)
        if not followed.is_known:
            followed.is_known = True
            self.on_change(group)
        followed.end_waiting()

    def differs(self, group: str, version: int) -> bool:
        """Whether the store has changes of a group that did not arrive here."""
        followed = self._followed.get(group)
        return followed is not None and followed.heard is None and followed.version + followed.changes != version

    def followed_groups(self) -> list[str]:
        """The groups that have a member here, or that were used lately."""
        return list(self._followed)

    # Records

    def own_members(self) -> Iterator[tuple[Key, GroupMember]]:
        """The members of this snode."""
        for group in list(self._places.get(self._incarnation, ())):
            for client_id, member in list(self.members(group).items()):
                if self._is_own(member):
                    yield (group, client_id), member

    def _is_own(self, member: GroupMember) -> bool:
        return member.incarnation == self._incarnation

    def on_published(self, key: Key, change: MembershipChange, number: int) -> None:
        """Record that the shared store has accepted the record `change` under `number`."""
        self._numbers[key] = max(number, self._numbers.get(key, 0))
        followed = self._followed.get(key[0])
        if followed is not None and followed.heard is not None:
            followed.heard[key[1]] = max(number, followed.heard.get(key[1], 0))
        if key in self._deferred and self._deferred[key][0] < number:
            del self._deferred[key]
        if self.unpublished.get(key) == change:
            del self.unpublished[key]
            if isinstance(change, str):
                self._numbers.pop(key, None)
            if key in self._deferred:
                self.apply_stored(key, *self._deferred.pop(key))

    def on_record(self, key: Key, number: int, member: GroupMember | None) -> None:
        """Apply a record that arrived from the shared store; records about groups that are not followed are ignored."""
        group, client_id = key
        followed = self._followed.get(group)
        if followed is None:
            return
        followed.changes += number > followed.read_at
        if followed.heard is not None:
            followed.heard[client_id] = max(number, followed.heard.get(client_id, 0))
        self.apply_stored(key, number, member)

    def apply_stored(self, key: Key, number: int, member: GroupMember | None) -> None:
        """Apply a record of a followed group; `member` is None if the member has left. Older records are ignored."""
        if number <= self._numbers.get(key, 0):
            return
        if key in self.unpublished:
            if key not in self._deferred or self._deferred[key][0] < number:
                self._deferred[key] = (number, member)
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

    def is_ghost(self, key: Key, member: GroupMember) -> bool:
        """Whether a stored record is of an own member that has left. Such a record exists if the store lost changes."""
        group, client_id = key
        if not self._is_own(member) or key in self.unpublished:
            return False
        current = self.members(group).get(client_id)
        return current is None or not self._is_own(current)

    def withdraw(self, key: Key, member: GroupMember) -> None:
        """Remove the record of an own member that has left."""
        self._publish(key, member.session_id)

    def members_of_dead_snodes(self, alive: Collection[str]) -> list[tuple[Key, GroupMember]]:
        """The known members of other snodes whose incarnation is not in `alive`."""
        dead = [one for one in self._places if one not in alive and one != self._incarnation]
        return [
            ((group, client_id), member)
            for incarnation in dead
            for group in self._places[incarnation]
            for client_id, member in self.members(group).items()
            if member.incarnation == incarnation
        ]

    def remove_dead(self, key: Key, session_id: str) -> None:
        """Remove a member of a dead snode, unless another session uses its client id now."""
        super().leave(*key, session_id)

    def _publish(self, key: Key, change: MembershipChange) -> None:
        self.unpublished[key] = change
        self.on_unpublished()

    def _put(self, group: str, member: GroupMember) -> None:
        self._count(group, self.members(group).get(member.client_id), -1)
        self._count(group, member, 1)
        super()._put(group, member)

    def _remove(self, group: str, client_id: str) -> None:
        self._count(group, self.members(group).get(client_id), -1)
        super()._remove(group, client_id)

    def _count(self, group: str, member: GroupMember | None, change: int) -> None:
        if member is None:
            return
        groups = self._places.setdefault(member.incarnation, Counter())
        groups[group] += change
        if not groups[group]:
            del groups[group]
        if not groups:
            del self._places[member.incarnation]
