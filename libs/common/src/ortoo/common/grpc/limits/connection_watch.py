"""Watches the connections of a server, and closes those above its limits.

Each transport limits the number of connections of a port, and closes those that are not set up in time. It does not
limit the connections from one address, or the total size of its buffers. Nor does it close silent connections at a full
port, so that new clients can connect. Resets of streams are counted here only for the core of gRPC, because the
transport h2 counts them.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from ortoo.common.errors.findings import Finding
from ortoo.common.grpc.limits.connection_limits import (
    ADDRESSES_LOGGED,
    ConnectionLimits,
    ResetRates,
    heaviest,
)
from ortoo.common.grpc.limits.connections import (
    Peer,
    ServerConnection,
    connections_to,
    each_connection_to,
    end_connection,
)
from ortoo.common.grpc.limits.full_ports import FullPort, FullPorts
from ortoo.common.grpc.limits.memory_guard import MemoryGuard, Step
from ortoo.common.logs import log_events
from ortoo.common.logs.log_event import LogEvent
from ortoo.common.logs.logger import get_logger
from ortoo.common.logs.rate_limit import LogRateLimit
from ortoo.common.machine.allocator import give_back_freed, resident_bytes
from ortoo.common.machine.descriptors import open_descriptors
from ortoo.common.process.clock import Clock

if TYPE_CHECKING:
    from ortoo.common.grpc.limits.core_sockets import CoreSockets

LOOK_INTERVAL_S: Final = 1.0
CROWDED_INTERVAL_S: Final = 0.1
"""Interval between checks while an address has too many connections."""
BUSY_PERCENT: Final = 20
"""The use of the processor from which connections are checked for resets. Fewer resets do no harm.

The core also counts the failed calls of the whole server. But reading that number stops the process for up to 0.4 s
while many calls arrive.
"""
RECEIPTS_S: Final = 20.0
"""Least interval between readings of the bytes that each peer has sent. A transport may hold a request for any time."""
RECEIPTS_PER_S: Final = 50
"""Many peers are read less often, so that a reading takes at most this number of them for each second."""
_log = get_logger("connections")


class ConnectionWatch:
    """Watches the connections of one server. Slow work is done in a thread."""

    def __init__(
        self, limits: ConnectionLimits, sockets: "CoreSockets | None", guard: MemoryGuard, clock: Clock
    ) -> None:
        """`sockets` counts resets; None = they are not counted."""
        self.ports: set[int] = set()
        """The ports that the server listens on."""
        self.ended = dict.fromkeys(("address", "resets", "memory", "silent"), 0)
        """The number of closed connections, by reason."""
        self._limits = limits
        self._sockets = sockets
        self._guard = guard
        self._clock = clock
        self._rates = ResetRates()
        self._full = FullPorts(limits.connections_max)
        self._cpu_s, self._cpu_at_s = 0.0, float("-inf")
        self._seen: set[Peer] = set()
        """The peers that were examined for resets since the first connection of the server was examined."""
        self._receipts: dict[Peer, int] = {}
        """The bytes that each peer had sent at the last reading, between one and two intervals ago."""
        self._receipts_next: dict[Peer, int] = {}
        self._receipts_at_s = float("-inf")
        self._log_rate = LogRateLimit()

    def findings(self) -> Iterator[Finding]:
        """The findings of ports that are nearly full, or were a moment ago."""
        return self._full.findings(self._clock.monotonic_s())

    async def watch_connections(self) -> None:
        """Close connections above the limits, until cancelled."""
        while True:
            is_crowded = await asyncio.to_thread(self._is_crowded)
            await self._clock.sleep(CROWDED_INTERVAL_S if is_crowded else LOOK_INTERVAL_S)

    async def watch_memory(self) -> None:
        """Return freed memory to the system, and close connections near the memory limit, until cancelled."""
        self._guard.start(resident_bytes(), self._clock.monotonic_s())
        while True:
            # It is 0 where the system does not report it, and while no descriptor is free to read it.
            if resident := resident_bytes():
                step = self._guard.next_step(resident, self._clock.monotonic_s())
                if step is not Step.NOTHING:
                    await asyncio.to_thread(self._step, step)
            await self._clock.sleep(self._guard.interval_s)

    def _step(self, step: Step) -> None:
        """Execute the step. Connections are closed first, because returning memory takes longer."""
        if step is Step.END_CONNECTIONS:
            self._end_heaviest()
        before = resident_bytes()
        give_back_freed()
        self._guard.on_memory_returned(before, resident_bytes(), self._clock.monotonic_s())

    def _is_crowded(self) -> bool:
        """Check once; returns whether an address had too many connections."""
        self._check_resets()
        now_s = self._clock.monotonic_s()
        receipts_s = max(RECEIPTS_S, len(self._receipts_next) / RECEIPTS_PER_S)
        are_receipts_due = now_s - self._receipts_at_s >= receipts_s
        may_exceed = open_descriptors() >= min(self._limits.of_address_max, self._full.full_from)
        connections = connections_to(self.ports) if may_exceed else []
        if are_receipts_due:
            self._record_received_bytes(connections or each_connection_to(self.ports), now_s)
        return may_exceed and self._close_surplus(connections)

    def _close_surplus(self, connections: list[ServerConnection]) -> bool:
        """Close the connections above the limits; returns whether an address had too many."""
        surplus = self._limits.surplus(connections)
        self._end(surplus, "address", log_events.CONNECTIONS_CLOSED_TOO_MANY)
        closed = set(surplus)
        self._make_room([one for one in connections if one not in closed] if closed else connections)
        return bool(surplus)

    def _make_room(self, connections: list[ServerConnection]) -> None:
        """Close silent connections at full ports, because they would keep new clients out."""
        for port, silent in self._full.silent(connections).items():
            count = sum(one.port == port for one in connections)
            closed = self._ended(silent, "silent")
            now_s = self._clock.monotonic_s()
            self._full.note(FullPort(port, now_s, count, len(closed)))
            if self._log_rate.acquire(f"port {port} {'closed' if closed else 'full'}", now_s):
                _log.emit(
                    log_events.CONNECTION_LIMIT_REACHED,
                    port=port,
                    connections=count,
                    connections_max=self._limits.connections_max,
                    closed=len(closed),
                    since_start=self.ended["silent"],
                )

    def _check_resets(self) -> None:
        """Close connections of peers that reset too many streams; peers are examined only if the process is busy."""
        if self._sockets is None or not self._is_busy():
            return
        sockets, is_last = self._sockets.next()
        now_s = self._clock.monotonic_s()
        beyond = {one.peer for one in sockets if self._rates.is_beyond(one.peer, self._sockets.resets(one), now_s)}
        self._seen |= {one.peer for one in sockets} - beyond
        if is_last:
            self._rates.keep(self._seen)
            self._seen = set()
        if beyond:
            found = [one for one in connections_to(self.ports) if one.peer in beyond]
            self._end(found, "resets", log_events.CONNECTIONS_CLOSED_RAPID_RESET)

    def _is_busy(self) -> bool:
        """Whether the process has used much processor time since the last call."""
        before_s, before_at_s = self._cpu_s, self._cpu_at_s
        self._cpu_s, self._cpu_at_s = time.process_time(), self._clock.monotonic_s()
        return (self._cpu_s - before_s) * 100 >= (self._cpu_at_s - before_at_s) * BUSY_PERCENT

    def _end_heaviest(self) -> None:
        chosen = heaviest(connections_to(self.ports), self._receipts)
        self._end(chosen, "memory", log_events.CONNECTIONS_CLOSED_MEMORY)

    def _record_received_bytes(self, connections: Iterable[ServerConnection], now_s: float) -> None:
        """Record how many bytes each peer has sent until now."""
        self._receipts, self._receipts_at_s = self._receipts_next, now_s
        self._receipts_next = {one.peer: one.received_bytes for one in connections}

    def _end(self, connections: list[ServerConnection], reason: str, event: LogEvent) -> None:
        ended = self._ended(connections, reason)
        if ended and self._log_rate.acquire(reason, self._clock.monotonic_s()):
            addresses = sorted({one.peer[0] for one in ended})
            _log.emit(
                event, connections=len(ended), since_start=self.ended[reason], addresses=addresses[:ADDRESSES_LOGGED]
            )

    def _ended(self, connections: list[ServerConnection], reason: str) -> list[ServerConnection]:
        """Close and count these connections; returns those that still existed."""
        ended = [one for one in connections if end_connection(one.descriptor, one.peer)]
        self.ended[reason] += len(ended)
        return ended
