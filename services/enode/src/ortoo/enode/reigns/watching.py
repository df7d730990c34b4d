"""What is told of an open store: its metrics, and by its health whether it takes messages."""

from collections.abc import Callable
from dataclasses import dataclass

from ortoo.common.grpc.server import GrpcServer
from ortoo.common.process.clock import Clock
from ortoo.common.process.logs import get_logger
from ortoo.common.telemetry.metrics import Metrics
from ortoo.enode.observe.findings import FlushPace
from ortoo.enode.observe.metrics import register, register_groups, register_pops, register_transactions
from ortoo.enode.reigns.serving import Parts
from ortoo.enode.store.store import Store

_log = get_logger("enode")


def measured(metrics: Metrics, parts: Parts, clock: Clock) -> Callable[[], None]:
    """Name what is read from `parts`; the function that is returned takes the names back."""
    before = metrics.names
    register(metrics, parts.store, clock)
    register_pops(metrics, parts.store, parts.handlers.pops, parts.handlers.sending)
    register_transactions(metrics, parts.store, parts.transactions)
    register_groups(metrics, parts.groups)
    named = metrics.names - before
    return lambda: metrics.forget(named)


@dataclass(slots=True)
class Health:
    """Says whether this enode can do its work: by grpc.health.v1, and with `changed` to the name servers.

    It can when it takes messages and others know of it.
    """

    store: Store
    server: GrpcServer
    changed: Callable[[], object]
    pace: FlushPace
    is_known: Callable[[], bool] = lambda: True
    """Whether others are told of this enode; a member leads because it is."""
    may_open_again: bool = False
    """Whether this process opens a log anew whose disk failed; else only a new process can do its work."""
    writable: bool = True

    async def look(self) -> None:
        """Compare with the store and the leases, and tell a change."""
        self.pace.look()
        if self.server.draining.is_set():
            return
        description = self.store.describe()
        if description.writable != self.writable:
            self.writable = description.writable
            self.changed()
            if self.store.engine.appender.failure and not self.may_open_again:
                self.server.never_again()
            if self.writable:
                _log.info("taking messages again")
            else:
                _log.error("takes no messages", reason=description.reason)
        if (is_ready := self.writable and self.is_known()) != self.server.serving:
            await self.server.set_serving(is_ready)
