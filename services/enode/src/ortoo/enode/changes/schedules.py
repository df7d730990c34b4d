"""State changes of schedules; kinds 69 to 71. docs/formats/log.md describes their bytes."""

import enum
from dataclasses import dataclass
from typing import Annotated

from ortoo.enode.changes.codec import I64, U8, U32, U64, BoolField, PackedColumn, StateChange


class CatchUp(enum.IntEnum):
    """Which late occurrences are sent, for example after an outage. The values are those of the protobuf enum."""

    LAST = 1
    """The newest one."""
    SKIP = 2
    """None."""
    ALL = 3
    """All, up to a limit."""


@dataclass(frozen=True, slots=True)
class SchedulePut(StateChange):
    """A schedule was created or changed, suspended or resumed; the newest change of a topic and name counts."""

    topic_id: U64
    queue_id: U32
    started_at_ms: I64
    """When its rule began to count. The occurrences of an interval are this time and multiples of the period later."""
    settled_ms: I64
    """Every occurrence up to this time was sent or left out."""
    sent_count: U64
    """The number of messages sent so far."""
    period_ms: U64
    """The interval; 0 = the rule is `cron`."""
    catch_up: U8
    suspended: BoolField
    records: Annotated[bytes, PackedColumn("B")]
    """The message, as a record batch of one row."""
    name: str
    cron: str
    """Five fields; empty = the rule is an interval."""
    timezone: str
    """The time zone of `cron`, by its name in the IANA database."""


@dataclass(frozen=True, slots=True)
class ScheduleAdvanced(StateChange):
    """Messages of a schedule were sent; they are in the frame of this change."""

    topic_id: U64
    settled_ms: I64
    """The occurrence of the last message."""
    sent_count: U64
    """The number of messages sent so far, with those of this frame."""
    name: str


@dataclass(frozen=True, slots=True)
class ScheduleDeleted(StateChange):
    """A schedule was deleted."""

    topic_id: U64
    name: str
