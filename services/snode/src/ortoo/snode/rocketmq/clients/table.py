"""Who is there: clients by their id, alive as long as they say something, whether or not their telemetry stream is up.

A client that keeps quiet about its settings after a server's restart is served all the same; what is known of it is
for transaction checks, for commands and for people.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from apache.rocketmq.v2.definition_pb2 import ClientType, Settings
from apache.rocketmq.v2.service_pb2 import NotifyUnsubscribeLiteCommand, TelemetryCommand
from ortoo.common.errors import Invalid, Overloaded
from ortoo.common.process.memory_budget import MemoryShare
from ortoo.snode.policy.principal import ANYBODY, PRINCIPAL, Principal
from ortoo.snode.rocketmq.protocol.caller import Caller

EXPIRY_S = 120.0
CLIENTS_MAX = 50_000
COMMANDS_MAX = 1024
COMMANDS_BYTES_MAX = 16 << 20
"""What may wait for one client, beside the command that is the first to wait: several checks of large messages."""
TOPICS_MAX = 2_000
"""How many topics a client may name in its settings, and is known to send to."""
TOPIC_BYTES = 384
"""What a topic takes that a client sends to, about: its name, and a group of producers with the client in it."""
SETTINGS_BYTES_MAX = 256 << 10
SETTINGS_COPIES = 3
"""How often what settings say is there: as they came, read, and as the client is a member of its group."""


class CommandStream:
    """What waits to be told to one client on its telemetry stream."""

    def __init__(self, memory: MemoryShare | None = None) -> None:
        """What waits is drawn from `memory`: a check brings messages, as large as they may be."""
        self._memory = memory
        self._waiting: deque[tuple[TelemetryCommand, int]] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self.is_ended = False
        """Whether nothing more can be said."""
        self.error: Exception | None = None
        """Why the stream ends, if it ends badly."""

    def say(self, command: TelemetryCommand) -> None:
        """Tell the client something. Errors: Overloaded when it does not listen, or the process has no room for it."""
        waiting, size_bytes = len(self._waiting), command.ByteSize()
        if waiting >= COMMANDS_MAX or (waiting and self._bytes + size_bytes > COMMANDS_BYTES_MAX):
            raise Overloaded(f"{waiting} commands of {self._bytes} bytes wait for a client that does not read them")
        if self._memory is not None:
            self._memory.draw(size_bytes)
        self._waiting.append((command, size_bytes))
        self._bytes += size_bytes
        self._changed.set()

    def end(self, error: Exception | None = None) -> None:
        """Nothing more comes."""
        self.is_ended, self.error = True, self.error or error
        self._changed.set()

    def last(self, command: TelemetryCommand, error: Exception) -> None:
        """Tell the client why the stream ends, if there is room, and end it."""
        if len(self._waiting) < COMMANDS_MAX:
            self._waiting.append((command, 0))
        self.end(error)

    async def next(self) -> TelemetryCommand | None:
        """The next command; None at the end."""
        while not self._waiting:
            if self.is_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        command, size_bytes = self._waiting.popleft()
        self._bytes -= size_bytes
        if self._memory is not None:
            self._memory.give_back(size_bytes)
        return command


def check_size(settings: Settings) -> None:
    """What one client says of itself is bounded. Errors: Invalid."""
    count, size_bytes = len(settings.subscription.subscriptions or settings.publishing.topics), settings.ByteSize()
    if count > TOPICS_MAX or size_bytes > SETTINGS_BYTES_MAX:
        said = (
            f"{count} topics in {size_bytes} bytes; at most {TOPICS_MAX} in {SETTINGS_BYTES_MAX}: use several clients"
        )
        raise Invalid(said, field="settings")


def _kept_bytes(settings: Settings | None) -> int:
    return 0 if settings is None else SETTINGS_COPIES * settings.ByteSize()


@dataclass(slots=True)
class Client:
    """One client."""

    client_id: str
    language: str = ""
    client_version: str = ""
    peer: str = ""
    """Where its heartbeats come from."""
    principal: Principal = ANYBODY
    """Who said first that it is this client."""
    client_type: ClientType.ValueType = ClientType.CLIENT_TYPE_UNSPECIFIED
    group: str = ""
    settings: Settings | None = None
    publishes: set[str] = field(default_factory=set)
    """Topics it sends to; also the names of its producer groups."""
    asked: set[str] = field(default_factory=set)
    """Those of them about whose transactions it is asked."""
    seen_at_s: float = 0.0
    stream: CommandStream | None = None
    """The newest telemetry stream: where commands go."""
    session_id: str = ""
    """As a member of its groups; empty until it is one."""
    member_since_ms: int = 0
    member_of: set[str] = field(default_factory=set)


class Clients:
    """All clients of this snode."""

    def __init__(self, memory: MemoryShare) -> None:
        self._memory = memory
        """What they said of themselves."""
        self._clients: dict[str, Client] = {}

    def all(self) -> list[Client]:
        """The clients that are there."""
        return list(self._clients.values())

    def seen(self, caller: Caller, now_s: float) -> Client:
        """A client said something. Errors: Overloaded; Forbidden when it is another user's."""
        self.check_owner(caller)
        client = self._clients.get(caller.client_id)
        if client is None:
            if len(self._clients) >= CLIENTS_MAX:
                raise Overloaded(f"{CLIENTS_MAX} clients are connected to this snode; connect to another one")
            client = Client(caller.client_id, peer=caller.peer(), principal=PRINCIPAL.get())
            self._clients[caller.client_id] = client
        client.seen_at_s = now_s
        client.language = caller.language or client.language
        client.client_version = caller.client_version or client.client_version
        return client

    def check_owner(self, caller: Caller) -> None:
        """Refuse who takes another user's client id. Errors: Forbidden."""
        known = self._clients.get(caller.client_id)
        if known is not None:
            PRINCIPAL.get().check_owns(known.principal.user, "client id", "x-mq-client-id")

    def get(self, client_id: str) -> Client | None:
        """A client, if it is there."""
        return self._clients.get(client_id)

    def unsubscribed(self, client_id: str, lite_topic: str) -> None:
        """Tell a client that it is subscribed to a lite topic no more, if it listens."""
        client = self._clients.get(client_id)
        if client is not None and client.stream is not None:
            command = NotifyUnsubscribeLiteCommand(lite_topic=lite_topic)
            with contextlib.suppress(Overloaded):
                client.stream.say(TelemetryCommand(notify_unsubscribe_lite_command=command))

    def learn(self, client: Client, settings: Settings) -> None:
        """Keep what a client says of itself. Errors: Overloaded; then it is known as before."""
        more_bytes = _kept_bytes(settings) - _kept_bytes(client.settings)
        if more_bytes > 0:
            self._memory.draw(more_bytes)
        else:
            self._memory.give_back(-more_bytes)
        client.settings = settings

    def publishes(self, client: Client, topics: Collection[str]) -> None:
        """The client is a producer of these topics as well, but for those that are too many. Errors: Overloaded."""
        news = sorted(set(topics) - client.publishes)[: TOPICS_MAX - len(client.publishes)]
        if news:
            self._memory.draw(TOPIC_BYTES * len(news))
        client.publishes.update(news)

    @property
    def producer_count(self) -> int:
        """How many clients send to some topic."""
        return sum(bool(client.publishes) for client in self._clients.values())

    def leave(self, client_id: str) -> Client | None:
        """The client is gone; None if it was not there."""
        client = self._clients.pop(client_id, None)
        if client is None:
            return None
        self._memory.give_back(_kept_bytes(client.settings) + TOPIC_BYTES * len(client.publishes))
        if client.stream is not None:
            client.stream.end()
        return client

    def expired(self, now_s: float) -> list[Client]:
        """Take out those that have been silent for too long."""
        silent = [c.client_id for c in self._clients.values() if now_s - c.seen_at_s > EXPIRY_S]
        return [client for client_id in silent if (client := self.leave(client_id)) is not None]

    def end_streams(self) -> None:
        """End every telemetry stream."""
        for client in self.all():
            if client.stream is not None:
                client.stream.end()
