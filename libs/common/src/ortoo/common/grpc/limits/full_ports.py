"""The full ports of a server, and the silent connections to close there; without I/O."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ortoo.common.errors.findings import Finding
from ortoo.common.grpc.limits.connections import ServerConnection
from ortoo.common.machine.descriptors import Descriptors

FULL_PERCENT: Final = 90
"""The percentage of its connections from which a port counts as full."""
LEFT_PERCENT: Final = 75
"""A full port closes silent connections down to this percentage, so that new clients can connect."""
NEVER_SENT_MS, SILENT_MS = 2_000, 60_000
"""The time for which a peer may be silent at a full port: before its first byte, and later.

A client of gRPC sends at once and answers a ping every 30 s.
"""
FOUND_S: Final = 30.0
"""The time for which the finding remains after a port was full."""


@dataclass(frozen=True, slots=True)
class FullPort:
    """The state of a port when it was last full."""

    port: int
    at_s: float
    connections: int
    closed: int


class FullPorts:
    """The ports of one server that are full, or were a moment ago."""

    def __init__(self, connections_max: int) -> None:
        """Each port accepts `connections_max` connections."""
        self.connections_max = connections_max
        self.full_from = connections_max * FULL_PERCENT // 100
        """The number of connections from which a port counts as full."""
        self._seen: dict[int, FullPort] = {}

    def silent(self, connections: Sequence[ServerConnection]) -> dict[int, list[ServerConnection]]:
        """The silent connections to close, by full port; the connection that was silent longest comes first."""
        left = self.connections_max * LEFT_PERCENT // 100
        chosen: dict[int, list[ServerConnection]] = {}
        for port in sorted({one.port for one in connections}):
            of_port = [one for one in connections if one.port == port]
            if len(of_port) >= self.full_from:
                silent = [one for one in of_port if one.silent_ms > _allowed_ms(one)]
                silent.sort(key=lambda one: -one.silent_ms)
                chosen[port] = silent[: len(of_port) - left]
        return chosen

    def note(self, seen: FullPort) -> None:
        """Record a port that is full now."""
        self._seen[seen.port] = seen

    def findings(self, now_s: float) -> Iterator[Finding]:
        """The findings of ports that are full, or were a moment ago."""
        for port, seen in sorted(self._seen.items()):
            if now_s - seen.at_s <= FOUND_S:
                yield Finding(
                    "connection limit reached",
                    f"port {port} had {seen.connections} connections of {self.connections_max}; {seen.closed} silent "
                    "ones were closed. The maximum follows from connections_max, the memory budget and the process's "
                    f"limit of {Descriptors.of_process().limit} file descriptors",
                    "further connections are closed at once; open ones are served",
                    "raise connections_max or the limit of open files (ulimit -n, LimitNOFILE=), close idle clients, "
                    "or add a snode",
                    subject=str(port),
                )


def _allowed_ms(connection: ServerConnection) -> int:
    return SILENT_MS if connection.received_bytes else NEVER_SENT_MS
