"""How a pull consumer takes part in its group, and what it takes at once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.client.core.place import Queue
from ortoo.client.offsets.losses import LostMessages
from ortoo.client.offsets.start_point import StartRule
from ortoo.client.pull.flow_control import FlowLimits
from ortoo.common.groups.allocation import AllocationStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """How a pull consumer takes part in its group, and what it takes at once."""

    from_first: bool = False
    """Where the group starts in a queue for which it has no offset: the oldest message, or what comes from now on."""
    from_time_ms: int | None = None
    """Instead: the first message stored at or after this time, milliseconds since 1970-01-01 UTC."""
    broadcast: bool = False
    """Every member gets every message and keeps its offsets in a file of its own."""
    offsets_folder: Path = field(default_factory=lambda: Path.home() / ".ortoo" / "offsets")
    """With `broadcast`: where that file lies, under the client's id; connect with one that stays the same."""
    strategy: AllocationStrategy = AllocationStrategy.AVERAGELY
    """How the members share out queues; all should say the same, the first one by client id decides."""
    configured_queues: tuple[Queue, ...] = ()
    """With AllocationStrategy.CONFIG: the queues this member takes."""
    rooms: tuple[str, ...] = ()
    """With AllocationStrategy.MACHINE_ROOM: the rooms whose queues are shared out."""
    on_loss: Callable[[LostMessages], None] | None = None
    """Called with messages that will not come because they are damaged where they are stored. They are logged anyway,
    and the group's offset moves on behind them."""
    pull_messages_max: int = 32
    """How many messages one pull may bring."""
    pull_bytes_max: int = 1 << 20
    long_poll_ms: float = 15_000.0
    """How long the server holds a pull at the end of a queue."""
    limits: FlowLimits = FlowLimits()
    """How much of one queue, or of a topic, may wait to be processed before pulling stops."""
    flow_retry_ms: float = 50.0
    """How soon a queue that was held back by the limits is looked at again."""
    pull_retry_ms: float = 3_000.0
    """The longest pause after a pull that failed."""
    lock_retry_ms: float = 3_000.0
    """How soon a queue that somebody else holds is asked for again."""
    lock_renewal_ms: float = 20_000.0
    lock_trust_ms: float = 30_000.0
    """How long a lock is believed after it was asked for; less than the 60 s that the server keeps it."""
    rebalance_interval_ms: float = 20_000.0
    """How often the members' shares are looked at, besides each time a server says that they changed."""
    commit_first_ms: float = 10_000.0
    commit_interval_ms: float = 5_000.0
    """How often offsets are stored."""
    leave_wait_ms: float = 1_000.0
    """How long a queue that goes elsewhere waits for the handlers that have its messages."""

    @property
    def start(self) -> StartRule:
        """Where a queue without an offset begins."""
        return StartRule(self.from_first, self.from_time_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """How handlers are run."""

    concurrency: int = 20
    """How many handlers run at a time."""
    batch_messages_max: int = 1
    """How many messages of a queue a batch handler gets at once, at most."""
    retry_delay_ms: float = 5_000.0
    """How soon a failed message comes again when it could not be sent back; then it stays with this consumer."""
    suspend_ms: float | None = None
    """In order: how soon a failed message comes again; None = by the group's back-off."""
    timeout_ms: float = 900_000.0
    """Outside an order: after so long a message is sent back although its handler has not returned."""
    attempts_max: int = 0
    """After so many tries a message is parked; 0 = as the group says."""
    manual_commit: bool = False
    """In order: the handler returns a CommitVerdict, None = KEEP; only what it commits is done. What is kept counts
    against the limits of the consumer, so commit at least every few hundred messages."""
