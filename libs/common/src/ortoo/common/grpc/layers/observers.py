"""Limits the streams of health and reflection of a process, which every unauthenticated client may open."""

from typing import Final

from ortoo.common.errors import Overloaded
from ortoo.common.grpc.layers.arrival import Arrival, arrival_of
from ortoo.common.grpc.layers.layer import OBSERVING, Layer, ServedCall
from ortoo.common.grpc.limits.connections import address_of

OBSERVERS_MAX: Final = 500
"""Maximum number of streams of health and reflection of a process."""
OBSERVERS_OF_ADDRESS_MAX: Final = 100
"""Maximum number of streams of health and reflection from one address."""
RETRY_AFTER_MS = 5_000


class Observers(Layer):
    """Refuses streams of health and reflection above the limits. No single health check is refused."""

    services = (OBSERVING,)

    def __init__(self) -> None:
        self._open: dict[Arrival, str] = {}
        """The address of each stream, in the order in which the streams began; "" until the request has come."""

    def arrive(self, arrival: Arrival) -> None:
        """Count a stream of health or reflection. Errors: Overloaded if too many are open."""
        if not arrival.gives_many:
            return
        if len(self._open) >= OBSERVERS_MAX:
            self._end_a_silent_one()
            raise Overloaded(
                f"{OBSERVERS_MAX} streams of health and reflection are open on this process; close some, or ask for "
                "its health by single calls (Check)",
                retry_after_ms=RETRY_AFTER_MS,
            )
        self._open[arrival] = ""
        arrival.release_callbacks.append(lambda: self._open.pop(arrival))

    def _end_a_silent_one(self) -> None:
        """End the stream that has waited longest for its request, so that the caller that retries finds a place."""
        for arrival, address in self._open.items():
            if not address and arrival.end is not None:
                arrival.end("the request of this stream has not arrived, and its place is needed for another one")
                return

    def enter(self, call: ServedCall) -> None:
        """Check the limit of the caller's address, which is unknown until the request has come. Errors: Overloaded."""
        arrival = arrival_of(call.context)
        if arrival is None or arrival not in self._open:
            return
        address = address_of(call.context.peer())
        if sum(one == address for one in self._open.values()) >= OBSERVERS_OF_ADDRESS_MAX:
            raise Overloaded(
                f"{OBSERVERS_OF_ADDRESS_MAX} streams of health and reflection are open from {address}; close some, or "
                "check the health of this process by single calls (Check)",
                retry_after_ms=RETRY_AFTER_MS,
            )
        self._open[arrival] = address
