"""One client's session: its identity, its groups, and the events that wait to be sent to it."""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ortoo.common.errors import OrtooError, Overloaded
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import LockRequest
from ortoo.snode.membership.group_members import GroupMember
from ortoo.snode.push.flow import QueueCursor
from ortoo.snode.push.outbox import SessionClosed, SessionOpened
from ortoo.snode.push.redelivery import RedeliveryLimit

COMMANDS_MAX = 1_000
"""Maximum of events that wait for one client."""
UNANSWERED_MAX = 10_000
"""Maximum of commands that one client has not answered."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The identity of a client, as the client sends it when it connects."""

    client_id: str
    language: str = ""
    client_version: str = ""
    room: str = ""


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The event with the current members of one group."""

    group: str
    version: int
    members: Mapping[str, GroupMember]


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """The event with the result of a registration."""

    request_id: int
    group: str
    client_id: str
    error: OrtooError | None = None
    members: GroupMembers | None = None


@dataclass(frozen=True, slots=True)
class ClientCommand:
    """The event with a command to the client, as its protobuf message."""

    command: Any


@dataclass(frozen=True, slots=True)
class RequesterResult:
    """The event with the result of a registration for replies."""

    request_id: int
    reply_to: str = ""
    error: OrtooError | None = None


SessionEvent = SessionOpened | GroupMembers | RegistrationResult | RequesterResult | ClientCommand | SessionClosed


class SessionOutbox:
    """The events to send to a client, in order. Of the events with a group's members, only the newest waits."""

    def __init__(self) -> None:
        """Start empty."""
        self._events: deque[SessionEvent] = deque()
        self._members: dict[str, GroupMembers] = {}
        self._closed: SessionClosed | None = None
        self._wake = asyncio.Event()

    def put(self, event: SessionEvent) -> None:
        """Queue an event. Errors: Overloaded if the client does not read its events."""
        if isinstance(event, GroupMembers):
            self._members[event.group] = event
        elif isinstance(event, SessionClosed):
            self._closed = self._closed or event
        elif len(self._events) >= COMMANDS_MAX:
            raise Overloaded(f"{COMMANDS_MAX} events wait for a client that does not read them", retry_after_ms=1000)
        else:
            self._events.append(event)
        self._wake.set()

    def discard(self, event: SessionEvent) -> None:
        """Remove an event whose sender no longer waits, so that it does not use memory; no effect if it was sent."""
        for at, one in enumerate(self._events):
            if one is event:
                del self._events[at]
                return

    async def next(self) -> SessionEvent:
        """Wait for the next event. No event follows the event that closes the session."""
        while True:
            if self._events:
                return self._events.popleft()
            if self._closed is not None:
                return self._closed
            if self._members:
                return self._members.pop(next(iter(self._members)))
            self._wake.clear()
            await self._wake.wait()


@dataclass(slots=True, eq=False)
class PulledQueue:
    """The position of a session in a queue that it has locked."""

    cursor: QueueCursor
    """Its generation is the one of the lock."""
    topic_id: int
    parked_offset: int = -1
    """The offset of a parked message, which is not returned; -1 = none."""


@dataclass(slots=True, eq=False)
class ClientSession:
    """The session of one client: an open Connect call."""

    session_id: str
    hello: Hello
    peer: str
    since_ms: int
    last_active_s: float
    user: str = ""
    """The user who opened the session."""
    expiry_s: float = 0.0
    """Time without a request after which the session ends, as sent to the client."""
    outbox: SessionOutbox = field(default_factory=SessionOutbox)
    producers: dict[str, None] = field(default_factory=dict)
    """Groups in which the session is a producer."""
    consumers: dict[str, GroupMember] = field(default_factory=dict)
    """Groups in which the session is a consumer, with the membership."""
    locks: dict[tuple[str, LockRequest], None] = field(default_factory=dict)
    """Locks that the client has taken explicitly, with their enodes."""
    pulled: dict[tuple[str, Queue], PulledQueue] = field(default_factory=dict)
    """The positions of pulls from locked queues, by (group, queue)."""
    redelivery: RedeliveryLimit = field(default_factory=RedeliveryLimit)
    may_pull: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a pull that waits for the redelivery limit may continue."""
    commands: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    """Unanswered commands."""
    reply_to: str = ""
    """The address for replies to the client's requests; empty = the client has not registered for replies."""
    call: asyncio.Task[Any] | None = None
    is_closing: bool = False
    has_left: bool = False
    """Whether the client has said that it leaves. Otherwise it may have died."""

    @property
    def client_id(self) -> str:
        """The client id in `hello`."""
        return self.hello.client_id or self.session_id
