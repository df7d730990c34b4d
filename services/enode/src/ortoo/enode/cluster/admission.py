"""Admission of this store by the name servers: only the store registered for the enode may serve."""

import asyncio
from dataclasses import dataclass, field

from ortoo.common.cluster.registrations import Registrations
from ortoo.common.logs.logger import get_logger
from ortoo.enode import log_events
from ortoo.enode.store.store import Store

_log = get_logger("enode")


@dataclass(eq=False)
class Admission:
    """Bars a store that name servers refuse, and keeps a new store without topics until a name server registers it."""

    store: Store
    leases: Registrations
    admitted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the store may follow the directory."""

    def __post_init__(self) -> None:
        """A store with topics was admitted before: it serves whether or not a name server answers."""
        if self.store.topics():
            self.admitted.set()

    def refresh(self) -> None:
        """Bar or admit the store by the outcome of the last request to the name servers for a lease."""
        refusal = "" if self.leases.is_registered else self.leases.other_store
        appender = self.store.engine.appender
        if refusal and not appender.barred:
            _log.emit(log_events.STORE_REFUSED, reason=refusal)
        appender.barred = refusal
        if refusal:
            self.admitted.clear()
        elif self.leases.is_registered:
            self.admitted.set()
