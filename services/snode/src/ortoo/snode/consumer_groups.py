"""The groups of this snode: shares queues among sessions and hands each over from its old owner to its new one."""

import asyncio
from typing import Protocol

from ortoo.snode.assignment import assign
from ortoo.snode.directory import Directory
from ortoo.snode.membership import Member, Membership
from ortoo.snode.routes import Queue


class Assignable(Protocol):
    """A session, as its group sees it."""

    @property
    def session_id(self) -> str:
        """Made by the server."""

    def assign(self, generation: int, queues: list[Queue]) -> None:
        """Take these queues, and no others, from now on."""


class ConsumerGroups:
    """Sessions by group, and who holds which queue."""

    def __init__(self, directory: Directory, membership: Membership) -> None:
        self._directory = directory
        self._membership = membership
        self._sessions: dict[str, dict[str, Assignable]] = {}
        self._holders: dict[tuple[str, Queue], tuple[object, asyncio.Event]] = {}
        membership.on_change(self._settle)

    async def join(self, group: str, member: Member, session: Assignable) -> None:
        """Add a session to its group; everybody's queues are told."""
        self._sessions.setdefault(group, {})[session.session_id] = session
        await self._membership.join(group, member)

    async def leave(self, group: str, session_id: str) -> None:
        """Take a session out of its group; the others get its queues when it has released them."""
        sessions = self._sessions.get(group, {})
        sessions.pop(session_id, None)
        if not sessions:
            self._sessions.pop(group, None)
        await self._membership.leave(group, session_id)

    def topics_changed(self, topics: set[str]) -> None:
        """Share out again where a topic has other queues than before."""
        for group in list(self._sessions):
            if any(member.topics & topics for member in self._membership.members(group).values()):
                self._membership.advance(group)

    async def hold(self, group: str, queue: Queue, owner: object) -> None:
        """Wait until the queue's former owner has released it, and hold it. `owner` is new for each time of holding."""
        key = (group, queue)
        while (holder := self._holders.get(key)) is not None:
            await holder[1].wait()
        self._holders[key] = (owner, asyncio.Event())

    def release(self, group: str, queue: Queue, owner: object) -> None:
        """Let the next owner begin; nothing happens if `owner` does not hold the queue."""
        holder = self._holders.get((group, queue))
        if holder is not None and holder[0] is owner:
            del self._holders[(group, queue)]
            holder[1].set()

    def _settle(self, group: str) -> None:
        members = self._membership.members(group)
        wanted = {member_id: member.topics for member_id, member in members.items()}
        queues: dict[str, list[Queue]] = {}
        for name in {name for topics in wanted.values() for name in topics}:
            topic = self._directory.find_topic(name)
            queues[name] = topic.read_queues() if topic is not None and topic.readable else []
        given = assign(wanted, queues)
        generation = self._membership.generation(group)
        for session_id, session in list(self._sessions.get(group, {}).items()):
            if session_id in given:
                session.assign(generation, given[session_id])
