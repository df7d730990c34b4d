"""Answers of the store: plain values without references to the store."""

from dataclasses import dataclass, field

from ortoo.common.records.sealed_batch import StoredBatch
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
    """The directory of the name servers that sent this copy; empty = older than directory ids."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The place of a stored batch."""

    first_offset: int
    stored_at_ms: int
    flush_mode: FlushMode
    """SYNC = the batch is on disk."""


@dataclass(frozen=True, slots=True)
class FetchResult:
    """Whole batches in offset order; the first may start before the requested offset."""

    batches: tuple[StoredBatch, ...]
    next_offset: int
    """The offset to read next: the end of the last batch, or the requested offset without batches."""
    end_offset: int
    """The queue's end offset that is visible to readers."""


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The offsets of one queue, from `begin_offset` to `end_offset`, exclusive."""

    queue_id: int
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class QueueSize:
    """The stored bytes of a part of a queue that ends at `end_offset`, exclusive."""

    end_offset: int
    size_bytes: int


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
    """The log position; the place in the file is this minus the number in the file's name."""
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
    """The reason why appends are refused; empty if they are accepted."""
    damages: tuple[Damage, ...] = ()
    counters: dict[str, int] = field(default_factory=dict)
    """Running totals by name, for metrics: appends, appended_bytes, flushes, fetches, cache_hits and others."""
