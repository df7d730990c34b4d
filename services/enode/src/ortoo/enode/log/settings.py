"""What may be chosen about a store. Every field can be set by file, environment and command line."""

import enum
from dataclasses import dataclass, replace
from typing import Annotated

from ortoo.common.errors import Invalid
from ortoo.common.process.settings import Range, check_ranges
from ortoo.enode.log.frame import ALIGNMENT_BYTES

MIB = 1 << 20
DAY_MS = 86_400_000
COUNT_MAX = 1 << 30
"""Of what is counted."""
MEMORY_BYTES_MAX = 1 << 44
INDEX_PERCENT = 25
"""What knowing where everything lies may take of the memory, unless the settings say otherwise."""


class FlushMode(enum.StrEnum):
    """When an append is acknowledged."""

    DEFAULT = "default"
    """As the store is configured."""
    SYNC = "sync"
    """After fdatasync: a crash never loses it."""
    ASYNC = "async"
    """At once: a crash may lose the last `flush_interval_ms`. In an enode of several members: when its leader's disk
    has it, so that a take-over may lose it. Visible to readers only when it can be lost no more."""


RETENTION = ("retention_age_ms", "retention_bytes", "retention_requires_acknowledgement")
"""The settings of which segments go: they may change while the store is open."""


@dataclass(frozen=True)
class StoreSettings:
    """The settings of one store; the defaults are those of production."""

    cluster: str = "default"
    """The cluster's name; a store made for another cluster is refused."""
    enode: str = "enode-0"
    """This enode's name; a store made for another enode is refused."""

    segment_bytes: Annotated[int, Range(4096, 2 << 30)] = 256 * MIB
    """Size of a new segment file. One frame that is larger gets a segment of its own."""
    flush_mode: FlushMode = FlushMode.SYNC
    """When an append is acknowledged, unless it says otherwise itself."""
    flush_interval_ms: Annotated[int, Range(1, 3_600_000)] = 500
    """How long an append in mode `async` may wait for its flush."""
    flush_bytes_max: Annotated[int, Range(1, 1 << 30)] = 16 * MIB
    """About how many bytes one flush writes at most."""
    pending_bytes_max: Annotated[int, Range(1, 1 << 40)] = 64 * MIB
    """How many accepted bytes may wait for the disk before appends are refused as overloaded."""
    idle_mark_ms: Annotated[int, Range(1, 3_600_000)] = 50
    """After so long without a flush a mark says in the log that everything before it is durable."""

    retention_age_ms: Annotated[int, Range(0, 36_500 * DAY_MS)] = 72 * 3_600_000
    """Segments whose last message is older are deleted. 0 = never by age."""
    retention_bytes: Annotated[int, Range(0, 1 << 60)] = 0
    """The oldest segments go when the log is larger. 0 = never by size."""
    retention_requires_acknowledgement: bool = False
    """Keep a segment until every group that has an offset in its topics has passed it."""
    retention_interval_ms: Annotated[int, Range(1, DAY_MS)] = 10_000
    """How often retention looks."""
    checkpoint_records: Annotated[int, Range(1, COUNT_MAX)] = 500_000
    """A checkpoint of the state is written into the log after so many state changes, or after a segment's length of
    other frames. A checkpoint that is longer than a segment is written as many times less often."""
    checkpoint_slice_bytes: Annotated[int, Range(1, 64 * MIB)] = 64 << 10
    """About how large one slice of a checkpoint is, so that writing it never holds up appends."""

    headroom_bytes: Annotated[int, Range(0, 1 << 50)] = 64 * MIB
    """Sends are refused when the disk has less left than this; offsets and checkpoints may still use it."""
    disk_check_interval_ms: Annotated[int, Range(1, DAY_MS)] = 1_000
    """How often a full disk is looked at again."""

    recent_bytes: Annotated[int, Range(0, MEMORY_BYTES_MAX)] = 64 * MIB
    """Memory for recently stored batches, which tailing readers are served from."""
    index_bytes: Annotated[int, Range(0, MEMORY_BYTES_MAX)] = 32 * MIB
    """Memory for queue indexes of old segments, loaded when somebody reads there."""
    index_bytes_max: Annotated[int, Range(0, MEMORY_BYTES_MAX)] = 0
    """Memory for knowing which queue lies in which segment, 362 bytes for each such pair. When it is used up, sends to
    queues that have nothing in the newest segment yet are refused. 0 = a quarter of what the container or the machine
    has."""
    fetch_bytes_max: Annotated[int, Range(1, 64 * MIB)] = 4 * MIB
    """The most that one fetch answers, beyond its first batch."""
    read_threads: Annotated[int, Range(1, 1_024)] = 4
    """How many reads of old batches may be at the disk at once; those that choose rows or columns take turns beside."""
    waiters_max: Annotated[int, Range(1, COUNT_MAX)] = 100_000
    """How many fetches may wait for a message at once."""

    producer_idle_ms: Annotated[int, Range(1, 36_500 * DAY_MS)] = 24 * 3_600_000
    """A producer that sent nothing to a queue for so long is forgotten there."""
    producers_max: Annotated[int, Range(1, COUNT_MAX)] = 200_000
    """How many (producer, queue) pairs are remembered; the longest idle are forgotten first."""

    key_index: bool = True
    """Keep an index of keys and message ids, for searches."""

    threads: bool = True
    """False does all disk work on the event loop, in order: for tests that replay a run exactly."""

    def within(self, share_percent: int, total_bytes: int) -> "StoreSettings":
        """The same with both caches made smaller, in proportion, where they would exceed their share of the memory.

        The bound of the index is filled in.
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
