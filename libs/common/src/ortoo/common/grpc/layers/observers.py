"""Limits the streams of health and reflection of a process, which every unauthenticated client may open."""

from typing import Final

from ortoo.common.errors import Overloaded
from ortoo.common.grpc.layers.arrival import ARRIVAL, Arrival
from ortoo.common.grpc.layers.layer import OBSERVING, Layer, ServedCall
from ortoo.common.grpc.limits.connections import address_of

OBSERVERS_MAX: Final = 500
"""Maximum number of streams of health and reflection of a process."""
OBSERVERS_OF_ADDRESS_MAX: Final = 100
"""Maximum number of streams of health and reflection from one address."""
CHECKS_MAX: Final = 1_000
"""Maximum number of open single calls of health and reflection, which are usually answered at once."""
RETRY_AFTER_MS = 5_000


class Observers(Layer):
    """Refuses streams of health and reflection above the limits.

    No single health check is refused. If many are open, those that have waited longest for their requests are ended.
    """

    services = (OBSERVING,)

    def __init__(self) -> None:
        self._open: dict[Arrival, str] = {}
        """The address of each stream, in the order in which the streams began; "" until the request has come."""
        self._checks: dict[Arrival, None] = {}
        """The open single calls, in the order in which they began."""

    def arrive(self, arrival: Arrival) -> None:
        """Count a stream of health or reflection. Errors: Overloaded if too many are open."""
        if not arrival.gives_many:
            self._add_check(arrival)
            return
        if len(self._open) >= OBSERVERS_MAX:
            self._end_a_silent_one()
            raise Overloaded(
                f"{OBSERVERS_MAX} streams of health and reflection are open on this process; close some, or ask for "
                "its health by single calls (Check)",
                retry_after_ms=RETRY_AFTER_MS,
            )
        self._open[arrival] = ""
        arrival.release_callbacks = lambda: self._open.pop(arrival)

    def _add_check(self, arrival: Arrival) -> None:
        """Add a single call. Its memory is not limited, so the number of calls without a request is."""
        self._checks[arrival] = None
        arrival.release_callbacks = lambda: self._checks.pop(arrival, None)
        if len(self._checks) <= CHECKS_MAX:
            return
        oldest = next(iter(self._checks))
        del self._checks[oldest]
        if oldest.end is not None:
            oldest.end(f"the request of this call has not arrived, and {CHECKS_MAX} later calls have begun")

    def _end_a_silent_one(self) -> None:
        """End the stream that has waited longest for its request, so that the caller that retries finds a place."""
        for arrival, address in self._open.items():
            if not address and arrival.end is not None:
                arrival.end("the request of this stream has not arrived, and its place is needed for another one")
                return

    def enter(self, call: ServedCall) -> None:
        """Check the limit of the caller's address, which is unknown until the request has come. Errors: Overloaded."""
        if (arrival := ARRIVAL.get()) not in self._open:
            return
        address = address_of(call.context.peer())
        if sum(one == address for one in self._open.values()) >= OBSERVERS_OF_ADDRESS_MAX:
            raise Overloaded(
                f"{OBSERVERS_OF_ADDRESS_MAX} streams of health and reflection are open from {address}; close some, or "
                "check the health of this process by single calls (Check)",
                retry_after_ms=RETRY_AFTER_MS,
            )
        self._open[arrival] = address
