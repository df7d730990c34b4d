"""What every room of one running snode shares: settings, tasks, time, chance, connections, metrics."""

from dataclasses import dataclass

from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.common.telemetry.metrics import Metrics
from ortoo.snode.settings import Settings


@dataclass(frozen=True, slots=True)
class Runtime:
    """Lives as long as the snode."""

    settings: Settings
    incarnation: str
    """New at each start."""
    background: Background
    channels: Channels
    metrics: Metrics
    clock: Clock
    randomness: Randomness
    memory: MemoryBudget
    """From which whatever is held for clients is drawn."""

    @property
    def enode_timeout_s(self) -> float:
        """How long an enode may take to answer."""
        return self.settings.enode_timeout_ms / 1000
