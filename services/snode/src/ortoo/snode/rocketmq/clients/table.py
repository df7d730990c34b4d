"""Connected clients by id. A client is alive while it sends requests, even without a telemetry stream.

A client that sends no settings after a server's restart is still served. Settings are only needed for transaction
checks, commands and operators.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from apache.rocketmq.v2.definition_pb2 import ClientType, Settings
from apache.rocketmq.v2.service_pb2 import NotifyUnsubscribeLiteCommand, TelemetryCommand
from ortoo.common.errors import Invalid, Overloaded
from ortoo.common.process.memory_budget import MemoryShare
from ortoo.snode.membership.fair_table import FairTable
from ortoo.snode.membership.group_members import GroupMember
from ortoo.snode.policy.principal import ANONYMOUS, PRINCIPAL, Principal, owner_at
from ortoo.snode.rocketmq.protocol.caller import Caller

EXPIRY_S = 120.0
"""Silence after which a client is removed."""
LOST_EXPIRY_S = 30.0
"""Silence after which a client without its telemetry stream is removed. Official clients send heartbeats every 10 s."""
CLIENTS_MAX = 62_500
COMMANDS_MAX = 1024
COMMANDS_BYTES_MAX = 16 << 20
"""Limit of the bytes that wait for one client, beside the first waiting command."""
TOPICS_MAX = 2_000
"""Maximum of topics in the settings of a client, and of recorded topics to which a client sends."""
TOPIC_BYTES = 384
"""Approximate memory of a topic that a client sends to: its name, and its producer group with the client."""
SETTINGS_BYTES_MAX = 256 << 10
SETTINGS_COPIES = 3
"""Copies of the settings: as received, decoded, and as group membership."""


class CommandStream:
    """The commands that wait for one client, and are sent on its telemetry stream."""

    def __init__(self, memory: MemoryShare | None = None) -> None:
        """The memory of waiting commands is drawn from `memory`, because transaction checks contain messages."""
        self._memory = memory
        self._waiting: deque[tuple[TelemetryCommand, int]] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self.is_ended = False
        """Whether the stream has ended."""
        self.error: Exception | None = None
        """The error with which the stream ends, if any."""

    def send(self, command: TelemetryCommand) -> None:
        """Queue a command. Errors: Overloaded if the client does not read, or the process has no memory for it."""
        waiting, size_bytes = len(self._waiting), command.ByteSize()
        if waiting >= COMMANDS_MAX or (waiting and self._bytes + size_bytes > COMMANDS_BYTES_MAX):
            raise Overloaded(f"{waiting} commands of {self._bytes} bytes wait for a client that does not read them")
        if self._memory is not None:
            self._memory.draw(size_bytes)
        self._waiting.append((command, size_bytes))
        self._bytes += size_bytes
        self._changed.set()

    def end(self, error: Exception | None = None) -> None:
        """End the stream after the waiting commands; `error` ends it with an error."""
        self.is_ended, self.error = True, self.error or error
        self._changed.set()

    def end_with(self, command: TelemetryCommand, error: Exception) -> None:
        """Queue a last command if there is space, and end the stream with `error`."""
        if len(self._waiting) < COMMANDS_MAX:
            self._waiting.append((command, 0))
        self.end(error)

    async def next(self) -> TelemetryCommand | None:
        """Wait for the next command; None at the end of the stream."""
        while not self._waiting:
            if self.is_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        command, size_bytes = self._waiting.popleft()
        self._bytes -= size_bytes
        if self._memory is not None:
            self._memory.release(size_bytes)
        return command


def check_size(settings: Settings) -> None:
    """Refuse settings of a client that are too large. Errors: Invalid."""
    count, size_bytes = len(settings.subscription.subscriptions or settings.publishing.topics), settings.ByteSize()
    if count > TOPICS_MAX or size_bytes > SETTINGS_BYTES_MAX:
        message = (
            f"{count} topics and {size_bytes} bytes; give at most {TOPICS_MAX} topics and {SETTINGS_BYTES_MAX} bytes"
        )
        raise Invalid(message, field="settings")


def _settings_bytes(settings: Settings | None) -> int:
    return 0 if settings is None else SETTINGS_COPIES * settings.ByteSize()


class Registration(NamedTuple):
    """The state of a client when it was made a group member, and the resulting members by group."""

    inputs: tuple[Any, ...]
    members: dict[str, GroupMember]


@dataclass(slots=True)
class ConnectedClient:
    """One connected client of RocketMQ's protocol."""

    client_id: str
    language: str = ""
    client_version: str = ""
    peer: str = ""
    """The address from which the client sends heartbeats."""
    principal: Principal = ANONYMOUS
    """The user who first used this client id."""
    client_type: ClientType.ValueType = ClientType.CLIENT_TYPE_UNSPECIFIED
    group: str = ""
    settings: Settings | None = None
    published_topics: set[str] = field(default_factory=set)
    """Topics to which the client sends. They are also the names of its producer groups."""
    checked_topics: set[str] = field(default_factory=set)
    """The published topics for which the client gets transaction checks."""
    last_active_s: float = 0.0
    stream: CommandStream | None = None
    """The newest telemetry stream, for commands."""
    has_lost_stream: bool = False
    """Whether the client's newest telemetry stream has ended."""
    session_id: str = ""
    """The session id of the client's group memberships; empty before the first one."""
    member_since_ms: int = 0
    member_of: set[str] = field(default_factory=set)
    registered: "Registration | None" = None
    """The last registration; None = it has to be repeated with each heartbeat."""
    has_ended: bool = False
    """Whether the client was removed, so that it joins no group again."""


class ClientTable:
    """The connected clients of this snode that use RocketMQ's protocol."""

    def __init__(self, memory: MemoryShare) -> None:
        self._memory = memory
        """Memory of the clients' settings."""
        self._clients: FairTable[ConnectedClient] = FairTable(CLIENTS_MAX, "clients are connected")

    def all(self) -> list[ConnectedClient]:
        """The connected clients."""
        return list(self._clients.values())

    def touch(self, caller: Caller, now_s: float) -> ConnectedClient:
        """Record that the caller is alive; returns its client.

        Errors: Overloaded, Forbidden if the client id belongs to another user.
        """
        client = self.check_owner(caller)
        if client is None:
            peer = caller.peer()
            client = ConnectedClient(caller.client_id, peer=peer, principal=PRINCIPAL.get())
            self._clients.put(caller.client_id, client, owner_at(peer.rpartition(":")[0]))
        client.last_active_s = now_s
        client.language = caller.language or client.language
        client.client_version = caller.client_version or client.client_version
        return client

    def check_owner(self, caller: Caller) -> ConnectedClient | None:
        """The client of a caller; None if it is not known. Errors: Forbidden if its id belongs to another user."""
        client = self._clients.get(caller.client_id)
        if client is not None:
            PRINCIPAL.get().check_owner(client.principal.user, "client id", "x-mq-client-id")
        return client

    def get(self, client_id: str) -> ConnectedClient | None:
        """The connected client with this id, or None."""
        return self._clients.get(client_id)

    def notify_unsubscribed(self, client_id: str, lite_topic: str) -> None:
        """Notify a client, if it has a telemetry stream, that it no longer subscribes to a lite topic."""
        client = self._clients.get(client_id)
        if client is not None and client.stream is not None:
            command = NotifyUnsubscribeLiteCommand(lite_topic=lite_topic)
            with contextlib.suppress(Overloaded):
                client.stream.send(TelemetryCommand(notify_unsubscribe_lite_command=command))

    def set_settings(self, client: ConnectedClient, settings: Settings) -> None:
        """Store the settings of a client. Errors: Overloaded. After an error, the previous settings stay."""
        more_bytes = _settings_bytes(settings) - _settings_bytes(client.settings)
        if more_bytes > 0:
            self._memory.draw(more_bytes)
        else:
            self._memory.release(-more_bytes)
        client.settings = settings

    def add_published_topics(self, client: ConnectedClient, topics: Collection[str]) -> None:
        """Record the topics to which a client sends, up to a limit. Errors: Overloaded."""
        added = sorted(set(topics) - client.published_topics)[: TOPICS_MAX - len(client.published_topics)]
        if added:
            self._memory.draw(TOPIC_BYTES * len(added))
        client.published_topics.update(added)

    @property
    def producer_count(self) -> int:
        """The number of clients that send to at least one topic."""
        return sum(bool(client.published_topics) for client in self._clients.values())

    def remove(self, client_id: str) -> ConnectedClient | None:
        """Remove and return the client with this id; None if it is not connected."""
        client = self._clients.remove(client_id)
        if client is None:
            return None
        self._memory.release(_settings_bytes(client.settings) + TOPIC_BYTES * len(client.published_topics))
        if client.stream is not None:
            client.stream.end()
        return client

    def remove_expired(self, now_s: float) -> list[ConnectedClient]:
        """Remove and return the clients that have been silent for too long."""
        silent = [
            client.client_id
            for client in self._clients.values()
            if now_s - client.last_active_s > (LOST_EXPIRY_S if client.has_lost_stream else EXPIRY_S)
        ]
        return [client for client_id in silent if (client := self.remove(client_id)) is not None]

    def end_streams(self) -> None:
        """End every telemetry stream."""
        for client in self.all():
            if client.stream is not None:
                client.stream.end()
