"""What an operator is told: topics, groups, clients, processes; plain values that turn into JSON by themselves."""

from collections.abc import Mapping
from dataclasses import dataclass

from ortoo.client.core.place import Queue
from ortoo.client.read.tailing import StoredMessage
from ortoo.common.records.message import Message


@dataclass(frozen=True, slots=True)
class TopicPlacement:
    """A topic's queues on one enode; queue ids run from 0."""

    enode: str
    read_queue_count: int
    write_queue_count: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the name server knows it."""

    name: str
    topic_id: int
    permission: str
    """read_write, read_only, write_only or none."""
    placements: tuple[TopicPlacement, ...]
    created_at_ms: int
    message_type: str = "any"
    """What RocketMQ's clients may send to it."""
    publish_order: tuple[tuple[str, int], ...] = ()
    """What producers are given: (enode, how many of its queues), in this order; empty = all queues, by enode."""
    lite_ttl_ms: int = 0
    """Of one of type lite: its lite topics that got no message for so long are deleted; 0 = never."""


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A deleted topic whose messages are kept, so that it can come back."""

    topic: TopicInfo
    deleted_at_ms: int
    due_at_ms: int
    """From when on it cannot."""


@dataclass(frozen=True, slots=True)
class OfferedTopic:
    """A topic that enodes hold and that the name server's directory does not know."""

    name: str
    topic_id: int
    placements: tuple[TopicPlacement, ...]
    obstacle: str
    """Why it cannot be adopted, and what to do; empty = it can."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """What became of the topics that enodes offered."""

    topics: tuple[TopicInfo, ...]
    refused: tuple[OfferedTopic, ...]


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """What one queue holds: offsets from `begin_offset` to `end_offset`, exclusive."""

    queue: Queue
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and what its queues hold; those of an enode that is away are missing."""

    topic: TopicInfo
    queues: tuple[QueueInfo, ...]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group as the name server knows it."""

    name: str
    consume_enabled: bool
    slow_consumer_threshold_messages: int
    slow_consumer_grace_ms: int
    created_at_ms: int
    attempts_max: int = 16
    """How often a message is tried before it is parked."""
    retry: str = "classic"
    """When a message comes again that was given back without a delay: as `GroupAdmin.update` takes it."""
    in_flight_max: int = 0
    """How many messages of a topic may be in flight on each enode; 0 = 10,000 a queue."""
    park_expired: bool = False
    """Whether messages whose time is over are parked; otherwise they are dropped."""
    by_use: bool = False
    """Whether nobody declared it: it was created because a consumer named it."""
    lite_exclusive: bool = False
    """Whether each lite topic is for one member alone, the last that subscribed to it."""


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    """A deleted group whose offsets are kept, so that it can come back."""

    group: GroupInfo
    deleted_at_ms: int
    due_at_ms: int
    """From when on it cannot."""


@dataclass(frozen=True, slots=True)
class QueueLag:
    """How far a group is behind in one queue; a `committed_offset` of -1 means that it has not said yet."""

    queue: Queue
    committed_offset: int
    end_offset: int
    lag_messages: int


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is behind in a topic."""

    queues: tuple[QueueLag, ...]
    lag_messages: int


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """An enode or a snode; the address of an enode is for operators, clients never need it."""

    name: str
    address: str
    alive: bool
    role: str = ""
    """Of an enode: ASYNC_MASTER or SYNC_MASTER."""
    index_nearly_full: bool = False
    """Of an enode: its `store.index_bytes_max` is used to four fifths or more; beyond it sends are refused."""
    refuses_writes: str = ""
    """Of an enode: why it takes no messages now; empty = it takes them."""


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The processes of a cluster."""

    enodes: tuple[ProcessInfo, ...]
    snodes: tuple[ProcessInfo, ...]
    version: int
    now_ms: int = 0
    """The clock of the snode that answered."""
    inner_ports_open: bool = False
    """That snode keeps rules of access, and has no token of the cluster: who reaches an enode passes them."""


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message that waits for its time."""

    message_id: str
    """Unless its producer chose one."""
    recall_handle: str
    """What `Client.recall` takes."""
    queue: Queue
    deliver_at_ms: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that nobody has ended."""

    transaction_id: str
    queue: Queue
    """Where its messages will be."""
    message_count: int
    producer_group: str
    begun_at_ms: int
    next_check_ms: int
    """When its producers are asked next."""
    checks: int
    """How often they were asked."""
    parked: bool
    """Nobody is asked any more; an operator decides."""


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """What a search found, the newest first; what lies on `enodes_away` could not be looked at."""

    messages: tuple[StoredMessage, ...]
    enodes_away: tuple[str, ...]


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
    before: int = -1
    """After a reset: what it was before."""
    wanted: int = -1
    """After a reset that left it: where it would be, had going forward been forced."""


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


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a group could not process."""

    message_id: str
    queue: Queue
    """Where the dead letter lies."""
    offset: int
    reason: str
    """"attempts": all were used; "asked": a consumer asked for it."""
    attempts: int
    error: str
    """What the last consumer said."""
    consumer: str
    origin_queue: Queue
    """Where the message lay."""
    origin_offset: int
    parked_at_ms: int
    replayed: bool
    """Whether it was sent again."""
    message: Message
    """As its producer sent it."""


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far a replay has come."""

    replayed_messages: int
    """Sent again so far; in a dry run: to be sent."""
    seen_messages: int
    skipped_messages: int
    """Seen, and sent again before."""
    done: bool


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message that is next for a group."""

    message_id: str
    queue: Queue
    offset: int
    stored_at_ms: int
    attempts: int
    """How often the group had it."""
    message: Message
