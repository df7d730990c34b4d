"""Outgoing answers of one stream, with a bound on their bytes."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from ortoo.common.errors import Overloaded
from ortoo.common.grpc.layers.call_memory import current_memory_share

R = TypeVar("R")


class Outbox(Generic[R]):
    """The answers of one stream, in the order in which they are put, and a bound on their bytes.

    Bytes are reserved before the work that needs them, and released when the transport takes the answer. So a peer
    that does not read its answers is soon no longer served, and costs at most `bytes_max` of memory. Reservations are
    granted in the order of the requests; a reservation larger than the bound is granted when no bytes are reserved. All
    reservations also count against the call's share of the process's memory.
    """

    def __init__(self, *, bytes_max: int) -> None:
        self.open_requests = 0
        self._bytes_max = bytes_max
        self._bytes = 0
        self._memory = current_memory_share()
        self._reserving: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._ready: deque[tuple[R, int]] = deque()
        self._ended = False
        self._abandoned = False
        self._error: Exception | None = None
        self._wake: asyncio.Future[None] | None = None

    async def reserve(self, cost_bytes: int) -> None:
        """Wait until `cost_bytes` more fit, and reserve them. Errors: Overloaded (the process lacks memory)."""
        if not self._reserving and self._fits(cost_bytes):
            self._bytes += cost_bytes
        else:
            granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._reserving.append((cost_bytes, granted))
            try:
                await granted
            except asyncio.CancelledError:
                if granted.done() and not granted.cancelled():
                    self._free(cost_bytes)
                raise
        if self._memory is not None and cost_bytes:  # a request for 0 bytes only waits its turn
            try:
                self._memory.draw(cost_bytes)
            except Overloaded:
                self._free(cost_bytes)
                raise
            self._memory.reserved_bytes += cost_bytes

    def charge(self, cost_bytes: int) -> None:
        """Reserve the bytes of an existing answer, even beyond the bound. The caller then calls `put`."""
        self._bytes += cost_bytes
        if self._memory is not None:
            self._memory.draw_unchecked(cost_bytes)
            self._memory.reserved_bytes += cost_bytes

    def release(self, cost_bytes: int) -> None:
        """Release reserved bytes without an answer."""
        self._end_request(cost_bytes)
        self._release_memory(cost_bytes)

    def _end_request(self, cost_bytes: int) -> None:
        """Note that reserved bytes no longer wait for this process, but for the peer."""
        if self._memory is not None:
            self._memory.reserved_bytes -= cost_bytes

    def _release_memory(self, cost_bytes: int) -> None:
        if self._memory is not None:
            self._memory.release(cost_bytes)
        self._free(cost_bytes)

    def _free(self, cost_bytes: int) -> None:
        self._bytes -= cost_bytes
        while self._reserving and (self._reserving[0][1].done() or self._fits(self._reserving[0][0])):
            cost, granted = self._reserving.popleft()
            if not granted.done():
                self._bytes += cost
                granted.set_result(None)

    def put(self, answer: R, cost_bytes: int) -> None:
        """Send the answer of an open request. The reserved bytes are released when the transport takes the answer."""
        self._end_request(cost_bytes)
        self._ready.append((answer, cost_bytes))
        self._wake_sender()

    def push(self, message: R) -> None:
        """Send a small message that is no answer to a request."""
        self.open_requests += 1
        self.put(message, 0)

    def try_push(self, message: R, cost_bytes: int) -> bool:
        """Send a message that is no answer to a request, if its bytes fit; returns whether they did."""
        if not self._fits(cost_bytes):
            return False
        try:
            if self._memory is not None:
                self._memory.draw(cost_bytes)
        except Overloaded:
            return False
        self._bytes += cost_bytes
        self.open_requests += 1
        self._ready.append((message, cost_bytes))
        self._wake_sender()
        return True

    def end(self, *, abandon_open: bool = False) -> None:
        """End the requests. Open requests are still answered unless they are abandoned."""
        self._ended = True
        self._abandoned = abandon_open
        self._wake_sender()

    def fail(self, error: Exception) -> None:
        """End the stream with an error, after the answers put before."""
        self._error = error
        self.end(abandon_open=True)

    async def __aiter__(self) -> AsyncIterator[R]:
        """Yield all answers until the requests have ended and each is answered. Raises the error given to `fail`."""
        while True:
            while self._ready:
                answer, cost_bytes = self._ready.popleft()
                self.open_requests -= 1
                self._release_memory(cost_bytes)
                yield answer
                del answer
            if self._ended and (self._abandoned or not self.open_requests):
                break
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        if self._error is not None:
            raise self._error

    def _fits(self, cost_bytes: int) -> bool:
        return not self._bytes or self._bytes + cost_bytes <= self._bytes_max

    def _wake_sender(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
