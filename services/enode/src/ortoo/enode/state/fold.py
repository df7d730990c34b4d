"""The fold: everything the enode remembers follows from its frames, one after another, and from nothing else."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ortoo.enode.changes.all import Change, TopicGone, WindowBatch
from ortoo.enode.changes.groups import GroupGone, GroupUse
from ortoo.enode.log.frame import FrameHeader
from ortoo.enode.state.table import Table
from ortoo.enode.state.tables.dedup import Windows
from ortoo.enode.state.tables.ends import Ends
from ortoo.enode.state.tables.groups import Groups
from ortoo.enode.state.tables.halves import Halves
from ortoo.enode.state.tables.locks import Locks
from ortoo.enode.state.tables.message_ids import MessageIds
from ortoo.enode.state.tables.modes import Modes
from ortoo.enode.state.tables.offsets import Offsets
from ortoo.enode.state.tables.pops import Pops
from ortoo.enode.state.tables.sent_back import SentBackMarks
from ortoo.enode.state.tables.timers import Timers
from ortoo.enode.state.tables.topics import Topics

DIGEST_ROWS_MAX = 5_000
"""A table of more rows is compared with no other member's, for nothing else is done meanwhile."""


class State:
    """The tables as of one position of the log.

    `apply_*` are pure: no clock, no chance, no disk. Folding a stretch of the log again that is contained already
    leaves the same state when the stretch reaches to the end; checkpoints rely on it.
    """

    def __init__(self) -> None:
        """The state of an empty log."""
        self.topics = Topics()
        self.offsets = Offsets()
        self.locks = Locks()
        self.windows = Windows()
        self.pops = Pops(self.offsets)
        self.timers = Timers()
        self.halves = Halves()
        self.sent_back = SentBackMarks()
        self.modes = Modes()
        self.ids = MessageIds()
        self.ends = Ends()
        self.groups = Groups()
        self.tables: Mapping[str, Table[Any]] = dict(vars(self))
        """By name; what is made later comes behind what there is."""
        self._tables = tuple(self.tables.values())
        self._folds: dict[type[Change], list[Callable[[Any], None]]] = {}
        """Of each kind of change, the methods of the tables that it concerns."""
        for table in self._tables:
            for kind, fold in table.FOLDS.items():
                self._folds.setdefault(kind, []).append(partial(fold, table))

    def apply_messages(self, header: FrameHeader) -> None:
        """Fold one messages frame in, by its header alone."""
        key = (header.topic_id, header.queue_id)
        self.ends.see(key, header.first_offset + header.item_count, header.stored_at_ms)
        if header.producer_id:
            batch = WindowBatch(
                header.first_sequence, header.item_count, header.first_offset, header.stored_at_ms, header.payload_crc
            )
            self.windows.add((*key, header.producer_id), batch)

    def apply(self, change: Change, stored_at_ms: int = 0) -> None:
        """Fold one state change in, of a frame that was stored then; 0 = it is a checkpoint's."""
        if isinstance(change, GroupUse):
            self.groups.use(change.topic_id, change.group, stored_at_ms)
        elif isinstance(change, TopicGone):
            for table in self._tables:
                table.drop_topic(change.topic_id)
        elif isinstance(change, GroupGone):
            for table in self._tables:
                table.drop_group(change.topic_id, change.group)
        for fold in self._folds.get(type(change), ()):
            fold(change)

    def apply_all(self, changes: Iterable[Change], stored_at_ms: int = 0) -> None:
        """Fold several state changes in, one after another."""
        for change in changes:
            self.apply(change, stored_at_ms)

    def checkpoint(self) -> Iterator[bytes]:
        """The whole as encoded changes, drawn bit by bit."""
        for table in self._tables:
            yield from table.checkpoint()

    def comparable(self) -> int:
        """Bit by bit, the tables that are small enough to be digested between two messages."""
        return sum(1 << number for number, table in enumerate(self._tables) if table.rows <= DIGEST_ROWS_MAX)

    def digests(self, tables: int) -> tuple[int, ...]:
        """A digest of each of these tables; 0 of the others."""
        return tuple(table.digest() if tables >> number & 1 else 0 for number, table in enumerate(self._tables))

    def differing(self, digests: Sequence[int], others: Sequence[int]) -> list[str]:
        """Names of the tables that two members have different digests of."""
        return [name for name, one, other in zip(self.tables, digests, others, strict=False) if one != other]
