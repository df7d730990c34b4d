"""Requests to an enode and its answers, as plain values; and the lookup of links by enode name."""

import enum
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ortoo.common.errors import Conflict, NotFound, OrtooError, Unavailable
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.filters.pushdown import Pushdown
from ortoo.common.filters.selection import SelectedRows, select_rows
from ortoo.common.records.sealed_batch import SealedBatch, StoredBatch
from ortoo.snode.cluster.directory import DirectoryCache, unavailable_enode
from ortoo.snode.cluster.routes import EnodeEntry, EnodeReplicaState, Queue

if TYPE_CHECKING:
    from ortoo.snode.enodes.grpc_link import GrpcEnodeLink  # it is made of these values

Answer = TypeVar("Answer")
LinkFactory = Callable[[str, str, int], "GrpcEnodeLink"]
"""Returns the link to an enode with this name, address and epoch."""
FETCH_WAIT_MS = 30_000
"""Time for which a read that follows a queue waits at the end of the queue."""
FETCH_BYTES_MAX = 1 << 20
"""Maximum size of the answer to a read that follows a queue."""


class FlushMode(enum.IntEnum):
    """The time at which an append is acknowledged; the values are those of the protobuf enum."""

    DEFAULT = 0
    SYNC = 1
    ASYNC = 2


@dataclass(frozen=True, slots=True)
class AppendedBatch:
    """The location of a stored batch."""

    first_offset: int
    stored_at_ms: int
    flush_mode: FlushMode


@dataclass(frozen=True, slots=True)
class FetchBatchesRequest:
    """A request to read a queue."""

    topic_id: int
    queue_id: int
    from_offset: int
    bytes_max: int = 0
    wait_ms: int = 0
    """Time for which the read waits at the end of the queue."""
    group: str = ""
    generation: int = 0
    """The generation of the group's lock; 0 = a read without lock."""
    pushdown: Pushdown | None = None
    """The filter and projection to apply to the batches; None = all batches, whole."""
    any_replica: bool = False
    """Whether a replica that does not lead may answer, or refuse."""


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """The answer to a read of a queue: batches in offset order. The first may begin before the requested offset."""

    batches: tuple[StoredBatch, ...]
    next_offset: int
    end_offset: int
    parts: tuple[SelectedRows, ...] | None = None
    """The selected parts instead of batches; None = no selection was requested, or the enode cannot select."""

    @property
    def size_bytes(self) -> int:
        """The size of the fetched batches or parts."""
        held = self.batches if self.parts is None else self.parts
        return sum(len(one.batch.records) for one in held if one.batch is not None)

    def select_parts(
        self, from_offset: int, to_offset: int | None = None, message_filter: MessageFilter | None = None
    ) -> Iterator[SelectedRows]:
        """Yield the requested rows of the batches. `message_filter` is the filter of the request.

        The last part ends at `next_offset`, even if it has no rows.
        """
        if self.parts is None:
            for stored in self.batches:
                yield select_rows(stored, from_offset, to_offset, message_filter)
            return
        yield from self.parts
        if not self.parts or self.parts[-1].next_offset < self.next_offset > from_offset:
            yield SelectedRows(from_offset, self.next_offset, 0, None, b"", 0)


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The range of stored offsets in one queue."""

    queue_id: int
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class TrimmedRange:
    """The range of readable offsets in one queue after a trim, and its begin before."""

    queue_id: int
    previous_begin_offset: int
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class QueueSize:
    """The stored bytes of a part of a queue that ends at `end_offset`, exclusive."""

    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LagByState:
    """The messages of one topic that a group has not finished; the fields are those of the protobuf message."""

    waiting: int = 0
    leased: int = 0
    retrying: int = 0
    parked: int = 0
    delayed: int = 0
    next_retry_at_ms: int = 0
    attempts: int = 0
    consumer: str = ""
    error: str = ""
    oldest_at_ms: int = 0
    retention_used: float = 0.0
    lost: int = 0
    lost_at_ms: int = 0

    def merged(self, other: "LagByState") -> "LagByState":
        """The messages of both."""
        failing = max((self, other), key=lambda one: (bool(one.error), one.attempts))
        return LagByState(
            self.waiting + other.waiting,
            self.leased + other.leased,
            self.retrying + other.retrying,
            self.parked + other.parked,
            self.delayed + other.delayed,
            min(self.next_retry_at_ms or other.next_retry_at_ms, other.next_retry_at_ms or self.next_retry_at_ms),
            max(self.attempts, other.attempts),
            failing.consumer,
            failing.error,
            min(self.oldest_at_ms or other.oldest_at_ms, other.oldest_at_ms or self.oldest_at_ms),
            max(self.retention_used, other.retention_used),
            self.lost + other.lost,
            max(self.lost_at_ms, other.lost_at_ms),
        )


@dataclass(frozen=True, slots=True)
class TopicLag:
    """The lag of a group in one topic on one enode."""

    topic_id: int
    by_state: LagByState
    unfinished: Mapping[int, int] = field(default_factory=dict)
    """Queue id to the number of unfinished messages; queues without an offset of the group are absent."""


@dataclass(frozen=True, slots=True)
class DeferredMessage:
    """A message that is not visible yet: a delayed message, or one of an open transaction."""

    queue_id: int
    deliver_at_ms: int
    """0 = it belongs to a transaction."""
    attempts: int
    """The number of failed attempts, for a copy in a retry topic."""
    half: "OpenHalf | None" = None


class MessagePlace(NamedTuple):
    """The location of a message in a topic on one enode; for a delayed message, `offset` is its timer number."""

    queue_id: int
    offset: int
    duplicate: bool = False
    """Whether the message was stored before."""


@dataclass(frozen=True, slots=True)
class DelayedEntry:
    """One delayed message."""

    timer_id: int
    queue_id: int
    deliver_at_ms: int


@dataclass(frozen=True, slots=True)
class LockRequest:
    """A request of a session to acquire or release the lock of one queue."""

    group: str
    topic_id: int
    queue_id: int
    owner: str
    """A client id."""
    session_id: str
    resume: bool = False
    """Whether the session had the lock before. It then cannot take the lock from a newer session of the same owner."""


@dataclass(frozen=True, slots=True)
class LockResult:
    """The result of a lock request: the lock's generation, or 0 if it is refused.

    After a refusal, `owner` has the lock for another `remaining_ms`, or `error` is the reason.
    """

    generation: int
    owner: str = ""
    remaining_ms: int = 0
    error: OrtooError | None = None


@dataclass(frozen=True, slots=True)
class Interruption:
    """Messages of one queue that a consumer had when its session ended without an answer."""

    queue_id: int
    offset: int
    """The first of the messages."""
    end_offset: int
    """The offset after the last of the messages."""
    attempts: int = 0
    """The number of attempts of the message at `offset`. In a report: 1 if the consumer had only this message."""
    repeats: int = 0
    """The number of consecutive interruptions at `offset`."""


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """The offset of a group in a queue, and the last interrupted delivery after it."""

    offset: int
    interruption: Interruption | None = None


LockKey = tuple[str, int, int]
"""(group, topic id, queue id)."""
OffsetRow = tuple[int, int, int]
"""(queue id, next offset, generation of the lock or 0)."""


@dataclass(frozen=True, slots=True)
class OpenHalf:
    """An open transaction on one enode."""

    number: int
    topic_id: int
    queue_id: int
    message_count: int
    stored_at_ms: int
    next_check_ms: int
    checks: int
    parked: bool
    producer_group: str


@dataclass(frozen=True, slots=True)
class DueHalf:
    """A transaction whose producer must be asked for the verdict, and its messages."""

    half: OpenHalf
    batch: SealedBatch


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule on one enode. `catch_up` is the number of a policy, which the enode checks."""

    topic_id: int
    queue_id: int
    name: str
    cron: str
    timezone: str
    period_ms: int
    catch_up: int
    batch: SealedBatch | None = None
    """Its message; None in lists without messages."""
    suspended: bool = False
    settled_ms: int = 0
    sent_count: int = 0
    next_ms: int = 0


class ScheduleChange(enum.IntEnum):
    """A change of a schedule; the values are those of the protobuf enum."""

    SUSPEND = 1
    RESUME = 2
    DELETE = 3


class HalfVerdict(enum.IntEnum):
    """The end of a transaction, commit or roll back; the values are those of the protobuf enum."""

    COMMIT = 1
    ROLL_BACK = 2


class VerdictSource(enum.IntEnum):
    """The source of a verdict; the values are those of the protobuf enum."""

    PRODUCER = 1
    CHECK = 2
    OPERATOR = 3


class EnodeLinks:
    """Links to the enodes of the directory."""

    def __init__(self, directory: DirectoryCache, link_factory: LinkFactory, *, reads_followers: bool = False) -> None:
        self._directory = directory
        self._reads_followers = reads_followers
        self._link_factory = link_factory
        self._leader_epochs: dict[str, int] = {}

    def to(self, enode: str) -> "GrpcEnodeLink":
        """The link to an enode.

        Errors: Unavailable if it has not registered or is known to be unreachable. Conflict if it follows another
        directory: it would never learn of the topic, so that a retry cannot succeed.
        """
        entry = self._directory.registered_enode(enode)
        if entry.other_directory_id:
            raise Conflict(
                f"enode {enode} follows directory {entry.other_directory_id}, and this snode follows directory "
                f"{self._directory.directory_id}: their name servers use different databases. `ortoo doctor` names the "
                "name servers; give all of them one database_url"
            )
        link = self._link_factory(enode, entry.address, entry.leader_epoch)
        # A lease may be missing because the name server is new; a working connection is better evidence.
        if not entry.alive and not link.connected:
            raise unavailable_enode(f"enode {enode} is unreachable, its lease expired; retry when it is back")
        return link

    def follower(self, queue: Queue) -> "GrpcEnodeLink | None":
        """The link to a follower of the queue's enode, for reads of committed messages; None = read from the leader.

        The queue id selects the follower, so that the queues of an enode are spread over its followers.
        """
        entry = self._directory.enode(queue.enode) if self._reads_followers else None
        following = (
            [one for one in entry.replicas if one.state is EnodeReplicaState.FOLLOWING and one.address] if entry else []
        )
        if not following:
            return None
        one = following[queue.queue_id % len(following)]
        return self._link_factory(f"{queue.enode} replica {one.number}", one.address, 0)

    def update_leaders(self, changed: Iterable[EnodeEntry]) -> None:
        """Replace links to former leaders of these enodes, whose registrations have changed.

        Requests in flight to a former leader thus fail at once, and not only when the next request is sent.
        """
        for entry in changed:
            if self._leader_epochs.get(entry.name, 0) < entry.leader_epoch:
                if entry.name in self._leader_epochs:
                    self._link_factory(entry.name, entry.address, entry.leader_epoch)
                self._leader_epochs[entry.name] = entry.leader_epoch

    async def ask_all(
        self,
        enodes: Iterable[str],
        operation: "Callable[[GrpcEnodeLink], Awaitable[Answer]]",
        *,
        is_tolerated: Callable[[OrtooError], bool] = lambda error: error.retriable,
    ) -> dict[str, Answer]:
        """Run `operation` on the link to each of these enodes, one after another; returns the answers by enode.

        If `is_tolerated` returns true for an enode's error, the enode is left out. Any other error is raised.
        """
        answers: dict[str, Answer] = {}
        for enode in enodes:
            try:
                answers[enode] = await operation(self.to(enode))
            except OrtooError as error:
                if not is_tolerated(error):
                    raise
        return answers


def explain_error(error: OrtooError) -> OrtooError:
    """The error for a client after `error` of an enode. A missing topic may arrive there soon, so it is Unavailable."""
    if isinstance(error, NotFound) and error.field in ("topic_id", "queue_id"):
        return Unavailable(f"{error.message}; the enode may receive the topic in a moment; retry", retry_after_ms=100)
    return error
