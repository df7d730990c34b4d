"""The shared objects of one running snode: settings, tasks, clock, randomness, connections, metrics."""

from dataclasses import dataclass

from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.common.telemetry.metrics import Metrics
from ortoo.snode.cluster.stream_ages import StreamAges
from ortoo.snode.settings import SnodeSettings


@dataclass(frozen=True, slots=True)
class Runtime:
    """The objects that live as long as the snode runs."""

    settings: SnodeSettings
    incarnation: str
    """A new id at each start."""
    background: Background
    channels: Channels
    metrics: Metrics
    clock: Clock
    randomness: Randomness
    memory: MemoryBudget
    """Counts all memory held for clients."""
    stream_ages: StreamAges
    """Ends the long streams of clients at an age."""

    @property
    def enode_timeout_s(self) -> float:
        """The timeout of a request to an enode, in seconds."""
        return self.settings.enode_timeout_ms / 1000
