"""One client's session: who it is, which groups it is in, and what waits to be told to it."""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ortoo.common.errors import OrtooError, Overloaded
from ortoo.snode.enodes.link import LockRequest
from ortoo.snode.membership.members import Member
from ortoo.snode.push.outbox import Closed, Opened

COMMANDS_MAX = 1_000
"""How many commands may wait for one client."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Who a client says it is."""

    client_id: str
    language: str = ""
    client_version: str = ""
    room: str = ""


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The members of a group."""

    group: str
    version: int
    members: Mapping[str, Member]


@dataclass(frozen=True, slots=True)
class RegistrationAnswer:
    """A registration was taken or refused."""

    request_id: int
    group: str
    client_id: str
    error: OrtooError | None = None
    members: GroupMembers | None = None


@dataclass(frozen=True, slots=True)
class CommandSent:
    """Something the client shall do, as it travels."""

    command: Any


SessionEvent = Opened | GroupMembers | RegistrationAnswer | CommandSent | Closed


class SessionOutbox:
    """What waits to be told, in order; of the members of one group only the newest."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._events: deque[SessionEvent] = deque()
        self._members: dict[str, GroupMembers] = {}
        self._closed: Closed | None = None
        self._wake = asyncio.Event()

    def put(self, event: SessionEvent) -> None:
        """Tell the client. Errors: Overloaded when it does not listen."""
        if isinstance(event, GroupMembers):
            self._members[event.group] = event
        elif isinstance(event, Closed):
            self._closed = self._closed or event
        elif len(self._events) >= COMMANDS_MAX:
            raise Overloaded(f"{COMMANDS_MAX} events wait for a client that does not read them", retry_after_ms=1000)
        else:
            self._events.append(event)
        self._wake.set()

    async def next(self) -> SessionEvent:
        """The next event; after Closed nothing comes."""
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
class ClientSession:
    """One open Connect call."""

    session_id: str
    hello: Hello
    peer: str
    since_ms: int
    heard_at_s: float
    user: str = ""
    """Who opened it."""
    expiry_s: float = 0.0
    """How long it may be silent, as it was told."""
    outbox: SessionOutbox = field(default_factory=SessionOutbox)
    producers: dict[str, None] = field(default_factory=dict)
    """Groups in which it is a producer."""
    consumers: dict[str, Member] = field(default_factory=dict)
    """Groups in which it is a consumer, and as what."""
    locks: dict[tuple[str, LockRequest], None] = field(default_factory=dict)
    """Locks that it has asked for by itself, with their enodes."""
    commands: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    """Commands that are not answered."""
    call: asyncio.Task[Any] | None = None
    closing: bool = False

    @property
    def client_id(self) -> str:
        """The name that counts."""
        return self.hello.client_id or self.session_id
