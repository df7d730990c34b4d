"""What an enode is asked and what it answers, as plain values; and the way to the link by its name."""

import enum
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ortoo.common.errors import NOT_TAKEN_FIELD, NotFound, OrtooError, Unavailable
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.filters.pushdown import Pushdown
from ortoo.common.filters.selection import Selected, selected
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.stored_batch import StoredBatch
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.routes import MemberState, Queue

if TYPE_CHECKING:
    from ortoo.snode.enodes.grpc_link import GrpcEnodeLink  # it is made of these values

Answer = TypeVar("Answer")
LinkTo = Callable[[str, str, int], "GrpcEnodeLink"]
"""What gives the link to an enode at an address, as it is led in an epoch."""
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


class MessagePlace(NamedTuple):
    """Where a message lies in a topic on one enode; of a delayed one the number instead of an offset."""

    queue_id: int
    offset: int
    duplicate: bool = False
    """Whether it was stored before."""


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


class EnodeLinks:
    """The enodes of the directory, reachable."""

    def __init__(self, directory: Directory, link_to: LinkTo, *, reads_followers: bool = False) -> None:
        self._directory = directory
        self._reads_followers = reads_followers
        self._link_to = link_to
        self._reigns: dict[str, int] = {}

    def to(self, enode: str) -> "GrpcEnodeLink":
        """The link to an enode. Errors: Unavailable when it was never heard of, or is known to be away."""
        entry = self._directory.enode(enode)
        if entry is None:
            raise _away(f"no enode named {enode} has registered; start it, or wait for it")
        link = self._link_to(enode, entry.address, entry.reign)
        # A lease may be missing because the name server is new; a connection that works is the better witness.
        if not entry.alive and not link.connected:
            raise _away(f"enode {enode} is away: its lease ran out; retry when it is back")
        return link

    def follower(self, queue: Queue) -> "GrpcEnodeLink | None":
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
        return self._link_to(f"{queue.enode} member {one.number}", one.address, 0)

    def look(self) -> None:
        """Leave leaders that were followed by others; to be called whenever the directory has changed.

        What is on its way to them then fails at once, instead of when somebody asks again.
        """
        for entry in self._directory.enodes():
            if self._reigns.get(entry.name, 0) < entry.reign:
                if entry.name in self._reigns:
                    self._link_to(entry.name, entry.address, entry.reign)
                self._reigns[entry.name] = entry.reign

    async def ask(
        self,
        enodes: Iterable[str],
        question: "Callable[[GrpcEnodeLink], Awaitable[Answer]]",
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
