"""What a client is in a group of its session: how it wants to be a member, and who hears what concerns the group."""

from dataclasses import dataclass
from typing import Protocol

from ortoo.client.core.filters import Filter
from ortoo.client.core.place import Queue
from ortoo.client.core.received import ReceivedMessage
from ortoo.client.offsets.start_point import StartRule
from ortoo.client.sessions.group_view import GroupView
from ortoo.common.errors import OrtooError
from ortoo.common.groups.allocation import AllocationStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """How a client wants to be a member of a group."""

    group: str
    topics: dict[str, Filter]
    version: int
    """Grows with every change of the topics."""
    broadcast: bool = False
    strategy: AllocationStrategy = AllocationStrategy.AVERAGELY
    configured_queues: tuple[Queue, ...] = ()
    rooms: tuple[str, ...] = ()
    start: StartRule = StartRule()


@dataclass(frozen=True, slots=True)
class RunningQueue:
    """One queue as a client sees it, for people who ask."""

    queue: Queue
    offset: int
    next_offset: int
    held_messages: int
    held_bytes: int
    locked: bool


class GroupMembership(Protocol):
    """Who hears what concerns one group of the session."""

    def members_changed(self, view: GroupView) -> None:
        """These share out the queues now; also told each time the session was opened anew."""

    def refused(self, error: OrtooError) -> None:
        """The group takes this client no more."""

    def running_queues(self) -> list[RunningQueue]:
        """The queues this member has."""

    async def consume_directly(self, message: ReceivedMessage) -> bool:
        """Process one message at once; whether in order. Errors: what the handler raised; Unsupported without one."""
