"""Results of the operator's calls: groups, clients, processes, as plain values that convert to JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from ortoo.client.admin.lag import LagByState
from ortoo.client.core.queues import Queue
from ortoo.client.read.tailing import StoredMessage
from ortoo.common.records.message import Message


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group as registered at the name server."""

    name: str
    consume_enabled: bool
    slow_consumer_threshold_messages: int
    slow_consumer_grace_ms: int
    created_at_ms: int
    attempts_max: int = 16
    """Deliveries of a message before it is parked."""
    retry: str = "classic"
    """The retry policy of messages released without a delay, in the form that `GroupAdmin.update` takes."""
    in_flight_max: int = 0
    """Largest number of messages of a topic in flight on each enode; 0 = 10,000 a queue."""
    park_expired: bool = False
    """Whether expired messages are parked; otherwise they are dropped."""
    auto_created: bool = False
    """Whether it was created automatically because a consumer named it, and not declared."""
    lite_exclusive: bool = False
    """Whether each lite topic has only one group member, the last that subscribed to it."""
    broadcast_enabled: bool = True
    """Whether members may consume by broadcast."""
    notify_members_changed: bool = True
    """Whether members are notified when members join or leave; otherwise they check every 20 s."""
    unacknowledged_bytes_max: int = 64 << 20
    """Largest number of unacknowledged bytes of a push session."""


class GroupChanges(TypedDict, total=False):
    """The settings that `GroupAdmin.update` changes, with the names and meanings of `GroupInfo`. None = unchanged."""

    consume_enabled: bool | None
    broadcast_enabled: bool | None
    notify_members_changed: bool | None
    slow_consumer_threshold_messages: int | None
    slow_consumer_grace_ms: int | None
    unacknowledged_bytes_max: int | None
    attempts_max: int | None
    retry: str | None
    in_flight_max: int | None
    park_expired: bool | None
    lite_exclusive: bool | None


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    """A deleted group whose offsets are kept, so that it can be restored."""

    group: GroupInfo
    deleted_at_ms: int
    due_at_ms: int
    """The group can be restored until this time."""


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """An enode or a snode. The address of an enode is for operators; clients connect to snodes only."""

    name: str
    address: str
    alive: bool
    role: str = ""
    """ASYNC_MASTER or SYNC_MASTER for an enode, otherwise empty."""
    index_nearly_full: bool = False
    """Whether the enode's indexes use 80 % of `store.index_bytes_max` or more. At 100 % sends are rejected."""
    write_refusal: str = ""
    """The reason why the enode rejects sends now; empty = it accepts them."""


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The processes of a cluster."""

    enodes: tuple[ProcessInfo, ...]
    snodes: tuple[ProcessInfo, ...]
    version: int
    now_ms: int = 0
    """The clock of the snode that answered."""
    inner_ports_open: bool = False
    """The snode enforces access rules and has no cluster token, so clients that reach an enode directly bypass them."""


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message that waits for its delivery time."""

    message_id: str
    """Empty if its producer chose the id."""
    recall_handle: str
    """The handle for `Client.recall`."""
    queue: Queue
    deliver_at_ms: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without a verdict."""

    transaction_id: str
    queue: Queue
    """The queue that its messages will be stored in."""
    message_count: int
    producer_group: str
    started_at_ms: int
    next_check_ms: int
    """Time of the next check with its producers."""
    checks: int
    """Number of checks with its producers so far."""
    parked: bool
    """Whether checks have ended and an operator must decide."""


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """The result of a search, newest first; messages on `enodes_away` could not be searched."""

    messages: tuple[StoredMessage, ...]
    unreachable_enodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupMemberInfo:
    """One consumer of a group."""

    client_id: str
    snode: str
    language: str
    client_version: str
    topics: tuple[str, ...]
    pushed: bool
    """Whether it receives messages by push; otherwise it pulls or pops."""
    broadcast: bool
    zone: str
    joined_at_ms: int
    pops: bool = False
    """Whether it requests messages by pops. It is listed for a while after its last pop."""


@dataclass(frozen=True, slots=True)
class QueueOffset:
    """The next offset that a group will consume in a queue; -1 = the group has no offset in the queue."""

    queue: Queue
    offset: int
    previous: int = -1
    """The offset before a reset."""
    refused_offset: int = -1
    """The target that a reset did not apply, because it lies ahead and `force` was not given."""


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """The offsets and the lag of a group in one topic."""

    topic: str
    offsets: tuple[QueueOffset, ...]
    lag_messages: int
    by_state: LagByState = LagByState()
    """The messages of this topic, without those in the group's retry topic and dead-letter topic."""


@dataclass(frozen=True, slots=True)
class TopicMode:
    """How a group consumes a topic on an enode: "offsets", "pop" or "pop-in-order"."""

    topic: str
    enode: str
    mode: str


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its settings, its members and its progress."""

    group: GroupInfo
    members: tuple[GroupMemberInfo, ...]
    progress: tuple[TopicProgress, ...]
    retries: LagByState = LagByState()
    """The messages of all topics in the group's retry topic and dead-letter topic."""


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
    connected_at_ms: int


@dataclass(frozen=True, slots=True)
class ClientQueue:
    """One queue of a client.

    `offset` is the offset after the last processed message, and `next_offset` the offset after the last read message.
    -1 = unknown.
    """

    group: str
    queue: Queue
    offset: int
    next_offset: int
    held_messages: int
    locked: bool


@dataclass(frozen=True, slots=True)
class ClientDescription:
    """One client and its queues, as its snode knows them or as the client reported them on request."""

    client: ClientInfo
    queues: tuple[ClientQueue, ...]
    properties: Mapping[str, str]
    """Properties that the client reported; empty if it was not asked."""
    failure: str
    """The reason why the client did not answer; empty if it did."""


@dataclass(frozen=True, slots=True)
class ConsumeDirectlyResult:
    """The result of a client's handler for one message."""

    succeeded: bool
    duration_ms: int
    error: str
    orderly: bool


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message in the dead-letter topic of a group."""

    message_id: str
    queue: Queue
    """The queue of the dead letter."""
    offset: int
    reason: str
    """"attempts" = all attempts were used, "asked" = a consumer parked it."""
    attempts: int
    error: str
    """The error that the last consumer reported."""
    consumer: str
    origin_queue: Queue
    """The queue of the original message."""
    origin_offset: int
    parked_at_ms: int
    replayed: bool
    """Whether it was sent again."""
    message: Message
    """As its producer sent it."""


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """The progress of a replay of dead letters."""

    replayed_messages: int
    """Messages sent again so far, or in a dry run those that would be."""
    scanned_messages: int
    skipped_messages: int
    """Messages that were seen and had been replayed before."""
    done: bool


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """One of the next messages for a group; it is not leased."""

    message_id: str
    queue: Queue
    offset: int
    stored_at_ms: int
    attempts: int
    """Number of deliveries to the group so far."""
    message: Message
