"""Topics, groups, enodes and snodes of the cluster, as plain values."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ortoo.common.directory.group import Group
from ortoo.common.directory.topic import MessageType, Permission, Placement, PublishPlace
from ortoo.common.groups.group_topics import OwnedTopicKind, TopicOwner
from ortoo.common.groups.handle_seal import HandleKeys


class DeliveryMode(enum.IntEnum):
    """The way in which a group consumes a topic; the values are those of the protobuf enum."""

    UNDECIDED = 0
    OFFSETS = 1
    POP = 2
    POP_IN_ORDER = 3


class Queue(NamedTuple):
    """A queue of a topic. Queues are sorted by topic, enode and id, because every assignment requires this order."""

    topic: str
    enode: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.enode}/{self.queue_id}"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, as the name server stores it."""

    name: str
    topic_id: int
    version: int
    permission: Permission
    placements: tuple[Placement, ...]
    created_at_ms: int = 0
    message_type: MessageType = MessageType.UNSPECIFIED
    publish_order: tuple[PublishPlace, ...] = ()
    """The queues for producers, in an operator's order; empty = all queues that accept messages, by enode."""
    lite_ttl_ms: int = 0
    """For a parent of lite topics, the lifetime of a lite topic without messages; 0 = unlimited."""
    parent: str = ""
    """The parent, if the topic stores a lite topic; empty = it stores none."""
    owner_group: str = ""
    """The group to which a retry topic or dead-letter topic belongs; empty = none."""
    owner_kind: OwnedTopicKind = OwnedTopicKind.UNSPECIFIED

    @property
    def owner(self) -> TopicOwner:
        """The group to which the topic belongs, and the kind of the topic."""
        return TopicOwner(self.owner_group, self.owner_kind)

    @property
    def readable(self) -> bool:
        """Whether the topic's permission allows to receive messages."""
        return self.permission in (Permission.READ_WRITE, Permission.READ_ONLY)

    @property
    def writable(self) -> bool:
        """Whether the topic's permission allows to send messages."""
        return self.permission in (Permission.READ_WRITE, Permission.WRITE_ONLY)

    def read_queues(self) -> list[Queue]:
        """All queues that can be read, sorted."""
        return sorted(Queue(self.name, p.enode, i) for p in self.placements for i in range(p.read_queue_count))

    def write_queues(self) -> Sequence[Queue]:
        """All queues for producers, in the operator's publish order; without such an order, they are sorted."""
        return _write_queues(self.name, self.version, self.publish_order, self.placements)

    @property
    def enodes(self) -> list[str]:
        """The enodes on which the topic has queues."""
        return [placement.enode for placement in self.placements]

    def placement(self, enode: str) -> Placement | None:
        """The queues of the topic on one enode; None if it has none there."""
        return next((p for p in self.placements if p.enode == enode), None)


@lru_cache(maxsize=4_096)
def _write_queues(
    name: str, version: int, order: tuple[PublishPlace, ...], placements: tuple[Placement, ...]
) -> tuple[Queue, ...]:
    """The queues of one version of a topic, cached because every send needs them."""
    if order:
        return tuple(Queue(name, p.enode, i) for p in order for i in range(p.queue_count))
    return tuple(sorted(Queue(name, p.enode, i) for p in placements for i in range(p.write_queue_count)))


class EnodeReplicaState(enum.IntEnum):
    """The state of a replica of an enode; the values are those of the protobuf enum."""

    UNSPECIFIED = 0
    LEADING = 1
    FOLLOWING = 2
    LEARNING = 3
    AWAY = 4
    WAITING = 5


class EnodeReplica(NamedTuple):
    """A replica of an enode: a process that stores a copy of its log."""

    number: int
    disk: str
    state: EnodeReplicaState
    address: str


@dataclass(frozen=True, slots=True)
class EnodeEntry:
    """An enode in the directory."""

    name: str
    address: str
    store_id: str
    alive: bool
    role: str = ""
    """SYNC_MASTER or ASYNC_MASTER."""
    index_nearly_full: bool = False
    write_refusal: str = ""
    """Why the enode accepts no messages now; empty = it accepts messages."""
    epoch: int = 0
    """The epoch of the leader at the address."""
    replicas: tuple[EnodeReplica, ...] = ()
    other_directory_id: str = ""
    """The id of another directory that the enode follows; empty = it follows this one."""

    @property
    def leader_epoch(self) -> int:
        """The epoch of the enode's leader; 0 for an enode with a single replica."""
        return self.epoch if len(self.replicas) > 1 else 0


@dataclass(frozen=True, slots=True)
class SnodeEntry:
    """A snode in the directory."""

    name: str
    address: str
    alive: bool
    cluster_address: str = ""
    """The address for other snodes, if it differs from the address for clients."""


@dataclass(frozen=True, slots=True)
class DirectoryUpdate:
    """One message of the name server's watch: the full directory (`snapshot`), or changes of it."""

    version: int
    snapshot: bool = False
    topics: tuple[Topic, ...] = ()
    deleted_topics: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    deleted_groups: tuple[str, ...] = ()
    enodes: tuple[EnodeEntry, ...] = ()
    snodes: tuple[SnodeEntry, ...] = ()
    directory_id: str = ""
    """The id of the directory that the name server serves, if it sends one."""
    handle_keys: HandleKeys | None = None
    """All keys that seal handles; None = unchanged, or the name server has none."""
    resumed: bool = False
    """Whether the changes continue an earlier watch. Then all processes that have a lease are listed."""
