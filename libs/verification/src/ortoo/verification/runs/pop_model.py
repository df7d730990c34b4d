"""The model of a schedule of pops: its messages and leases, beside the line that it tests."""

from dataclasses import dataclass, field


class PopViolation(AssertionError):
    """The line broke a promise, which the message names."""


@dataclass(slots=True)
class Row:
    """The model's state of one message."""

    done: bool = False
    attempt: int = 0
    number: int = 0
    until_ms: int = 0
    leased: bool = False

    def copy(self) -> "Row":
        """An independent copy."""
        return Row(self.done, self.attempt, self.number, self.until_ms, self.leased)


@dataclass(slots=True)
class Counts:
    """Counts of the events of a run."""

    steps: int = 0
    delivered: int = 0
    finished: int = 0
    redelivered: int = 0
    parked: int = 0
    stale: int = 0
    crashes: int = 0
    starts: int = 0
    lost_ends: int = 0


@dataclass(slots=True)
class HeldLease:
    """Messages that a consumer holds, or believes to hold."""

    number: int
    offsets: list[int]
    message_ids: dict[int, int] = field(default_factory=dict)
    """Offset to the message that the consumer got there."""


@dataclass(frozen=True, slots=True)
class EarlierEnd:
    """The contents of the log at an earlier time, to which the disk may return."""

    log_length: int
    checkpoint: tuple[bytes, int] | None
    end: int
    rows: dict[int, Row]
