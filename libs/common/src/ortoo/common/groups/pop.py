"""What those who pop and those who store say to one another: plain values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ortoo.common.errors import OrtooError
from ortoo.common.groups.failure_rule import ATTEMPTS_MAX
from ortoo.common.records.sealed_batch import SealedBatch


@dataclass(frozen=True, slots=True)
class PopRules:
    """How a group pops; its members say the same."""

    attempts_max: int = ATTEMPTS_MAX
    """After so many deliveries a message is parked; 0 = never."""
    in_order: bool = False
    """Whether messages of one message group come one after another."""
    in_flight_max: int = 0
    """How many messages of the topic may be leased here at once; 0 = no limit of the group."""
    by_priority: bool = False
    """Whether queues with a larger id come first."""
    from_last: bool = False
    """Where the group begins in a queue without an offset: at its end, or at the first message."""
    dead_letter_topic_id: int = 0
    """Where exhausted messages go; 0 = the topic does not exist yet."""
    park_expired: bool = False
    """Whether messages whose time is over are parked; otherwise they are dropped."""
    order_batched: bool = False
    """In order: whether one pop may bring several messages of a message group, one behind another."""


@dataclass(frozen=True, slots=True)
class PopWish:
    """One pop."""

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
    """When looking: so many are passed over."""
    request_id: str = ""
    """Names this one request among those of its attempt."""
    call_off: bool = False
    """Pop nothing: nobody waits any more for the request that is named, or, if none is, for any of the attempt."""


@dataclass(frozen=True, slots=True)
class PoppedBatch:
    """Messages of one stored batch that one consumer got."""

    queue_id: int
    number: int
    """Of the lease."""
    stored_at_ms: int
    batch: SealedBatch
    """Exactly these messages."""
    offsets: tuple[int, ...]
    attempts: tuple[int, ...]
    """Of each message: how often it was delivered, this time included."""


@dataclass(slots=True)
class Popped:
    """What a pop found."""

    batches: list[PoppedBatch] = field(default_factory=list)
    wants_dead_letter_topic: bool = False
    """Whether messages wait for the dead-letter topic to be created."""
    blocked: str = ""
    """Why nothing is given although the queues hold more."""
    more: bool = False
    """When looking: whether there are more than the bytes that were asked for."""
    passed: int = 0
    """When looking: how many were passed over."""


@dataclass(frozen=True, slots=True)
class LeasePart:
    """Messages of one lease."""

    queue_id: int
    number: int
    ranges: tuple[tuple[int, int], ...]
    """(first offset, count), rising."""
    is_exact: bool = True
    """Whether each of them must be the lease's; otherwise those that are not are passed over."""
    in_time: bool = False
    """Whether a lease that ran out is over at once, and a message that is done can only be finished again."""

    @property
    def is_possible(self) -> bool:
        """Whether there can be such ranges at all."""
        return all(first >= 0 and count >= 1 for first, count in self.ranges)


@dataclass(frozen=True, slots=True)
class Stale:
    """A message that is not the lease's any more."""

    queue_id: int
    offset: int
    number: int = 0
    """Of the lease that was asked about; 0 = the enode did not say."""
    error: OrtooError | None = None
    """Why no such lease can be; the offset is the first that was asked about then. None = the lease is over."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The group is done with messages."""

    filtered: bool = False
    """Because it never wanted them."""


@dataclass(frozen=True, slots=True)
class Renew:
    """Messages stay with their consumer."""

    invisible_ms: int
    """From now on."""


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Messages shall be delivered again."""

    delays_ms: tuple[int, ...] = (0,)
    """After the first, second, … delivery; the last one also for all later ones. None = as the group says."""
    counts: bool = True
    """Whether the delivery counts as an attempt."""
    consumer: str = ""
    error: str = ""
    park: bool = False
    """Put them into the dead-letter topic now."""
    rules: PopRules = PopRules()
    attempt: int = 0
    """Which try it was, by a consumer that tries again by itself; 0 = as often as they were delivered."""


@dataclass(frozen=True, slots=True)
class SendBackWish:
    """Messages that a group consumes by offsets and could not process."""

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
    """Which try it was, by a consumer that tries again by itself; 0 = as the copies say."""
    consumer: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class ReplayWish:
    """Dead letters to send again."""

    dead_letter_topic_id: int
    group: str
    ranges: tuple[tuple[int, int], ...]
    """(first offset, count)."""
    target_topic_id: int
    dry_run: bool = False


Verdict = Finish | GiveBack | Renew
"""What becomes of messages that were popped."""


def merged(ranges: Iterable[tuple[int, ...]]) -> list[tuple[int, int]]:
    """(first, count) ranges in order, neighbours put together."""
    found: list[tuple[int, int]] = []
    for first, count in sorted(ranges):
        if found and found[-1][0] + found[-1][1] == first:
            found[-1] = (found[-1][0], found[-1][1] + count)
        else:
            found.append((first, count))
    return found


def runs(offsets: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """(first, count) of offsets that may be in any order; quick when they follow one another, as they usually do."""
    if offsets and list(offsets) == list(range(offsets[0], offsets[0] + len(offsets))):
        return ((offsets[0], len(offsets)),)
    return tuple(merged((offset, 1) for offset in offsets))
