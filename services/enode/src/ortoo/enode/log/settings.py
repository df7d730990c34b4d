"""Settings of a store. Every field can be set by file, environment and command line."""

import enum
from dataclasses import dataclass, replace
from typing import Annotated

from ortoo.common.errors import Invalid
from ortoo.common.process.settings import NumberRange, check_ranges
from ortoo.enode.log.frame import ALIGNMENT_BYTES

MIB = 1 << 20
DAY_MS = 86_400_000
COUNT_MAX = 1 << 30
"""Upper bound of settings that count things."""
MEMORY_BYTES_MAX = 1 << 44
INDEX_PERCENT = 25
"""Default percentage of the memory for the index of queues by segment."""


class FlushMode(enum.StrEnum):
    """When an append is acknowledged."""

    DEFAULT = "default"
    """The mode of the store's settings."""
    SYNC = "sync"
    """After fdatasync; a crash never loses it."""
    ASYNC = "async"
    """At once; a crash may lose the last `flush_interval_ms`. In an enode with several replicas: when the leader's disk
    has it, so that a take-over may lose it. Visible to readers only when it can no longer be lost."""


RETENTION_SETTINGS = (
    "retention_age_ms",
    "retention_bytes",
    "retention_requires_acknowledgement",
    "segment_age_max_ms",
)
"""The settings that decide which segments are deleted. They may change while the store is open."""


@dataclass(frozen=True)
class StoreSettings:
    """The settings of one store; the defaults are those of production."""

    cluster: str = "default"
    """The cluster's name; a store made for another cluster is refused."""
    enode: str = "enode-0"
    """This enode's name; a store made for another enode is refused."""

    segment_bytes: Annotated[int, NumberRange(4096, 2 << 30)] = 256 * MIB
    """Size of a new segment file. A larger frame gets a segment of its own."""
    flush_mode: FlushMode = FlushMode.SYNC
    """When an append is acknowledged, unless it sets its own mode. `sync`: when it is durable. `async`: at once, so
    that a crash may lose the last `flush_interval_ms`. An enode with several replicas has `durability` instead."""
    flush_interval_ms: Annotated[int, NumberRange(1, 3_600_000)] = 500
    """Maximum time until an append in mode `async` is flushed."""
    flush_bytes_max: Annotated[int, NumberRange(1, 1 << 30)] = 16 * MIB
    """Approximate maximum number of bytes in one flush."""
    pending_bytes_max: Annotated[int, NumberRange(1, 1 << 40)] = 64 * MIB
    """Maximum number of accepted bytes that wait for the disk. Above it appends are refused as overloaded."""
    idle_mark_ms: Annotated[int, NumberRange(1, 3_600_000)] = 50
    """Time without a flush after which a mark in the log records that everything before it is durable."""

    retention_age_ms: Annotated[int, NumberRange(0, 36_500 * DAY_MS)] = 72 * 3_600_000
    """Age of the last message of a segment above which the segment is deleted. 0 = never by age."""
    segment_age_max_ms: Annotated[int, NumberRange(0, 36_500 * DAY_MS)] = 0
    """Maximum age of the first message in the newest segment. When it is older, the next messages are written to a new
    segment. Then retention can delete the previous one. 0 = the value of retention_age_ms."""
    retention_bytes: Annotated[int, NumberRange(0, 1 << 60)] = 0
    """Size of the log above which its oldest segments are deleted. 0 = never by size."""
    retention_requires_acknowledgement: bool = False
    """Whether a segment is kept until every group with an offset in its topics has consumed it. A group with an offset
    in any topic has to consume its retry topic, too."""
    retention_interval_ms: Annotated[int, NumberRange(1, DAY_MS)] = 10_000
    """Interval between runs of retention. A log that exceeds `retention_bytes` by a segment does not wait for it."""
    checkpoint_records: Annotated[int, NumberRange(1, COUNT_MAX)] = 500_000
    """Number of state changes after which a checkpoint is written into the log. A checkpoint is also written after
    `segment_bytes` of other frames. A checkpoint as long as N segments is written N times less often."""
    checkpoint_slice_bytes: Annotated[int, NumberRange(1, 64 * MIB)] = 64 << 10
    """Approximate size of one slice of a checkpoint. Slices keep a checkpoint from blocking appends."""

    headroom_bytes: Annotated[int, NumberRange(0, 1 << 50)] = 64 * MIB
    """Free space on the disk below which sends are refused. Offsets and checkpoints may still use it."""
    disk_check_interval_ms: Annotated[int, NumberRange(1, DAY_MS)] = 1_000
    """Interval between checks whether a full disk has free space again."""

    recent_bytes: Annotated[int, NumberRange(0, MEMORY_BYTES_MAX)] = 64 * MIB
    """Memory for recently stored batches, from which tailing readers are served."""
    index_bytes: Annotated[int, NumberRange(0, MEMORY_BYTES_MAX)] = 32 * MIB
    """Memory for the queue indexes of earlier segments, which are loaded when a client reads these segments."""
    index_bytes_max: Annotated[int, NumberRange(0, MEMORY_BYTES_MAX)] = 0
    """Memory for the index of queues by segment, 362 bytes for each pair of queue and segment. When it is used up,
    sends to queues without messages in the newest segment are refused. The default 0 means a quarter of the memory of
    the container or the machine."""
    fetch_bytes_max: Annotated[int, NumberRange(1, 64 * MIB)] = 4 * MIB
    """Maximum size of the answer to one fetch. The first batch is returned even if it is larger."""
    read_threads: Annotated[int, NumberRange(1, 1_024)] = 4
    """Maximum number of parallel disk reads of earlier batches. Reads that select rows or columns use one more
    thread."""
    waiters_max: Annotated[int, NumberRange(1, COUNT_MAX)] = 100_000
    """Maximum number of fetches that wait for a message at the same time."""

    producer_idle_ms: Annotated[int, NumberRange(1, 36_500 * DAY_MS)] = 24 * 3_600_000
    """Time without a message after which a queue forgets a producer, and no longer detects its duplicates."""
    producers_max: Annotated[int, NumberRange(1, COUNT_MAX)] = 200_000
    """Maximum number of remembered (producer, queue) pairs. Those that have been idle longest are forgotten first."""

    key_index: bool = True
    """Whether the enode keeps an index of keys and message ids, for searches."""

    threads: bool = True
    """Whether disk work runs in threads. False runs it in order on the event loop, for tests that
    replay a run exactly."""

    def with_memory_limits(self, share_percent: int, total_bytes: int) -> "StoreSettings":
        """The same settings, with both caches reduced in proportion if they exceed `share_percent` of the memory.

        `index_bytes_max` is derived from the memory if it is not set.
        """
        allowed, wanted = total_bytes * share_percent // 100, self.recent_bytes + self.index_bytes
        allowed = min(allowed, wanted)
        return replace(
            self,
            recent_bytes=self.recent_bytes * allowed // max(1, wanted),
            index_bytes=self.index_bytes * allowed // max(1, wanted),
            index_bytes_max=self.index_bytes_max or total_bytes * INDEX_PERCENT // 100,
        )

    def check(self) -> None:
        """Refuse settings that cannot work. Errors: Invalid, naming the field."""
        check_ranges(self)
        if self.segment_bytes % ALIGNMENT_BYTES:
            raise Invalid(f"{self.segment_bytes}; expected a multiple of {ALIGNMENT_BYTES}", field="segment_bytes")
        if self.flush_mode is FlushMode.DEFAULT:
            raise Invalid("expected sync or async", field="flush_mode")
        for name in ("cluster", "enode"):
            if not getattr(self, name):
                raise Invalid("expected a name", field=name)
