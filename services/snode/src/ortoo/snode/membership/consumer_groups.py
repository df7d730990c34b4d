"""The groups of this snode: assigns queues to group members and moves each from its old owner to its new one."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import record_contained
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.membership.assignment import assign
from ortoo.snode.membership.group_members import GroupMember
from ortoo.snode.membership.group_membership import Membership

PAUSE_FACTOR = 4.0
"""After a long assignment, this multiple of its time passes before the next one, for all changes until then."""
PAUSE_THRESHOLD_S = 0.005
REOPEN_TIMEOUT_S = 5.0
"""Time for a client to open another session. After that its queues go to other members."""


class Assignable(Protocol):
    """A push session, as its group sees it."""

    @property
    def client_id(self) -> str:
        """The client id, which is the session's name in the group."""

    @property
    def member_session_id(self) -> str:
        """The session id of the session's group member."""

    def assign(self, generation: int, queues: list[Queue]) -> None:
        """Consume exactly these queues from now on; `generation` is the number of the assignment."""

    def on_replaced(self) -> None:
        """End the session, because another session has replaced it in the group."""


async def _find_nothing(topics: Iterable[str]) -> None:
    """The directory has all topics."""


class ConsumerGroups:
    """The push sessions of each group, and the session that owns each queue within this snode."""

    def __init__(self, directory: DirectoryCache, membership: Membership, clock: Clock) -> None:
        self.membership = membership
        """The members of all groups."""
        self.on_members_changed: Callable[[str, int, Mapping[str, GroupMember]], None] = (
            lambda group, generation, members: None
        )
        """Called soon after the members of a group have changed; several changes may cause one call."""
        self.find_topics: Callable[[Iterable[str]], Awaitable[None]] = _find_nothing
        """Loads the topics of members, as far as the directory does not have all topics."""
        self._directory = directory
        self._clock = clock
        self._sessions: dict[str, dict[str, Assignable]] = {}
        self._holders: dict[tuple[str, Queue], tuple[object, asyncio.Event]] = {}
        self._leaving: dict[Callable[[], None], None] = {}
        """The departures that wait for other sessions of their clients."""
        self._changed: dict[str, None] = {}
        self._wake = asyncio.Event()
        membership.on_change = self._mark_changed

    async def run(self) -> None:
        """Assign the queues of every group that has changed; never returns.

        A group whose assignment fails is skipped. If the loop itself fails, the process ends, because no consumer would
        get queues.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            began_s = self._clock.monotonic_s()
            changed, self._changed = self._changed, {}
            for group in changed:
                try:
                    await self.find_topics(
                        {name for one in self.membership.members(group).values() for name in one.topics}
                    )
                    self._rebalance(group)
                except Exception as error:
                    record_contained("sharing out a group", error)
            took_s = self._clock.monotonic_s() - began_s
            if took_s > PAUSE_THRESHOLD_S:
                await self._clock.sleep(took_s * PAUSE_FACTOR)

    def join(self, group: str, member: GroupMember, session: Assignable) -> None:
        """Add a push session to its group as `member`; the queues of all its members are assigned again."""
        self._sessions.setdefault(group, {})[session.client_id] = session
        self.membership.join(group, member)
        self._mark_changed(group)

    def leave(self, group: str, session: Assignable) -> None:
        """Remove a push session from its group; other members get its queues when the session has released them."""
        sessions = self._sessions.get(group, {})
        if sessions.get(session.client_id) is session:
            del sessions[session.client_id]
            if not sessions:
                self._sessions.pop(group, None)

    def leave_later(self, leave: Callable[[], None], background: Background) -> None:
        """Call `leave` when a client had time to open another session. It must change nothing if the client has."""

        async def wait() -> None:
            await self._clock.sleep(REOPEN_TIMEOUT_S)
            if leave in self._leaving:
                del self._leaving[leave]
                leave()

        self._leaving[leave] = None
        background.run_contained("leave", wait())

    def leave_now(self) -> None:
        """Do all departures that wait, because this snode stops. Otherwise their members would stay until a timeout."""
        leaving, self._leaving = self._leaving, {}
        for leave in leaving:
            leave()

    def session(self, group: str, client_id: str) -> Assignable | None:
        """The push session of a client in a group, if this snode has one."""
        return self._sessions.get(group, {}).get(client_id)

    def on_topics_changed(self, topics: set[str]) -> None:
        """Assign the queues again in every group that consumes a changed topic."""
        for group in list(self.membership.groups()):
            if any(member.topics & topics for member in self.membership.members(group).values()):
                self.membership.advance_generation(group)

    async def acquire(self, group: str, queue: Queue, owner: object) -> None:
        """Wait until a queue has no owner, and make `owner` its owner. Each call requires a new `owner` object."""
        key = (group, queue)
        while (holder := self._holders.get(key)) is not None:
            await holder[1].wait()
        self._holders[key] = (owner, asyncio.Event())

    def release(self, group: str, queue: Queue, owner: object) -> None:
        """Remove `owner` as the owner of a queue; no effect if it is not the owner."""
        holder = self._holders.get((group, queue))
        if holder is not None and holder[0] is owner:
            del self._holders[(group, queue)]
            holder[1].set()

    def _mark_changed(self, group: str) -> None:
        self._changed[group] = None
        self._wake.set()

    def _rebalance(self, group: str) -> None:
        if not self.membership.is_complete(group):
            return  # otherwise the first member here would get queues that other snodes have assigned
        members = self.membership.members(group)
        generation = self.membership.generation(group)
        sessions = list(self._sessions.get(group, {}).values())
        assigned: dict[str, list[Queue]] = {}
        if sessions:
            queues: dict[str, list[Queue]] = {}
            for name in dict.fromkeys(name for member in members.values() for name in member.topics):
                topic = self._directory.find_topic(name)
                queues[name] = topic.read_queues() if topic is not None and topic.readable else []
            assigned = assign(members, queues)
        for session in sessions:
            member = members.get(session.client_id)
            # A session without a member was replaced by one that has left again. It must not keep queues from others.
            if member is None or member.session_id != session.member_session_id:
                session.on_replaced()
            elif session.client_id in assigned:
                session.assign(generation, assigned[session.client_id])
        self.on_members_changed(group, generation, members)
