"""Settings of pull consumers and of their handlers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.client.core.queues import Queue
from ortoo.client.offsets.losses import LostMessages
from ortoo.client.offsets.start_point import StartRule
from ortoo.client.pull.flow_control import FlowLimits
from ortoo.common.groups.allocation import AllocationStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """Settings of a pull consumer."""

    from_beginning: bool = False
    """Start of the group in a queue without an offset: the oldest message if True, otherwise the end."""
    from_time_ms: int | None = None
    """Replaces `from_beginning`: the first message stored at or after this time, milliseconds since 1970-01-01 UTC."""
    broadcast: bool = False
    """Every member gets every message and keeps its offsets in a local file."""
    offsets_folder: Path = field(default_factory=lambda: Path.home() / ".ortoo" / "offsets")
    """Folder of a broadcast consumer's offset file. The client id names the file; connect with a fixed `client_id`."""
    strategy: AllocationStrategy = AllocationStrategy.AVERAGELY
    """Assignment of queues to members; all should set the same, and the first one by client id decides."""
    configured_queues: tuple[Queue, ...] = ()
    """The queues of this member, for AllocationStrategy.CONFIG."""
    zones: tuple[str, ...] = ()
    """The availability zones whose queues are assigned, for AllocationStrategy.MACHINE_ROOM."""
    on_loss: Callable[[LostMessages], None] | None = None
    """Called with messages that are lost because their stored bytes are damaged. They are logged in any case,
    and the group's offset moves past them."""
    pull_messages_max: int = 32
    """Largest number of messages of one pull."""
    pull_bytes_max: int = 1 << 20
    long_poll_ms: float = 15_000.0
    """Longest wait of the server for new messages, in a pull at the end of a queue."""
    limits: FlowLimits = FlowLimits()
    """Limits of unprocessed messages in one queue or topic; pulls stop above them."""
    flow_retry_ms: float = 50.0
    """Interval of checks of a queue that is above its limits."""
    pull_retry_ms: float = 3_000.0
    """Longest pause after a failed pull."""
    lock_retry_ms: float = 3_000.0
    """Interval of lock requests for a queue that another member holds."""
    lock_renewal_ms: float = 20_000.0
    lock_trust_ms: float = 30_000.0
    """Time for which a lock is trusted after its request; less than the 60 s that the server keeps it."""
    rebalance_interval_ms: float = 20_000.0
    """Interval of checks of the assignment, in addition to notifications by the server."""
    commit_first_ms: float = 10_000.0
    commit_interval_ms: float = 5_000.0
    """Interval of offset commits."""
    leave_wait_ms: float = 1_000.0
    """Longest wait for handlers of a queue that is being released."""

    @property
    def start(self) -> StartRule:
        """Where a queue without a committed offset starts."""
        return StartRule(self.from_beginning, self.from_time_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """How handlers are run."""

    concurrency: int = 20
    """Largest number of concurrent handlers."""
    batch_messages_max: int = 1
    """Largest number of messages of a queue in one call of a batch handler."""
    retry_delay_ms: float = 5_000.0
    """Delay of a retry in this consumer, for a failed message whose nack failed."""
    suspend_ms: float | None = None
    """Delay of a retry in ordered processing; None = the group's retry policy."""
    timeout_ms: float = 900_000.0
    """In concurrent processing a message is nacked after this time although its handler has not returned."""
    attempts_max: int = 0
    """Attempts before a message is parked; 0 = the group's limit."""
    manual_commit: bool = False
    """Ordered processing: the handler returns a CommitVerdict (None = KEEP), and only that commits. Other messages
    count against the consumer's limits, so commit at least every few hundred messages."""
