"""The fold: the enode's whole state follows from the frames of its log, applied one after another."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ortoo.enode.changes.groups import GroupDropped, GroupUse
from ortoo.enode.changes.kinds import StateChange, TopicDeleted, WindowBatch
from ortoo.enode.log.frame import FrameHeader
from ortoo.enode.state.table import StateTable
from ortoo.enode.state.tables.dedup import SequenceWindowTable
from ortoo.enode.state.tables.ends import QueueEndTable, TrimTable
from ortoo.enode.state.tables.groups import GroupUseTable, ModeTable, SinkTable
from ortoo.enode.state.tables.halves import HalfMessageTable
from ortoo.enode.state.tables.locks import StoredLockTable
from ortoo.enode.state.tables.message_ids import MessageIdTable
from ortoo.enode.state.tables.offsets import GroupOffsetTable
from ortoo.enode.state.tables.pops import PopTable
from ortoo.enode.state.tables.schedules import ScheduleTable
from ortoo.enode.state.tables.sent_back import RetryMarkTable
from ortoo.enode.state.tables.timers import TimerTable
from ortoo.enode.state.tables.topics import TopicTable

DIGEST_ROWS_MAX = 5_000
"""Larger tables are not compared with other replicas, because computing a digest blocks the event loop."""


class State:
    """The tables as of one position of the log.

    `apply_*` are pure: no clock, no randomness, no disk. Folding the last part of the log a second time does not change
    the state. Checkpoints rely on this.
    """

    def __init__(self) -> None:
        """The state of an empty log."""
        trims = TrimTable()
        self.topics = TopicTable()
        self.offsets = GroupOffsetTable()
        self.locks = StoredLockTable()
        self.windows = SequenceWindowTable()
        self.pops = PopTable(self.offsets, trims)
        self.timers = TimerTable()
        self.halves = HalfMessageTable()
        self.sent_back = RetryMarkTable()
        self.modes = ModeTable()
        self.ids = MessageIdTable()
        self.ends = QueueEndTable()
        self.groups = GroupUseTable()
        self.schedules = ScheduleTable()
        self.trims = trims
        self.sinks = SinkTable()
        self.tables: Mapping[str, StateTable[Any]] = dict(vars(self))
        """Tables by name; new tables must be appended at the end."""
        self._tables = tuple(self.tables.values())
        self._folds: dict[type[StateChange], list[Callable[[Any], None]]] = {}
        """Class of a change to the fold methods of the tables that it concerns."""
        for table in self._tables:
            for kind, fold in table.FOLDS.items():
                self._folds.setdefault(kind, []).append(partial(fold, table))

    def apply_messages(self, header: FrameHeader) -> None:
        """Fold the header of one messages frame."""
        key = (header.topic_id, header.queue_id)
        self.ends.extend(key, header.first_offset + header.item_count, header.stored_at_ms)
        if header.producer_id:
            batch = WindowBatch(
                header.first_sequence, header.item_count, header.first_offset, header.stored_at_ms, header.payload_crc
            )
            self.windows.add((*key, header.producer_id), batch)

    def apply(self, change: StateChange, stored_at_ms: int = 0) -> None:
        """Fold one state change of a frame stored at `stored_at_ms`; 0 = from a checkpoint."""
        if isinstance(change, GroupUse):
            self.groups.record_use(change.topic_id, change.group, stored_at_ms)
        elif isinstance(change, TopicDeleted):
            for table in self._tables:
                table.drop_topic(change.topic_id)
        elif isinstance(change, GroupDropped):
            for table in self._tables:
                table.drop_group(change.topic_id, change.group)
        for fold in self._folds.get(type(change), ()):
            fold(change)

    def apply_all(self, changes: Iterable[StateChange], stored_at_ms: int = 0) -> None:
        """Fold several state changes, one after another."""
        for change in changes:
            self.apply(change, stored_at_ms)

    def checkpoint(self) -> Iterator[bytes]:
        """Yield the whole state as encoded changes.

        The trims come first. Their fold raises offsets of other tables, and a group may have committed a lower one
        since.
        """
        yield from self.trims.checkpoint()
        for table in self._tables:
            if table is not self.trims:
                yield from table.checkpoint()

    def comparable_tables(self) -> int:
        """A bit mask of the tables that are small enough for a digest."""
        return sum(1 << number for number, table in enumerate(self._tables) if table.rows <= DIGEST_ROWS_MAX)

    def digests(self, tables: int) -> tuple[int, ...]:
        """The digests of the tables that the bit mask `tables` selects; 0 for each other table."""
        return tuple(table.digest() if tables >> number & 1 else 0 for number, table in enumerate(self._tables))

    def differing_tables(self, digests: Sequence[int], other_digests: Sequence[int]) -> list[str]:
        """The names of the tables whose digests differ between two replicas."""
        return [name for name, one, other in zip(self.tables, digests, other_digests, strict=False) if one != other]
