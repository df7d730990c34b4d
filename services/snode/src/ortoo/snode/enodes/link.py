"""What the snode asks of an enode, and the way to the link by its name."""

import asyncio
import enum
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from ortoo.common.errors import NOT_TAKEN_FIELD, NotFound, OrtooError, Unavailable
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.filters.pushdown import Pushdown
from ortoo.common.filters.selection import Selected, selected
from ortoo.common.groups.pop import LeasePart, Popped, PopWish, ReplayWish, SendBackWish, Stale, Verdict
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.stored_batch import StoredBatch
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.routes import DeliveryMode, MemberState, Queue

Answer = TypeVar("Answer")
FETCH_WAIT_MS = 30_000
"""How long a read that follows a queue waits at its end."""
FETCH_BYTES_MAX = 1 << 20
"""How much such a read brings."""


class FlushMode(enum.IntEnum):
    """When an append is acknowledged; the numbers are those on the wire."""

    DEFAULT = 0
    SYNC = 1
    ASYNC = 2


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a batch was stored."""

    first_offset: int
    stored_at_ms: int
    flush_mode: FlushMode


@dataclass(frozen=True, slots=True)
class FetchWish:
    """One read of a queue."""

    topic_id: int
    queue_id: int
    from_offset: int
    bytes_max: int = 0
    wait_ms: int = 0
    """How long it waits at the end of the queue."""
    group: str = ""
    generation: int = 0
    """Of the group's lock; 0 = it reads without one."""
    pushdown: Pushdown | None = None
    """What is wanted of the batches; None = all of them, whole."""
    any_member: bool = False
    """Whether one that does not lead may answer, or refuse."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole batches in offset order; the first may start before the offset asked for."""

    batches: tuple[StoredBatch, ...]
    next_offset: int
    end_offset: int
    parts: tuple[Selected, ...] | None = None
    """Instead of batches, what is wanted of them; None = the enode was not asked to choose, or cannot."""

    @property
    def size_bytes(self) -> int:
        """What it takes."""
        held = self.batches if self.parts is None else self.parts
        return sum(len(one.batch.records) for one in held if one.batch is not None)

    def selected(
        self, from_offset: int, to_offset: int | None = None, wanted: MessageFilter | None = None
    ) -> Iterator[Selected]:
        """What a reader gets of it, which was asked for with the same `wanted`; at last, how far that goes."""
        if self.parts is None:
            for stored in self.batches:
                yield selected(stored, from_offset, to_offset, wanted)
            return
        yield from self.parts
        if not self.parts or self.parts[-1].next_offset < self.next_offset > from_offset:
            yield Selected(from_offset, self.next_offset, 0, None, b"", 0)


@dataclass(frozen=True, slots=True)
class QueueRange:
    """What one queue holds."""

    queue_id: int
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """Where a message lies in a topic on one enode."""

    queue_id: int
    offset: int
    stored_at_ms: int


@dataclass(frozen=True, slots=True)
class DelayedEntry:
    """One delayed message."""

    timer_id: int
    queue_id: int
    deliver_at_ms: int


@dataclass(frozen=True, slots=True)
class LockRequest:
    """The lock of one queue that a session wants, or gives back."""

    group: str
    topic_id: int
    queue_id: int
    owner: str
    """A client id."""
    session_id: str
    resume: bool = False
    """Whether the session had it before: then it must not take it from a newer session of the same owner."""


@dataclass(frozen=True, slots=True)
class LockAnswer:
    """The lock's generation; 0 = somebody else owns it for so long, or it cannot be had at all."""

    generation: int
    owner: str = ""
    remaining_ms: int = 0
    error: OrtooError | None = None


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
    """A transaction that a producer is to be asked about, and its messages."""

    half: OpenHalf
    batch: SealedBatch


class HalfVerdict(enum.IntEnum):
    """How a transaction ends; the numbers are those on the wire."""

    COMMIT = 1
    ROLL_BACK = 2


class VerdictSource(enum.IntEnum):
    """Who says how; the numbers are those on the wire."""

    PRODUCER = 1
    CHECK = 2
    OPERATOR = 3


class IdentifiedPlace(NamedTuple):
    """Where the message with an id of the application's lies; of a delayed one the number instead of an offset."""

    queue_id: int
    offset: int
    stored_at_ms: int
    duplicate: bool


class EnodeLink(Protocol):
    """One enode. Every call fails with Unavailable, promptly, when the enode is away, frozen or has restarted."""

    @property
    def connected(self) -> bool:
        """Whether a stream to it works right now."""

    def append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode = FlushMode.DEFAULT
    ) -> asyncio.Future[Appended]:
        """Send one batch. Batches of one queue are stored in the order of the calls.

        Of a delayed one the answer has the first message's timer id instead of an offset.

        Errors: as the enode's store says; Overloaded at once when too many bytes are on their way.
        """

    async def fetch(self, wish: FetchWish) -> Fetched:
        """Read whole batches, or what of them is wanted.

        Errors: NotFound, OutOfRange, DataLoss; Fenced when the group's lock has a newer generation.
        """

    async def commit_rows(
        self, topic_id: int, group: str, rows: Sequence[OffsetRow], *, reset: bool = False
    ) -> list[int]:
        """Store a group's offsets, each under its own generation; returns the queues whose generation was too old.

        `reset` is an operator's order: it fences off whoever holds the locks. Errors: Fenced when all were too old.
        """

    async def offset_groups(self, topic_id: int) -> list[str]:
        """The groups that have an offset in a topic, by name."""

    async def take_locks(self, incarnation: str, wishes: Sequence[LockRequest]) -> list[LockAnswer]:
        """Take or renew locks, one answer each. With an incarnation they live as long as that is attached."""

    async def release_locks(self, wishes: Sequence[LockRequest]) -> list[bool]:
        """Give locks back; tells which were held by their session."""

    async def attach(self, snode: str, incarnation: str, freed: Callable[[Sequence[LockKey]], None]) -> None:
        """Be there for the enode as long as it goes; `freed` hears of locks that were refused and are free now.

        Errors: Unavailable when the connection broke.
        """

    async def query_offsets(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, int]:
        """A group's offsets; queues without one are absent."""

    async def describe_queues(self, topic_id: int) -> list[QueueRange]:
        """What each queue of a topic holds."""

    async def recall_delayed(self, topic_id: int, timer_id: int, deliver_at_ms: int) -> None:
        """Forget a delayed message. Errors: NotFound when none such waits, Conflict while it is being delivered."""

    async def list_delayed(self, topic_id: int, from_ms: int, limit: int) -> list[DelayedEntry]:
        """The delayed messages of a topic due from a time on, by time."""

    async def store_half(
        self, topic_id: int, queue_id: int, batch: SealedBatch, producer_group: str, check_after_ms: int, key: int
    ) -> int:
        """Begin a transaction and return its number; with the same key (not 0) again it is the same one."""

    async def settle_half(self, topic_id: int, number: int, verdict: HalfVerdict, source: VerdictSource) -> None:
        """End a transaction. Errors: NotFound; Conflict when it ended otherwise."""

    async def list_halves(self, topic_id: int, producer_group: str, *, parked_only: bool, limit: int) -> list[OpenHalf]:
        """Open transactions, the oldest first; topic 0 and the empty group mean any."""

    async def resume_half(self, topic_id: int, number: int) -> None:
        """Check a parked transaction again. Errors: NotFound, Conflict."""

    async def watch_halves(self, producer_groups: Iterable[str], heard: Callable[[DueHalf], None]) -> None:
        """Hear of transactions that are due to be checked, until the connection ends. Errors: Unavailable."""

    async def find_offset(self, topic_id: int, queue_id: int, stored_at_ms: int) -> int:
        """The first offset stored at or after a time."""

    async def find_messages(
        self, topic_id: int, *, key: str, message_id: str, begin_ms: int, end_ms: int, limit: int
    ) -> list[MessagePlace]:
        """Where messages with a key, or with an id of their producer's, lie; the newest first; 0 = no end, 32 of them.

        Errors: NotFound, Invalid; Unavailable when the enode keeps no index.
        """

    async def pop(self, wish: PopWish) -> Popped:
        """Lease messages; wait for the first one as the wish says. Errors: NotFound, Overloaded."""

    async def settle(self, topic_id: int, group: str, parts: Sequence[LeasePart], verdict: Verdict) -> list[Stale]:
        """Say what becomes of leased messages; returns those that their lease has no more."""

    async def peek(self, wish: PopWish) -> Popped:
        """What a pop would bring, and what consumers have; changes nothing."""

    async def send_back(self, wish: SendBackWish) -> list[str]:
        """Copy messages to a group's retry topic; returns their ids."""

    async def replay(self, wish: ReplayWish) -> list[tuple[int, int]]:
        """Send dead letters again; returns the ranges that were sent now, or would be."""

    async def append_identified(
        self, topic_id: int, queue_id: int, batch: SealedBatch, ids: Sequence[str]
    ) -> list[IdentifiedPlace]:
        """Store messages with ids of the application's, each once within the window; where each one lies."""

    async def use_mode(self, topic_id: int, group: str, mode: DeliveryMode) -> None:
        """A group consumes a topic this way. Errors: Conflict when it does so in another way."""

    async def set_mode(self, topic_id: int, group: str, mode: DeliveryMode, *, force: bool) -> DeliveryMode:
        """Change how a group consumes a topic; returns how it was. Errors: Conflict while members are at work."""

    async def modes(self, group: str) -> list[tuple[int, DeliveryMode]]:
        """How a group consumes topics: topic id and mode."""


class Links(Protocol):
    """Makes links to enodes and keeps them."""

    def to(self, enode: str, address: str, epoch: int = 0) -> EnodeLink:
        """The link to an enode; one whose address has changed, or that is led in a newer epoch, gets a new one."""


class EnodeLinks:
    """The enodes of the directory, reachable."""

    def __init__(self, directory: Directory, links: Links, *, reads_followers: bool = False) -> None:
        self._directory = directory
        self._reads_followers = reads_followers
        self._links = links
        self._reigns: dict[str, int] = {}

    def to(self, enode: str) -> EnodeLink:
        """The link to an enode. Errors: Unavailable when it was never heard of, or is known to be away."""
        entry = self._directory.enode(enode)
        if entry is None:
            raise _away(f"no enode named {enode} has registered; start it, or wait for it")
        link = self._links.to(enode, entry.address, entry.reign)
        # A lease may be missing because the name server is new; a connection that works is the better witness.
        if not entry.alive and not link.connected:
            raise _away(f"enode {enode} is away: its lease ran out; retry when it is back")
        return link

    def follower(self, queue: Queue) -> EnodeLink | None:
        """A member of the queue's enode that follows, for reads of what is committed; None to ask its leader alone.

        Queues are spread over the members that follow.
        """
        entry = self._directory.enode(queue.enode) if self._reads_followers else None
        following = (
            [one for one in entry.members if one.state is MemberState.FOLLOWING and one.address] if entry else []
        )
        if not following:
            return None
        one = following[queue.queue_id % len(following)]
        return self._links.to(f"{queue.enode} member {one.number}", one.address)

    def look(self) -> None:
        """Leave leaders that were followed by others; to be called whenever the directory has changed.

        What is on its way to them then fails at once, instead of when somebody asks again.
        """
        for entry in self._directory.enodes():
            if self._reigns.get(entry.name, 0) < entry.reign:
                if entry.name in self._reigns:
                    self._links.to(entry.name, entry.address, entry.reign)
                self._reigns[entry.name] = entry.reign

    async def ask(
        self,
        enodes: Iterable[str],
        question: Callable[[EnodeLink], Awaitable[Answer]],
        *,
        tolerated: Callable[[OrtooError], bool] = lambda error: error.retriable,
    ) -> dict[str, Answer]:
        """What each of these enodes answers, asked one after another; those with a `tolerated` error are missing.

        Errors: as an enode answers otherwise.
        """
        answers: dict[str, Answer] = {}
        for enode in enodes:
            try:
                answers[enode] = await question(self.to(enode))
            except OrtooError as error:
                if not tolerated(error):
                    raise
        return answers


def _away(message: str) -> Unavailable:
    return Unavailable(message, field=NOT_TAKEN_FIELD, retry_after_ms=500)


def explained(error: OrtooError) -> OrtooError:
    """What an enode's refusal means for a client: a topic that the directory knows is at worst not there yet."""
    if isinstance(error, NotFound) and error.field in ("topic_id", "queue_id"):
        return Unavailable(f"{error.message}; it may hear of it in a moment, retry", retry_after_ms=100)
    return error
