"""What is told of an open store: its metrics, and by its health whether it takes messages."""

from collections.abc import Callable
from dataclasses import dataclass

from ortoo.common.grpc.server import GrpcServer
from ortoo.common.process.clock import Clock
from ortoo.common.process.logs import get_logger
from ortoo.common.telemetry.metrics import Metrics
from ortoo.enode.observe.findings import FlushPace
from ortoo.enode.observe.metrics import register, register_groups, register_pops
from ortoo.enode.reigns.serving import Parts
from ortoo.enode.store.store import Store

_log = get_logger("enode")


def measured(metrics: Metrics, parts: Parts, clock: Clock) -> Callable[[], None]:
    """Name what is read from `parts`; the function that is returned takes the names back."""
    before = metrics.names
    register(metrics, parts.store, clock)
    register_pops(metrics, parts.store, parts.pops, parts.sending)
    register_groups(metrics, parts.groups)
    named = metrics.names - before
    return lambda: metrics.forget(named)


@dataclass(slots=True)
class Health:
    """Says whether this enode takes messages: by grpc.health.v1, and with `changed` to the name servers."""

    store: Store
    server: GrpcServer
    changed: Callable[[], object]
    pace: FlushPace
    may_open_again: bool = False
    """Whether this process opens a log anew whose disk failed; else only a new process can do its work."""
    serving: bool = True

    async def look(self) -> None:
        """Compare with the store, and tell a change."""
        self.pace.look()
        description = self.store.describe()
        if description.writable == self.serving or self.server.draining.is_set():
            return
        self.serving = description.writable
        await self.server.set_serving(self.serving)
        self.changed()
        if self.store.engine.appender.failure and not self.may_open_again:
            self.server.never_again()
        if self.serving:
            _log.info("taking messages again")
        else:
            _log.error("takes no messages", reason=description.reason)
