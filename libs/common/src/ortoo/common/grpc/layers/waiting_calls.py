"""The calls of a server whose requests have not arrived, which have a small memory of their own.

Every client may open such calls, also a client that is never authenticated. They must not take memory from calls that
are served. When their memory is used up, calls of the connection with most of them are ended, the oldest first. An
honest client sends a request together with its headers. Connections that continue are closed.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from ortoo.common.errors import Overloaded
from ortoo.common.grpc.layers.arrival import Arrival

WAITING_PERCENT: Final = 5
"""The memory of waiting calls, as a percentage of the budget. It is not part of the budget."""
WAITING_BYTES_MIN, WAITING_BYTES_MAX = 2 << 20, 16 << 20
ENDED_OF_CONNECTION_MAX: Final = 50
"""Number of calls of one connection that are ended before the connection is closed."""
RETRY_AFTER_MS: Final = 1_000


class WaitingCalls:
    """Counts the memory of calls that wait for their requests, and ends some of them when it is used up."""

    def __init__(self, budget_bytes: int, end_connection: Callable[[str], object]) -> None:
        """`budget_bytes` is the memory of the calls that are served. `end_connection` gets a peer's address."""
        self.bytes_max = min(max(budget_bytes * WAITING_PERCENT // 100, WAITING_BYTES_MIN), WAITING_BYTES_MAX)
        self._end_connection = end_connection
        self._waiting: dict[Arrival, int] = {}
        """The bytes of each call that waits."""
        self._of_peer: dict[str, dict[Arrival, None]] = {}
        """The waiting calls of each peer, in the order in which they began."""
        self._newest: Arrival | None = None
        """The last call that was added. Its peer may be unknown until the next call comes."""
        self._ending: dict[Arrival, int] = {}
        """The bytes of each call that was ended, until gRPC releases it."""
        self._waiting_bytes = self._ending_bytes = 0
        self._ended: Counter[str] = Counter()
        """The number of calls of each peer that were ended, until no call waits."""

    @property
    def used_bytes(self) -> int:
        """The bytes of all calls without a request."""
        return self._waiting_bytes + self._ending_bytes

    def add(self, arrival: Arrival, size_bytes: int) -> None:
        """Add a call that has just begun, if necessary after ending older calls.

        Errors: Overloaded if the calls that were ended before have not been released.
        """
        if self._ending_bytes > self.bytes_max:
            raise Overloaded(
                f"{self._ending_bytes} bytes are held by calls whose requests did not arrive; retry later, or use "
                "another process",
                retry_after_ms=RETRY_AFTER_MS,
            )
        newest, self._newest = self._newest, arrival
        if newest is not None:
            self._of_peer.setdefault(newest.peer, {})[newest] = None
        while self._of_peer and self._waiting_bytes + size_bytes > self.bytes_max:
            self._end_one()
        self._waiting[arrival] = size_bytes
        self._waiting_bytes += size_bytes

    def _end_one(self) -> None:
        peer, calls = max(self._of_peer.items(), key=lambda item: len(item[1]))
        oldest = next(iter(calls))
        size_bytes = self._waiting[oldest]
        self.remove(oldest)
        if oldest.end is None:  # its request has just arrived
            return
        self._ending[oldest] = size_bytes
        self._ending_bytes += size_bytes
        self._ended[peer] += 1
        oldest.end("the request of this call has not arrived, and the memory of waiting calls is used up")
        if peer and self._ended[peer] == ENDED_OF_CONNECTION_MAX:
            self._end_connection(peer)

    def remove(self, arrival: Arrival) -> None:
        """Remove a call, because its request has arrived or gRPC has released it; later calls do nothing."""
        self._ending_bytes -= self._ending.pop(arrival, 0)
        self._waiting_bytes -= self._waiting.pop(arrival, 0)
        if arrival is self._newest:
            self._newest = None
        elif (calls := self._of_peer.get(arrival.peer)) is not None:
            calls.pop(arrival, None)
            if not calls:
                del self._of_peer[arrival.peer]
        if not self._waiting:
            self._ended.clear()
