"""The requests and results of pops between snodes and enodes, as plain values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ortoo.common.errors import OrtooError
from ortoo.common.groups.failure_rule import ATTEMPTS_MAX
from ortoo.common.records.sealed_batch import SealedBatch

SETTLED_OFFSETS_MAX = 16_384
"""Maximum number of messages in one request that acknowledges, nacks, releases or renews. Clients split longer ones."""


@dataclass(frozen=True, slots=True)
class PopRules:
    """The pop settings of a group; all group members send equal settings."""

    attempts_max: int = ATTEMPTS_MAX
    """The number of deliveries after which a message is parked; 0 = never."""
    in_order: bool = False
    """Whether messages of one message group come one after another."""
    in_flight_max: int = 0
    """Maximum number of messages of the topic that are leased on this enode at once; 0 = the group sets no limit."""
    by_priority: bool = False
    """Whether queues with a larger id come first."""
    from_last: bool = False
    """Whether the group begins at the end of a queue without an offset; otherwise at the first message."""
    dead_letter_topic_id: int = 0
    """The topic for messages that have no attempts left; 0 = the topic does not exist yet."""
    park_expired: bool = False
    """Whether expired messages are parked; otherwise they are dropped."""
    order_batched: bool = False
    """With `in_order`: whether one pop may return several consecutive messages of a message group."""


@dataclass(frozen=True, slots=True)
class PopRequest:
    """One pop request of a group for queues of a topic on one enode."""

    topic_id: int
    group: str
    queue_ids: tuple[int, ...]
    messages_max: int
    invisible_ms: int
    bytes_max: int
    wait_ms: int
    consumer: str = ""
    attempt_id: str = ""
    rules: PopRules = field(default_factory=PopRules)
    skip: int = 0
    """When peeking: the number of messages to skip."""
    request_id: str = ""
    """Identifies this request among the requests of the same attempt."""
    cancel: bool = False
    """Pop nothing, and cancel the request with this `request_id`, or, if it is empty, all requests of the attempt."""


@dataclass(frozen=True, slots=True)
class AwaitRequest:
    """A wait until a pop of a group may return messages from queues of a topic on one enode."""

    topic_id: int
    group: str
    queue_ids: tuple[int, ...]
    rules: PopRules = PopRules()
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class PoppedBatch:
    """Messages of one stored batch, leased to one consumer."""

    queue_id: int
    number: int
    """The number of the lease."""
    stored_at_ms: int
    batch: SealedBatch
    """A batch of exactly these messages."""
    offsets: tuple[int, ...]
    attempts: tuple[int, ...]
    """The number of deliveries of each message, this one included."""


@dataclass(slots=True)
class Popped:
    """The result of a pop."""

    batches: list[PoppedBatch] = field(default_factory=list)
    needs_dead_letter_topic: bool = False
    """Whether messages wait for the dead-letter topic to be created."""
    blocked_reason: str = ""
    """Why no messages are returned although the queues have more messages."""
    more: bool = False
    """When peeking: whether there are more messages than the requested number of bytes."""
    skipped_messages: int = 0
    """When peeking: the number of skipped messages."""


@dataclass(frozen=True, slots=True)
class LeasePart:
    """Messages of one lease."""

    queue_id: int
    number: int
    ranges: tuple[tuple[int, int], ...]
    """(first offset, count), ascending."""
    is_exact: bool = True
    """Whether every message must belong to the lease. If False, messages that do not are skipped."""
    unexpired_only: bool = False
    """Whether a lease ends exactly at its deadline. A finished message can then only be finished again."""
    any_lease: bool = False
    """With a request to park: whether the unfinished messages are parked, whichever lease holds them."""

    @property
    def is_valid(self) -> bool:
        """Whether no range starts at a negative offset or is empty."""
        return all(first >= 0 and count >= 1 for first, count in self.ranges)


@dataclass(frozen=True, slots=True)
class StaleMessage:
    """A message that no longer belongs to the lease named in a request."""

    queue_id: int
    offset: int
    number: int = 0
    """The number of the requested lease; 0 = the enode did not report it."""
    error: OrtooError | None = None
    """Why no such lease can exist; `offset` is then the first requested offset. None = the lease has ended."""


@dataclass(frozen=True, slots=True)
class Finish:
    """An ack: the group has finished these messages."""

    filtered: bool = False
    """Whether the messages did not match the group's filter."""


@dataclass(frozen=True, slots=True)
class Renew:
    """A request to extend the lease of messages."""

    invisible_ms: int
    """The duration of the lease from now on."""


@dataclass(frozen=True, slots=True)
class Redeliver:
    """A nack or release: the messages are to be redelivered."""

    delays_ms: tuple[int, ...] = (0,)
    """The delays after the first, second, … delivery; the last delay stands for all later ones. None = the group's
    setting."""
    counts: bool = True
    """Whether the delivery counts as an attempt."""
    consumer: str = ""
    error: str = ""
    park: bool = False
    """Whether to park the messages in the dead-letter topic now."""
    rules: PopRules = PopRules()
    attempt: int = 0
    """The attempt number, from a consumer that retries locally; 0 = the number of deliveries."""


@dataclass(frozen=True, slots=True)
class RetryRequest:
    """A request for retry copies of messages that a group consumes by offsets and could not process."""

    group: str
    topic_id: int
    queue_id: int
    offsets: tuple[int, ...]
    retry_topic_id: int
    delays_ms: tuple[int, ...]
    """After the first, second, … delivery."""
    park: bool = False
    rules: PopRules = PopRules()
    counts: bool = True
    """Whether this delivery counts as an attempt."""
    attempt: int = 0
    """The attempt number, from a consumer that retries locally; 0 = the number in the copies."""
    consumer: str = ""
    error: str = ""
    unfinished_only: bool = False
    """Whether the request is refused if the group has finished one of the messages."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A request to resend dead letters."""

    dead_letter_topic_id: int
    group: str
    ranges: tuple[tuple[int, int], ...]
    """(first offset, count)."""
    target_topic_id: int
    dry_run: bool = False


LeaseVerdict = Finish | Redeliver | Renew
"""The outcome of popped messages."""


def merge_ranges(ranges: Iterable[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Sort (first, count) ranges, and merge adjacent ranges."""
    found: list[tuple[int, int]] = []
    for first, count in sorted(ranges):
        if found and found[-1][0] + found[-1][1] == first:
            found[-1] = (found[-1][0], found[-1][1] + count)
        else:
            found.append((first, count))
    return found


def ranges_of(offsets: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Offsets, in any order, as sorted (first, count) ranges. Fast for consecutive offsets, the usual case."""
    if (run := run_of(offsets)) is not None:
        return ((run.start, len(run)),)
    return tuple(merge_ranges((offset, 1) for offset in offsets))


def run_of(numbers: Sequence[int]) -> range | None:
    """The numbers as a range, if they are ascending without a gap; None if they are not, or if there are none."""
    if not numbers:
        return None
    run = range(numbers[0], numbers[0] + len(numbers))
    return run if numbers[-1] == run[-1] and tuple(numbers) == tuple(run) else None
