"""Counts the connections that a server broke because of their peers' behaviour, and logs the addresses of the peers."""

from collections import Counter
from typing import Final

from ortoo.common.grpc.limits.connection_limits import ADDRESSES_LOGGED
from ortoo.common.grpc.limits.connections import address_of
from ortoo.common.logs import log_events
from ortoo.common.logs.log_event import LogEvent
from ortoo.common.logs.logger import get_logger
from ortoo.common.logs.rate_limit import LogRateLimit
from ortoo.common.process.clock import Clock

EVENTS: Final[dict[str, LogEvent]] = {
    "headers": log_events.CONNECTIONS_CLOSED_LONG_HEADERS,
    "pings": log_events.CONNECTIONS_CLOSED_RAPID_PINGS,
    "resets": log_events.CONNECTIONS_CLOSED_RAPID_RESET,
}
"""The event of each reason."""
_log = get_logger("connections")


class BrokenConnections:
    """The broken connections of one server. A line is written at intervals, so that peers cannot fill the log."""

    def __init__(self, clock: Clock) -> None:
        self.counts = Counter(dict.fromkeys(EVENTS, 0))
        """The number of broken connections by reason."""
        self._clock = clock
        self._logged: Counter[str] = Counter()
        """The part of `counts` that earlier lines have reported."""
        self._addresses: dict[str, dict[str, None]] = {}
        """By reason: the first addresses since the last line."""
        self._log_rate = LogRateLimit()

    def add(self, reason: str, peer: str) -> None:
        """Count a connection; `peer` is its address as gRPC writes it."""
        self.counts[reason] += 1
        addresses = self._addresses.setdefault(reason, {})
        if len(addresses) < ADDRESSES_LOGGED:
            addresses[address_of(peer)] = None
        if self._log_rate.acquire(reason, self._clock.monotonic_s()):
            count = self.counts[reason]
            connections, self._logged[reason] = count - self._logged[reason], count
            _log.emit(EVENTS[reason], connections=connections, since_start=count, addresses=sorted(addresses))
            addresses.clear()
