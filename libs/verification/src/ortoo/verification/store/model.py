"""The expected content of a store, kept in the simplest way: lists of all requests.

A `StoreHistory` keeps each request with the moments of its call and of its answer. Moments are numbers of disk
operations, so that the promises at a crash between two operations are known. `check` compares a store that was opened
after a crash at some moment with it.
"""

from dataclasses import dataclass, field

from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.store.store import Store

NEVER = 1 << 62
QueueKey = tuple[int, int]
"""(topic id, queue id)."""
OffsetKey = tuple[int, str, int]
"""(topic id, group, queue id)."""


class StoreViolation(AssertionError):
    """A store broke a promise, which the message names."""


@dataclass(slots=True)
class SentBatch:
    """One batch that was sent."""

    topic_id: int
    queue_id: int
    batch: SealedBatch
    requested_at: int
    answered_at: int = NEVER
    """The moment at which it was durable: acknowledged in mode `sync`, or seen by a reader."""
    first_offset: int = -1
    refused: bool = False
    """It must never be found."""

    @property
    def key(self) -> QueueKey:
        """Its queue."""
        return self.topic_id, self.queue_id


@dataclass(slots=True)
class RequestedValue:
    """A requested value in place of the previous one; None = removed."""

    value: object
    requested_at: int
    answered_at: int = NEVER


@dataclass(slots=True)
class StoreHistory:
    """All requests to one store, in order."""

    sends: list[SentBatch] = field(default_factory=list)
    offsets: dict[OffsetKey, list[RequestedValue]] = field(default_factory=dict)
    topics: dict[int, list[RequestedValue]] = field(default_factory=dict)
    begins: list[tuple[int, dict[QueueKey, int]]] = field(default_factory=list)
    """(moment, begins of queues); retention moves these."""
    pairs: list[tuple[SentBatch, OffsetKey]] = field(default_factory=list)
    """Batches that each carried a commit of an offset used once: both must be found or neither."""
    settled_begins: dict[QueueKey, int] = field(default_factory=dict)

    def begin_max(self, key: QueueKey, moment: int) -> int:
        """The largest possible begin of a queue by retention, had the store crashed at `moment`."""
        for at, begins in self.begins:
            if at >= moment and key in begins:
                return begins[key]
        return self.begins[-1][1].get(key, NEVER) if self.begins else self.settled_begins.get(key, 0)


def possible_values(wishes: list[RequestedValue], moment: int) -> list[object]:
    """The values that may be found after a crash at `moment`: the last promised one, or any requested since."""
    values: list[object] = [None]
    for wish in wishes:
        if wish.requested_at > moment:
            break
        if wish.answered_at <= moment:
            values = []
        values.append(wish.value)
    return values


@dataclass(slots=True)
class Observed:
    """The whole content read from a store."""

    topics: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    batches: dict[QueueKey, list[tuple[int, SealedBatch]]] = field(default_factory=dict)
    ranges: dict[QueueKey, tuple[int, int]] = field(default_factory=dict)
    offsets: dict[OffsetKey, int] = field(default_factory=dict)


async def observe(store: Store) -> Observed:
    """Read everything through the store's interface. Errors: Broken when the content is inconsistent."""
    found = Observed()
    for topic in store.topics():
        found.topics[topic.topic_id] = (topic.name, topic.queue_count, topic.version)
        for group in store.offsets.groups(topic.topic_id):
            for queue_id, offset in store.offsets.of(topic.topic_id, group).items():
                found.offsets[topic.topic_id, group, queue_id] = offset
        for row in store.describe_queues(topic.topic_id):
            key = (topic.topic_id, row.queue_id)
            found.ranges[key] = (row.begin_offset, row.end_offset)
            found.batches[key] = await read_queue(store, key, row.begin_offset, row.end_offset)
    return found


async def read_queue(store: Store, key: QueueKey, begin: int, end: int) -> list[tuple[int, SealedBatch]]:
    """All batches of a queue with their first offsets. Errors: Broken when offsets are not dense."""
    batches: list[tuple[int, SealedBatch]] = []
    offset = begin
    while offset < end:
        fetched = await store.fetch(*key, offset)
        if not fetched.batches:
            raise StoreViolation(f"queue {key}: nothing is read at offset {offset}, though the queue ends at {end}")
        for one in fetched.batches:
            if one.first_offset != offset:
                raise StoreViolation(f"queue {key}: offset {one.first_offset} follows, expected {offset}")
            batches.append((offset, one.batch))
            offset += one.batch.count
    if offset != end:
        raise StoreViolation(f"queue {key}: batches end at {offset}, the queue says {end}")
    return batches


def check(history: StoreHistory, found: Observed, moment: int) -> StoreHistory:
    """Compare the content found after a crash at `moment` with the promises until then.

    Returns the history from now on: requests that were open are decided by the found content. Errors: Broken.
    """
    settled = StoreHistory()
    _check_topics(history, found, moment, settled)
    _check_offsets(history, found, moment, settled)
    _check_messages(history, found, moment, settled)
    settled.settled_begins = {key: begin for key, (begin, _) in found.ranges.items()}
    return settled


def _check_topics(history: StoreHistory, found: Observed, moment: int, settled: StoreHistory) -> None:
    for topic_id, wishes in history.topics.items():
        values = possible_values(wishes, moment)
        if found.topics.get(topic_id) not in values:
            raise StoreViolation(f"topic {topic_id} is {found.topics.get(topic_id)}, expected one of {values}")
        settled.topics[topic_id] = [RequestedValue(found.topics.get(topic_id), 0, 0)]
    if unknown := found.topics.keys() - history.topics.keys():
        raise StoreViolation(f"topics {unknown} were never created")


def _check_offsets(history: StoreHistory, found: Observed, moment: int, settled: StoreHistory) -> None:
    for key, wishes in history.offsets.items():
        if key[0] not in found.topics:
            continue
        values = possible_values(wishes, moment)
        if found.offsets.get(key) not in values:
            raise StoreViolation(
                f"(topic, group, queue) {key} is at offset {found.offsets.get(key)}, expected one of {values}"
            )
        settled.offsets[key] = [RequestedValue(found.offsets.get(key), 0, 0)]
    if unknown := found.offsets.keys() - history.offsets.keys():
        raise StoreViolation(f"offsets of {unknown} were never committed")


def _check_messages(history: StoreHistory, found: Observed, moment: int, settled: StoreHistory) -> None:
    by_place = {
        (*key, batch.records): (first_offset, batch)
        for key, batches in found.batches.items()
        for first_offset, batch in batches
    }
    known: set[tuple[int, int, bytes]] = set()
    for sent in history.sends:
        if sent.topic_id not in found.topics:
            continue
        place = (*sent.key, sent.batch.records)
        here = by_place.get(place)
        if here is not None:
            _check_found(sent, here[0], here[1], moment)
            known.add(place)
        elif sent.answered_at <= moment and not sent.refused:
            begin = found.ranges.get(sent.key, (0, 0))[0]
            if sent.first_offset >= begin or begin > history.begin_max(sent.key, moment):
                raise StoreViolation(
                    f"queue {sent.key}: the acknowledged batch at offset {sent.first_offset} is lost, the queue begins "
                    f"at {begin}, retention had come to {history.begin_max(sent.key, moment)}"
                )
            settled.sends.append(SentBatch(*sent.key, sent.batch, 0, 0, sent.first_offset))
            continue
        settled.sends.append(
            SentBatch(*sent.key, sent.batch, 0, 0, here[0] if here else -1, refused=here is None)  # it stays lost
        )
    total = sum(map(len, found.batches.values()))
    if len(by_place) != total:
        raise StoreViolation("a batch is stored twice")
    if strangers := by_place.keys() - known:
        raise StoreViolation(f"found batches that were never sent: {[one[:2] for one in strangers]}")
    for sent, offset_key in history.pairs:
        is_kept = (*sent.key, sent.batch.records) in by_place
        is_answered = sent.answered_at <= moment  # then both were there, and retention may have removed the batch
        if sent.topic_id in found.topics and not is_answered and is_kept != (offset_key in found.offsets):
            raise StoreViolation(f"queue {sent.key}: of a batch and its commit only one is found, {is_kept=}")
    ends = _acknowledged_ends(history, moment)
    for key, (_, end) in found.ranges.items():
        highest = ends.get(key, 0)
        if end < highest:
            raise StoreViolation(
                f"queue {key} ends at {end}; offsets up to {highest} were acknowledged and could be reused"
            )


def _acknowledged_ends(history: StoreHistory, moment: int) -> dict[tuple[int, int], int]:
    """The offset of each queue after which nothing was acknowledged at that moment."""
    ends: dict[tuple[int, int], int] = {}
    for one in history.sends:
        if one.answered_at <= moment and not one.refused:
            ends[one.key] = max(ends.get(one.key, 0), one.first_offset + one.batch.count)
    return ends


def _check_found(sent: SentBatch, first_offset: int, batch: SealedBatch, moment: int) -> None:
    if sent.refused:
        raise StoreViolation(
            f"queue {sent.key}: a batch that was refused, or lost before, is found at offset {first_offset}"
        )
    if sent.requested_at > moment:
        raise StoreViolation(f"queue {sent.key}: offset {first_offset} holds a batch that was sent later")
    if batch != sent.batch:
        raise StoreViolation(f"queue {sent.key}: the batch at offset {first_offset} has another count, CRC or sequence")
    if sent.first_offset >= 0 and sent.answered_at <= moment and sent.first_offset != first_offset:
        raise StoreViolation(f"queue {sent.key}: acknowledged at offset {sent.first_offset}, found at {first_offset}")
