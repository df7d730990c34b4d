"""The lag of a group in a topic, by queue and by state."""

from dataclasses import dataclass

from ortoo.client.core.queues import Queue


@dataclass(frozen=True, slots=True)
class QueueLag:
    """The lag of a group in one queue; a `committed_offset` of -1 means that the group has committed no offset."""

    queue: Queue
    committed_offset: int
    end_offset: int
    lag_messages: int


@dataclass(frozen=True, slots=True)
class LagByState:
    """The messages of one topic that a group has not finished, by state."""

    waiting: int = 0
    """Messages in no other state. Members of a group that commits offsets may already have some of them."""
    leased: int = 0
    """Messages that consumers of a popping group hold."""
    retrying: int = 0
    """Messages with a failed attempt, which wait for the next one."""
    parked: int = 0
    """The dead letters of the group that were not replayed."""
    delayed: int = 0
    """The delayed messages of the topic, which are not part of the lag."""
    next_retry_at_ms: int = 0
    """When the first of the retrying messages is due; 0 = none is retrying."""
    attempts: int = 0
    """The largest known number of failed attempts of a retrying message."""
    consumer: str = ""
    """The consumer that reported `error`."""
    error: str = ""
    """The last known error of a retrying message."""
    oldest_at_ms: int = 0
    """When the oldest unfinished message was stored; 0 = all are finished."""
    retention_used: float = 0.0
    """The share of its retention that the oldest unfinished message has used."""
    lost: int = 0
    """Messages that retention deleted before the group finished them, as far as the enodes know since their start."""
    lost_at_ms: int = 0
    """When retention last deleted such messages; 0 = before the enode's start."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group in a topic."""

    queues: tuple[QueueLag, ...]
    lag_messages: int
    """The unfinished messages of the queues, and the messages of all topics that wait in the group's retry topic."""
    by_state: LagByState = LagByState()
    """The same messages by state; a snode of an older version reports none."""
    unreachable_enodes: tuple[str, ...] = ()
    """Enodes that could not be reached; their queues are missing, so the lag may be larger."""


@dataclass(frozen=True, slots=True)
class LagSample:
    """The lag of a group at one time."""

    at_ms: int
    lag_messages: int
    """The unfinished messages, with those that wait in retries."""
    retention_left_ms: int | None = None
    """Time until retention reaches the oldest of them; None = not known, or not at all."""
    is_incomplete: bool = False
    """Whether an enode took no sample at this time, so that the lag may be larger."""


@dataclass(frozen=True, slots=True)
class LagHistory:
    """The lag of a group over the last hour, as far as the leaders of the enodes have recorded it."""

    samples: tuple[LagSample, ...]
    """Oldest first."""
    interval_ms: int
    """Time between two samples."""
    unreachable_enodes: tuple[str, ...] = ()
    """Enodes whose messages are missing."""
    is_partial: bool = False
    """Whether an enode has too many topics and groups with lag, and does not record all of them."""
