"""What the store answers: plain values, none of which refers to the store."""

from dataclasses import dataclass, field

from ortoo.common.records.stored_batch import StoredBatch
from ortoo.enode.log.settings import FlushMode


@dataclass(frozen=True, slots=True)
class TopicCopy:
    """An enode's copy of a topic; the name server owns the original."""

    topic_id: int
    """Made at creation and never used again."""
    name: str
    queue_count: int
    """Queues 0 to this number, exclusive, exist on this enode."""
    version: int
    """Grows with every change; an older copy never replaces a newer one of the same directory."""
    directory_id: str = ""
    """Of the name servers that said so last; empty = that was before directories had ids."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a batch was stored."""

    first_offset: int
    stored_at_ms: int
    flush_mode: FlushMode
    """SYNC = it is on disk."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole batches in offset order; the first may start before the offset asked for."""

    batches: tuple[StoredBatch, ...]
    next_offset: int
    """Where to read next: the end of the last batch, or the offset asked for when there is none."""
    end_offset: int
    """The queue's next offset to be stored, as far as readers may see."""


@dataclass(frozen=True, slots=True)
class QueueRange:
    """What one queue holds: offsets from `begin_offset` to `end_offset`, exclusive."""

    queue_id: int
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class DamagedQueue:
    """Offsets of one queue that lie in a damaged place, from `begin_offset` to `end_offset`, exclusive."""

    topic_id: int
    queue_id: int
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Damage:
    """A place in the log whose bytes are wrong."""

    file: str
    position: int
    """Where in the log; the place in the file is this minus the number in the file's name."""
    length_bytes: int
    reason: str
    queues: tuple[DamagedQueue, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreDescription:
    """The store as a whole."""

    enode: str
    cluster: str
    store_id: str
    log_begin_position: int
    log_bytes: int
    segment_count: int
    appended_position: int
    durable_position: int
    store_open_number: int
    writable: bool
    reason: str
    """Why appends are refused; empty when they are not."""
    damages: tuple[Damage, ...] = ()
    counters: dict[str, int] = field(default_factory=dict)
    """Running totals by name, for metrics: appends, appended_bytes, flushes, fetches, cache_hits and others."""
