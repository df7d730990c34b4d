"""The fold: everything the enode remembers follows from its frames, one after another, and from nothing else."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ortoo.enode.changes.all import (
    Change,
    OffsetsSkipped,
    QueueEnds,
    TopicGone,
    WindowBatch,
)
from ortoo.enode.changes.timers import TimersSet
from ortoo.enode.log.frame import FrameHeader
from ortoo.enode.state.tables.dedup import Windows
from ortoo.enode.state.tables.halves import Halves
from ortoo.enode.state.tables.locks import Locks
from ortoo.enode.state.tables.message_ids import MessageIds
from ortoo.enode.state.tables.modes import Modes
from ortoo.enode.state.tables.offsets import Offsets
from ortoo.enode.state.tables.pops import Pops
from ortoo.enode.state.tables.sent_back import SentBackMarks
from ortoo.enode.state.tables.timers import Timers
from ortoo.enode.state.tables.topics import Topics


@dataclass(slots=True)
class Ends:
    """Where a queue ends."""

    end_offset: int = 0
    stored_at_ms: int = 0


class State:
    """Topics, offsets, locks, windows, pops, modes, timers, transactions and queue ends, as of one position of the log.

    `apply_*` are pure: no clock, no chance, no disk. Folding a stretch of the log again that is contained already
    leaves the same state when the stretch reaches to the end; checkpoints rely on it.
    """

    def __init__(self) -> None:
        """The state of an empty log."""
        self.topics = Topics()
        self.offsets = Offsets()
        self.locks = Locks()
        self.windows = Windows()
        self.pops = Pops()
        self.timers = Timers()
        self.halves = Halves()
        self.sent_back = SentBackMarks()
        self.modes = Modes()
        self.ids = MessageIds()
        self.ends: dict[tuple[int, int], Ends] = {}
        self.skipped: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.floor = 0
        """Where queues begin that are new; topic 0 of a skip stands for all unknown ones."""

    def apply_messages(self, header: FrameHeader) -> None:
        """Fold one messages frame in, by its header alone."""
        key = (header.topic_id, header.queue_id)
        ends = self.ends.get(key)
        if ends is None:
            ends = self.ends[key] = Ends()
        end_offset = header.first_offset + header.item_count
        if end_offset > ends.end_offset:
            ends.end_offset = end_offset
            ends.stored_at_ms = header.stored_at_ms
        if header.producer_id:
            self.windows.add((*key, header.producer_id), window_batch(header))

    def see_end(self, key: tuple[int, int], end_offset: int) -> None:
        """A batch of this queue is known to end here, from an index rather than from its frame."""
        ends = self.ends.setdefault(key, Ends())
        ends.end_offset = max(ends.end_offset, end_offset)

    def apply(self, change: Change) -> None:
        """Fold one state change in."""
        self.topics.apply(change)
        self.offsets.apply(change)
        self.locks.apply(change)
        self.windows.apply(change)
        self.pops.apply(change, self.offsets)
        self.timers.apply(change)
        self.halves.apply(change)
        self.sent_back.apply(change)
        self.modes.apply(change)
        self.ids.apply(change)
        if isinstance(change, TimersSet) and change.producer_id:
            self.windows.add((change.topic_id, change.queue_id, change.producer_id), deferred_batch(change))
        if isinstance(change, TopicGone):
            for key in [key for key in self.ends if key[0] == change.topic_id]:
                del self.ends[key]
            for key in [key for key in self.skipped if key[0] == change.topic_id]:
                del self.skipped[key]
        elif isinstance(change, QueueEnds):
            ends = self.ends.setdefault((change.topic_id, change.queue_id), Ends())
            if change.end_offset > ends.end_offset:
                ends.end_offset, ends.stored_at_ms = change.end_offset, change.stored_at_ms
        elif isinstance(change, OffsetsSkipped):
            if not change.topic_id:
                self.floor = max(self.floor, change.end_offset)
                return
            key = (change.topic_id, change.queue_id)
            ends = self.ends.setdefault(key, Ends())
            ends.end_offset = max(ends.end_offset, change.end_offset)
            if change.begin_offset == change.end_offset:
                return
            ranges = self.skipped.setdefault(key, [])
            if (change.begin_offset, change.end_offset) not in ranges:
                ranges.append((change.begin_offset, change.end_offset))

    def apply_all(self, changes: Iterable[Change]) -> None:
        """Fold several state changes in, one after another."""
        for change in changes:
            self.apply(change)

    def checkpoint(self) -> Iterator[bytes]:
        """The whole as encoded changes, drawn bit by bit."""
        yield from self.topics.checkpoint()
        yield from self.offsets.checkpoint()
        yield from self.locks.checkpoint()
        yield from self.windows.checkpoint()
        yield from self.pops.checkpoint()
        yield from self.timers.checkpoint()
        yield from self.halves.checkpoint()
        yield from self.sent_back.checkpoint()
        yield from self.modes.checkpoint()
        yield from self.ids.checkpoint()
        for key in list(self.ends):
            ends = self.ends.get(key)
            if ends is not None:
                yield QueueEnds(*key, ends.end_offset, ends.stored_at_ms).encoded()
        for key in list(self.skipped):
            for begin, end in self.skipped.get(key, ()):
                yield OffsetsSkipped(*key, begin, end).encoded()
        if self.floor:
            yield OffsetsSkipped(0, 0, 0, self.floor).encoded()


def window_batch(header: FrameHeader) -> WindowBatch:
    """What a producer's window remembers of a frame."""
    return WindowBatch(
        header.first_sequence, header.item_count, header.first_offset, header.stored_at_ms, header.payload_crc
    )


def deferred_batch(change: TimersSet) -> WindowBatch:
    """What a producer's window remembers of a batch that waits: its place instead of an offset."""
    return WindowBatch(change.first_sequence, change.count, change.first_place, change.stored_at_ms, change.payload_crc)
