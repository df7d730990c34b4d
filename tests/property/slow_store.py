"""The simplest possible store, without regard for speed or crashes: lists and dictionaries."""

from dataclasses import dataclass, field

from ortoo.common.errors import Conflict, Fenced, Invalid, NotFound, OrtooError, OutOfRange, Unavailable
from ortoo.common.records.sealed_batch import SealedBatch

REMEMBERED = 5


@dataclass(slots=True)
class Stored:
    """One batch."""

    first_offset: int
    stored_at_ms: int
    batch: SealedBatch

    @property
    def end_offset(self) -> int:
        """The offset behind it."""
        return self.first_offset + self.batch.count


@dataclass(slots=True)
class SlowQueue:
    """One queue: all batches ever stored in it, and its current begin."""

    batches: list[Stored] = field(default_factory=list)
    begin: int = 0

    @property
    def end(self) -> int:
        """The next offset."""
        return self.batches[-1].end_offset if self.batches else 0


@dataclass(slots=True)
class SlowStore:
    """The expected answers and errors of the store."""

    topics: dict[int, int] = field(default_factory=dict)
    """Topic id to number of queues."""
    queues: dict[tuple[int, int], SlowQueue] = field(default_factory=dict)
    offsets: dict[tuple[int, str], dict[int, tuple[int, int]]] = field(default_factory=dict)
    """(topic id, group) to queue id to (offset, generation)."""
    sequences: dict[tuple[int, int, int], list[Stored]] = field(default_factory=dict)
    sent_since_start: set[tuple[int, int, int]] = field(default_factory=set)
    """The producers of `sequences` with a new batch since the last start of the store."""

    def put_topic(self, topic_id: int, queue_count: int) -> None:
        """Create a topic or give it more queues."""
        self.topics[topic_id] = queue_count
        for queue_id in range(queue_count):
            self.queues.setdefault((topic_id, queue_id), SlowQueue())

    def delete_topic(self, topic_id: int) -> None:
        """Delete all data of a topic."""
        self.topics.pop(topic_id, None)
        self.queues = {key: value for key, value in self.queues.items() if key[0] != topic_id}
        self.offsets = {key: value for key, value in self.offsets.items() if key[0] != topic_id}
        self.sequences = {key: value for key, value in self.sequences.items() if key[0] != topic_id}

    def queue(self, topic_id: int, queue_id: int) -> SlowQueue:
        """One queue. Errors: NotFound."""
        if not 0 <= queue_id < self.topics.get(topic_id, 0):
            raise NotFound
        return self.queues[topic_id, queue_id]

    def place(self, topic_id: int, queue_id: int, batch: SealedBatch) -> int:
        """The first offset that a batch must get, or has. Errors: those of the store's `append`."""
        queue = self.queue(topic_id, queue_id)
        if not batch.producer_id:
            return queue.end
        before = self.sequences.get((topic_id, queue_id, batch.producer_id), [])
        if not before:
            if batch.first_sequence:
                raise NotFound
            return queue.end
        last = before[-1].batch
        expected = last.first_sequence + last.count
        if batch.first_sequence == expected:
            return queue.end
        if batch.first_sequence > expected:  # a batch of an earlier start may be lost with the end of its log
            raise Unavailable if (topic_id, queue_id, batch.producer_id) in self.sent_since_start else NotFound
        for one in before[-REMEMBERED:]:
            if (one.batch.first_sequence, one.batch.count) == (batch.first_sequence, batch.count):
                if one.batch.records != batch.records:
                    raise Conflict
                return one.first_offset
            if (
                one.batch.first_sequence < batch.first_sequence + batch.count
                and batch.first_sequence < one.batch.first_sequence + one.batch.count
            ):
                raise Invalid
        raise Conflict

    def stored(self, topic_id: int, queue_id: int, batch: SealedBatch, first_offset: int, stored_at_ms: int) -> None:
        """The store reported that it stored this batch there."""
        queue = self.queue(topic_id, queue_id)
        if first_offset < queue.end:
            return
        one = Stored(first_offset, stored_at_ms, batch)
        queue.batches.append(one)
        if batch.producer_id:
            self.sequences.setdefault((topic_id, queue_id, batch.producer_id), []).append(one)
            self.sent_since_start.add((topic_id, queue_id, batch.producer_id))

    def from_offset(self, topic_id: int, queue_id: int, offset: int) -> list[Stored]:
        """All batches from the one that holds `offset`. Errors: NotFound, OutOfRange."""
        queue = self.queue(topic_id, queue_id)
        if not queue.begin <= offset <= queue.end:
            raise OutOfRange
        return [one for one in queue.batches if one.end_offset > offset and one.first_offset >= queue.begin]

    def at_time(self, topic_id: int, queue_id: int, stored_at_ms: int) -> int:
        """The first offset stored at or after a time."""
        queue = self.queue(topic_id, queue_id)
        later = [
            one.first_offset
            for one in queue.batches
            if one.stored_at_ms >= stored_at_ms and one.first_offset >= queue.begin
        ]
        return min(later, default=queue.end)

    def commit(self, topic_id: int, group: str, queue_id: int, offset: int, generation: int) -> None:
        """Store a group's offset. Errors: NotFound, Fenced."""
        if topic_id not in self.topics:
            raise NotFound
        rows = self.offsets.setdefault((topic_id, group), {})
        _, known = rows.get(queue_id, (0, 0))
        if generation and generation < known:
            raise Fenced
        rows[queue_id] = (offset, generation or known)


def refusal(error: OrtooError) -> type[OrtooError]:
    """The kind of an error, on which model and store must agree."""
    return type(error)
