"""The requests of a call that arrive in parts. The memory of an incomplete one is counted."""

from ortoo.common.grpc.h2.framing import MessageReader
from ortoo.common.grpc.layers.arrival import Arrival
from ortoo.common.process.memory_budget import MemoryShare


class RequestParts:
    """Assembles the requests of one call."""

    __slots__ = ("_reader", "_share")

    def __init__(self, bytes_max: int) -> None:
        """A request may have `bytes_max` bytes."""
        self._reader = MessageReader(bytes_max)
        self._share: MemoryShare | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """The requests that `data` completes. Errors: MessageTooLarge."""
        return self._reader.feed(data)

    def count(self, arrival: Arrival | None) -> None:
        """Draw the memory of an incomplete request. Errors: Overloaded."""
        size = self._reader.partial_bytes
        if not size:
            self.release()
            return
        if self._share is None:
            if arrival is None or arrival.open_share is None:
                return
            self._share = arrival.open_share()
            self._share.on_evict = arrival.end
        self._share.draw(size - self._share.bytes, is_request=True)

    def release(self) -> None:
        """Return the memory."""
        share, self._share = self._share, None
        if share is not None:
            share.close()
