"""What an operator is told about groups and clients, as plain values that turn into JSON by themselves."""

from collections.abc import Mapping
from dataclasses import dataclass

from ortoo.client.admin.descriptions import GroupInfo
from ortoo.client.core.place import Queue


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """One consumer of a group."""

    client_id: str
    snode: str
    language: str
    client_version: str
    topics: tuple[str, ...]
    pushed: bool
    """Whether it gets messages by push; otherwise it pulls."""
    broadcast: bool
    room: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class QueueOffset:
    """The next message a group will consume in a queue; -1 = it has no offset there."""

    queue: Queue
    offset: int


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """How far a group is in one topic."""

    topic: str
    offsets: tuple[QueueOffset, ...]
    lag_messages: int


@dataclass(frozen=True, slots=True)
class TopicMode:
    """How a group consumes a topic on an enode: "offsets", "pop" or "pop-in-order"."""

    topic: str
    enode: str
    mode: str


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group: its settings, its members, and how far it is."""

    group: GroupInfo
    members: tuple[MemberInfo, ...]
    progress: tuple[TopicProgress, ...]


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """One client that is connected."""

    client_id: str
    session_id: str
    snode: str
    peer: str
    language: str
    client_version: str
    producer_groups: tuple[str, ...]
    consumer_groups: tuple[str, ...]
    since_ms: int


@dataclass(frozen=True, slots=True)
class ClientQueue:
    """One queue of a client: `offset` is what it has processed, `next_offset` what it has read; -1 = not known."""

    group: str
    queue: Queue
    offset: int
    next_offset: int
    held_messages: int
    locked: bool


@dataclass(frozen=True, slots=True)
class ClientDescription:
    """One client and its queues: as its snode knows them, or as the client says when it was asked."""

    client: ClientInfo
    queues: tuple[ClientQueue, ...]
    properties: Mapping[str, str]
    """What the client says about itself; empty when it was not asked."""
    failure: str
    """Why it did not answer; empty when it did."""


@dataclass(frozen=True, slots=True)
class DirectResult:
    """What a client's handler made of one message."""

    succeeded: bool
    duration_ms: int
    error: str
    orderly: bool
