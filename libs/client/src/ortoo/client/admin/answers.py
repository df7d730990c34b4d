"""What operators are told when something is wrong, as plain values."""

from dataclasses import dataclass

from ortoo.client.core.place import Queue
from ortoo.common.process.settings import Setting, SettingChange


@dataclass(frozen=True, slots=True)
class ClusterFinding:
    """One thing that is wrong, as a process of the cluster says it; its name never changes."""

    name: str
    seen: str
    consequence: str
    cure: str
    """What to do, with the command."""
    serious: bool
    """Whether something does not work because of it; otherwise it soon may not, or somebody should look."""
    process: str = ""
    """Who says so, such as `enode enode-0`; empty when it was found by comparing."""


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """What one process says about its settings."""

    role: str
    name: str
    address: str = ""
    """Where it was asked; empty = it is the snode that answered."""
    settings: tuple[Setting, ...] = ()
    changes: tuple[SettingChange, ...] = ()
    """The oldest first."""
    error: str = ""
    """Why it did not answer, or did not take a change; empty = it did."""


@dataclass(frozen=True, slots=True)
class MessageDelivery:
    """What became of one message for a group."""

    queue: Queue
    offset: int
    state: str
    """waiting, leased, delayed, acknowledged, parked; outstanding = of a member that commits offsets."""
    attempt: int
    """How often it was delivered."""
    until_ms: int
    """When its lease ends, or from when on it comes again; 0 = neither."""
    consumer: str
    """Who has it, or gave it back last; empty = not known any more."""
    error: str
    """What that consumer said; of a parked one why it was parked."""


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What became of messages, by queue and offset."""

    messages: tuple[MessageDelivery, ...]
    enodes_away: tuple[str, ...]
    """Those could not be asked."""
    more: bool = False
    """There are more than fit into one answer: ask again from behind the last one."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is not consumed; its name never changes."""

    name: str
    seen: str
    cure: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a group does not consume, what counts most first."""

    reasons: tuple[Reason, ...]
    delivery: MessageDelivery | None = None
    """Of the message that was asked about."""
