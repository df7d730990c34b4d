"""The kinds of state changes. docs/formats/log.md describes their bytes, which `codec` generates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from ortoo.enode.changes import codec
from ortoo.enode.changes.codec import I64, U32, U64, BoolField, Repeated, repeated
from ortoo.enode.changes.groups import (
    GroupDeclared,
    GroupDeletionsDone,
    GroupDropped,
    GroupUse,
    GroupUsed,
    ModeSet,
    RetryCopiesStored,
    RetryMarksDropped,
)
from ortoo.enode.changes.halves import HalfEnded, HalfOpen
from ortoo.enode.changes.pops import (
    LeasesInvalidated,
    PopFinished,
    PopIntervals,
    PopLeased,
    PopNote,
    PopReturned,
)
from ortoo.enode.changes.schedules import ScheduleAdvanced, ScheduleDeleted, SchedulePut
from ortoo.enode.changes.timers import TimerRows, TimersDone, TimersSet

StateChange = codec.StateChange
"""Base of all kinds."""
HEAD_BYTES = codec.HEAD_BYTES
encode_changes = codec.encode_changes
ID_BYTES = 16
"""The length of the hash of an application id."""


@dataclass(frozen=True, slots=True)
class TopicPut(StateChange):
    """A topic was created or changed. Only versions in which directories had no ids wrote this change."""

    topic_id: U64
    version: U64
    queue_count: U32
    name: str


@dataclass(frozen=True, slots=True)
class DirectoryTopicPut(StateChange):
    """A topic of a directory was created, changed, or adopted by that directory."""

    topic_id: U64
    version: U64
    queue_count: U32
    directory_id: str
    """The directory of the name servers that reported it."""
    name: str


@dataclass(frozen=True, slots=True)
class TopicDeleted(StateChange):
    """A topic was deleted, with its queues and every offset in it."""

    topic_id: U64


@dataclass(frozen=True, slots=True)
class OffsetsCommitted(GroupUse):
    """A group consumed some queues of a topic up to these offsets."""

    generation: U64
    """The generation of the assignment; 0 leaves the stored one."""
    offsets: Annotated[tuple[tuple[int, int], ...], Repeated("Iq")]
    """(queue id, next offset)."""


@dataclass(frozen=True, slots=True)
class OffsetRows(GroupUse):
    """In a checkpoint: all or some of a group's offsets in a topic."""

    rows: Annotated[tuple[tuple[int, int, int], ...], Repeated("IqQ")]
    """(queue id, next offset, generation)."""


@dataclass(frozen=True, slots=True)
class WindowBatch:
    """One batch in the deduplication window of its producer."""

    first_sequence: U64
    count: U32
    first_offset: I64
    stored_at_ms: I64
    crc: U32


@dataclass(frozen=True, slots=True)
class ProducerWindow(StateChange):
    """In a checkpoint: the window of one producer in one queue."""

    topic_id: U64
    queue_id: U32
    producer_id: U64
    next_sequence: U64
    used_at_ms: I64
    batches: Annotated[tuple[WindowBatch, ...], repeated(WindowBatch)]


@dataclass(frozen=True, slots=True)
class QueueEndSnapshot(StateChange):
    """In a checkpoint: the end of a queue, kept even after all its frames are deleted."""

    topic_id: U64
    queue_id: U32
    end_offset: I64
    stored_at_ms: I64
    """The time of the last message; 0 if there was none."""


@dataclass(frozen=True, slots=True)
class OffsetsSkipped(StateChange):
    """Offsets that will never hold a message, because the part of the log that may have held them was damaged."""

    topic_id: U64
    queue_id: U32
    begin_offset: I64
    end_offset: I64


@dataclass(frozen=True, slots=True)
class LocksChanged(GroupUse):
    """The new holder of the locks of some queues of a topic in a group."""

    owner: str
    """A client id; empty = the locks are free, only their generations are kept."""
    session_id: str
    """The owner's session."""
    incarnation: str
    """The incarnation of the snode that the locks are bound to; empty = none."""
    rows: Annotated[tuple[tuple[int, int], ...], Repeated("IQ")]
    """(queue id, generation)."""


@dataclass(frozen=True, slots=True)
class IdsRemembered(StateChange):
    """Messages with application ids were stored, at consecutive offsets."""

    topic_id: U64
    queue_id: U32
    first_offset: I64
    """The offset of the first message; of delayed messages its timer id."""
    delayed: BoolField
    stored_at_ms: I64
    until_ms: I64
    """The end of the window by the wall clock: until then a message with one of these ids is not stored again."""
    ids: Annotated[tuple[bytes, ...], Repeated("16s")]
    """16 bytes each."""


@dataclass(frozen=True, slots=True)
class ExpiredDropped(StateChange):
    """Expired windows and ids are dropped. The change contains the times, so that a replay drops the same entries."""

    idle_before_ms: I64
    """Windows of producers last used before this are dropped."""
    over_before_ms: I64
    """Ids whose window ended at or before this are dropped."""


@dataclass(frozen=True, slots=True)
class DigestDue(StateChange):
    """Every replica computes digests of its state at this position of the log."""

    number: U64
    tables: U32
    """A bit mask of the tables."""


@dataclass(frozen=True, slots=True)
class StateDigest(StateChange):
    """The leader's digests for a `DigestDue`: one for each table, 0 for a table that was not due."""

    number: U64
    digests: Annotated[tuple[int, ...], Repeated("Q")]


@dataclass(frozen=True, slots=True)
class QueueTrimmed(StateChange):
    """An operator made the messages of a queue below an offset unreadable. Groups continue at this offset.

    Older processes skip it, so that these messages are readable there until retention deletes them.
    """

    topic_id: U64
    queue_id: U32
    begin_offset: I64


@dataclass(frozen=True, slots=True)
class SinkCommitted(GroupUse):
    """The names of an exactly-once sink and its query, at a commit or a reset of the account that the group holds.

    Older processes skip it. They keep the account itself, which is an offset of the group.
    """

    changed_at_ms: I64
    sink_id: str
    query_id: str


KINDS: Mapping[int, type[StateChange]] = {
    1: TopicPut,
    2: TopicDeleted,
    3: OffsetsCommitted,
    4: OffsetRows,
    5: ProducerWindow,
    6: QueueEndSnapshot,
    7: OffsetsSkipped,
    8: LocksChanged,
    9: DirectoryTopicPut,
    32: PopLeased,
    33: PopReturned,
    34: PopFinished,
    35: PopIntervals,
    36: PopNote,
    37: RetryCopiesStored,
    38: RetryMarksDropped,
    39: ModeSet,
    40: IdsRemembered,
    41: LeasesInvalidated,
    64: TimersSet,
    65: TimerRows,
    66: TimersDone,
    67: HalfOpen,
    68: HalfEnded,
    69: SchedulePut,
    70: ScheduleAdvanced,
    71: ScheduleDeleted,
    128: GroupUsed,
    129: GroupDeclared,
    130: GroupDropped,
    131: GroupDeletionsDone,
    132: ExpiredDropped,
    133: DigestDue,
    134: StateDigest,
    135: QueueTrimmed,
    136: SinkCommitted,
}
"""Numbers are never reused."""

decode_changes = codec.ChangeCodec(KINDS).decode
