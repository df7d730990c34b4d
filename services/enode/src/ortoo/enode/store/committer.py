"""The commit of frames: folds them into the state and shows them to readers."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ortoo.common.records.sealed_batch import StoredBatch
from ortoo.enode.changes.kinds import (
    DigestDue,
    OffsetsCommitted,
    OffsetsSkipped,
    QueueTrimmed,
    StateChange,
    StateDigest,
    TopicDeleted,
)
from ortoo.enode.changes.timers import TimersSet
from ortoo.enode.index.catalog import QueueLog
from ortoo.enode.log.flushing.flush_group import FlushGroup
from ortoo.enode.reading.waiting import wake_all
from ortoo.enode.state.tables.dedup import Sequencer
from ortoo.enode.state.tables.offsets import GenerationReservations
from ortoo.enode.store.housekeeping import Housekeeping


@dataclass(eq=False)
class Committer:
    """Moves the committed position: the only place where the catalog and the state change."""

    housekeeping: Housekeeping

    def __post_init__(self) -> None:
        """Start with no commits since the opening of the store."""
        keeping = self.housekeeping
        self.catalog, self.state, self.recent = keeping.catalog, keeping.state, keeping.recent
        self.reset_in_flight()
        self.on_stored: list[Callable[[Collection[int]], object]] = []
        """Called with the topics that have new readable messages."""
        self.on_applied: list[Callable[[StateChange], object]] = []
        """Called with each folded change."""
        self.digests: tuple[int, tuple[int, ...]] = (0, ())
        """The number of the last comparison of digests, and this replica's digests for it."""
        self.on_compared: Callable[[list[str]], object] = lambda differing: None
        """Called after each comparison, with the names of the tables that differ from the leader's."""
        self.on_timers_set: Callable[[TimersSet], object] = lambda timers: None
        """Called with newly stored delayed messages."""
        self.appends = self.appended_messages = self.appended_bytes = 0

    def reset_in_flight(self, led_since_ms: int = -1) -> None:
        """Forget all frames on their way to the disk, so that decisions see only the folded state."""
        idle_ms = self.housekeeping.appender.settings.producer_idle_ms
        self.sequencer = Sequencer(self.state.windows, idle_ms=idle_ms, led_since_ms=led_since_ms)
        self.reservations = GenerationReservations()

    def commit(self, group: FlushGroup) -> None:
        """Fold a committed group, and show it to readers.

        Invariant: the state is a fold of the committed frames in the order of their positions, and of nothing else. So
        all replicas, and each start, have the same state at a position.
        """
        catalog, state, recent, checkpoints = self.catalog, self.state, self.recent, self.housekeeping.checkpoints
        next_segments = self.housekeeping.appender.next_segments
        woken: dict[QueueLog, None] = {}
        topic_ids: set[int] = set()
        for entry in group.entries:
            header = entry.header
            if entry.changes:
                for change in entry.changes:
                    self._apply(change, header.stored_at_ms)
                checkpoints.count_changes(len(entry.changes))
            if entry.batch is not None:
                queue: QueueLog = entry.queue or catalog.queue((header.topic_id, header.queue_id))
                first_offset, stored_at_ms, position = header.first_offset, header.stored_at_ms, header.position
                length = header.length + header.prefix_length
                catalog.add_batch(queue, first_offset, header.item_count, position, length, stored_at_ms)
                state.apply_messages(header)
                if header.producer_id:
                    self.sequencer.remove_in_flight((header.topic_id, header.queue_id, header.producer_id))
                if entry.queue is None:
                    queue.next_offset = queue.end_offset
                recent.put(position, StoredBatch(first_offset, stored_at_ms, entry.batch))
                topic_ids.add(header.topic_id)
                self.appends += 1
                self.appended_messages += header.item_count
                self.appended_bytes += header.length
                if queue.waiters:
                    woken[queue] = None
            elif entry.slice_at is not None:
                catalog.active_parts.slices.append(entry.slice_at)
                checkpoints.count_slice(entry.slice_at, header.frame_bytes)
            if next_segments and next_segments[0].base == header.end_position:
                self.housekeeping.on_segment_sealed(catalog.seal_active(catalog.active))
                catalog.segments.append(next_segments.pop(0))
        for queue in woken:
            wake_all(queue.waiters)
        for stored in self.on_stored if topic_ids else ():
            stored(topic_ids)
        self.housekeeping.committed()

    def _apply(self, change: StateChange, stored_at_ms: int) -> None:
        self.state.apply(change, stored_at_ms)
        if isinstance(change, TimersSet):
            if change.producer_id:
                self.sequencer.remove_in_flight((change.topic_id, change.queue_id, change.producer_id))
            self.on_timers_set(change)
        elif isinstance(change, OffsetsCommitted):
            self.reservations.release(change)
        elif isinstance(change, TopicDeleted):
            for queue in self.catalog.forget_topic(change.topic_id):
                wake_all(queue.waiters)
        elif isinstance(change, OffsetsSkipped) and change.topic_id:
            skipped = self.catalog.queue((change.topic_id, change.queue_id))
            skipped.end_offset = skipped.next_offset = max(skipped.next_offset, change.end_offset)
        elif isinstance(change, QueueTrimmed):
            if (trimmed := self.catalog.queues.get((change.topic_id, change.queue_id))) is not None:
                trimmed.trim(change.begin_offset)
        elif isinstance(change, DigestDue):
            self.digests = change.number, self.state.digests(change.tables)
        elif isinstance(change, StateDigest) and change.number == self.digests[0]:
            self.on_compared(self.state.differing_tables(self.digests[1], change.digests))
        self.catalog.floor = self.state.ends.floor
        for applied in self.on_applied:
            applied(change)
