"""The kinds of state changes. docs/formats/log.md shows them with their bytes, which `codec` makes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from ortoo.enode.changes import codec
from ortoo.enode.changes.codec import I64, U32, U64, Flag, Repeated, repeated
from ortoo.enode.changes.groups import (
    GroupDeclared,
    GroupGone,
    GroupSeen,
    GroupsEnded,
    GroupUse,
    ModeSet,
    SentBack,
    SentBackForgotten,
)
from ortoo.enode.changes.halves import HalfEnded, HalfOpen
from ortoo.enode.changes.pops import PopFinished, PopIntervals, PopLeased, PopNote, PopReturned
from ortoo.enode.changes.timers import TimerRows, TimersDone, TimersSet

Change = codec.Change
"""Of any kind."""
HEAD_BYTES = codec.HEAD_BYTES
encode_changes = codec.encode_changes
ID_BYTES = 16
"""How long an id is that stands for one an application chose."""


@dataclass(frozen=True, slots=True)
class TopicPut(Change):
    """A topic was created or changed; written before directories had ids."""

    topic_id: U64
    version: U64
    queue_count: U32
    name: str


@dataclass(frozen=True, slots=True)
class TopicOf(Change):
    """A topic of a directory was created, changed, or adopted by that directory."""

    topic_id: U64
    version: U64
    queue_count: U32
    directory_id: str
    """Of the name servers that say so."""
    name: str


@dataclass(frozen=True, slots=True)
class TopicGone(Change):
    """A topic was deleted, with its queues and every offset in it."""

    topic_id: U64


@dataclass(frozen=True, slots=True)
class OffsetsCommitted(GroupUse):
    """A group consumed some queues of a topic up to these offsets."""

    generation: U64
    """Of the assignment; 0 leaves the stored one."""
    offsets: Annotated[tuple[tuple[int, int], ...], Repeated("Iq")]
    """(queue id, next offset)."""


@dataclass(frozen=True, slots=True)
class OffsetRows(GroupUse):
    """In a checkpoint: all or some of a group's offsets in a topic."""

    rows: Annotated[tuple[tuple[int, int, int], ...], Repeated("IqQ")]
    """(queue id, next offset, generation)."""


@dataclass(frozen=True, slots=True)
class WindowBatch:
    """One batch that a producer sent, as the window remembers it."""

    first_sequence: U64
    count: U32
    first_offset: I64
    stored_at_ms: I64
    crc: U32


@dataclass(frozen=True, slots=True)
class ProducerWindow(Change):
    """In a checkpoint: what one producer sent to one queue last."""

    topic_id: U64
    queue_id: U32
    producer_id: U64
    next_sequence: U64
    used_at_ms: I64
    batches: Annotated[tuple[WindowBatch, ...], repeated(WindowBatch)]


@dataclass(frozen=True, slots=True)
class QueueEnds(Change):
    """In a checkpoint: the end of a queue, known even when none of its frames is left."""

    topic_id: U64
    queue_id: U32
    end_offset: I64
    stored_at_ms: I64
    """Of the last message; 0 if there was none."""


@dataclass(frozen=True, slots=True)
class OffsetsSkipped(Change):
    """Offsets that will never hold a message, because the place they may have lain in was damaged."""

    topic_id: U64
    queue_id: U32
    begin_offset: I64
    end_offset: I64


@dataclass(frozen=True, slots=True)
class LocksPut(GroupUse):
    """Who holds the locks of some queues of a topic in a group, from now on."""

    owner: str
    """A client id; empty = the locks are free, only their generations are kept."""
    session_id: str
    """The owner's session."""
    incarnation: str
    """Of the snode that the locks are bound to; empty = none."""
    rows: Annotated[tuple[tuple[int, int], ...], Repeated("IQ")]
    """(queue id, generation)."""


@dataclass(frozen=True, slots=True)
class IdsRemembered(Change):
    """Messages with ids that applications chose were stored, one after another."""

    topic_id: U64
    queue_id: U32
    first_offset: I64
    """Of delayed messages: the first one's number among those that wait."""
    delayed: Flag
    stored_at_ms: I64
    until_ms: I64
    """Until then, by the wall clock, a message with one of these ids is not stored again."""
    ids: Annotated[tuple[bytes, ...], Repeated("16s")]
    """16 bytes each."""


@dataclass(frozen=True, slots=True)
class Forget(Change):
    """What nobody is to be told of any more is dropped. Folding it again drops nothing else, however late."""

    idle_before_ms: I64
    """Windows of producers that were last used before."""
    over_before_ms: I64
    """Ids of messages that were to be remembered until then, or not so long."""


@dataclass(frozen=True, slots=True)
class DigestDue(Change):
    """Every member makes digests of its state as it is here."""

    number: U64
    tables: U32
    """Bit by bit, of which tables."""


@dataclass(frozen=True, slots=True)
class StateDigest(Change):
    """The leader's digests of a number, one for each table; 0 for those of which none was due."""

    number: U64
    digests: Annotated[tuple[int, ...], Repeated("Q")]


KINDS: Mapping[int, type[Change]] = {
    1: TopicPut,
    2: TopicGone,
    3: OffsetsCommitted,
    4: OffsetRows,
    5: ProducerWindow,
    6: QueueEnds,
    7: OffsetsSkipped,
    8: LocksPut,
    9: TopicOf,
    32: PopLeased,
    33: PopReturned,
    34: PopFinished,
    35: PopIntervals,
    36: PopNote,
    37: SentBack,
    38: SentBackForgotten,
    39: ModeSet,
    40: IdsRemembered,
    64: TimersSet,
    65: TimerRows,
    66: TimersDone,
    67: HalfOpen,
    68: HalfEnded,
    128: GroupSeen,
    129: GroupDeclared,
    130: GroupGone,
    131: GroupsEnded,
    132: Forget,
    133: DigestDue,
    134: StateDigest,
}
"""A number is given once and for ever."""

decode_changes = codec.ChangeCodec(KINDS).decode
