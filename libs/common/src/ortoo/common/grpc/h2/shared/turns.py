"""Connections that begin many calls are read in turns, so that no iteration of the event loop becomes long.

One read of 256 KiB may begin thousands of calls. All other connections would wait for them. A connection that has begun
many calls is therefore not read again before its next turn. Connections with few calls do not wait for turns. The same
is true of very many other frames, such as empty ones.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

from ortoo.common.grpc.h2.shared.endpoint import READ_BYTES

CALLS_OF_TURN: Final = 32
"""The number of calls after which a connection waits for its next turn."""
FRAMES_OF_CALL: Final = 64
"""The number of other frames that count as a call."""
READ_BYTES_MIN: Final = 1 << 10
"""The size of the first reads of a connection, and of those of a connection that begins many calls."""


class Turn:
    """The size of the next read of one connection, by the calls that its last reads have begun. Without I/O."""

    __slots__ = ("calls", "read_bytes")

    def __init__(self) -> None:
        self.calls = 0
        """The number of calls that the current read has begun, with one for each `FRAMES_OF_CALL` of its frames."""
        self.read_bytes = READ_BYTES_MIN
        """Maximum size of the next read."""

    def on_read(self, size_bytes: int) -> bool:
        """The bytes of a read were handled; whether the turn of the connection has ended."""
        calls, self.calls = self.calls, 0
        is_full = size_bytes >= self.read_bytes  # more bytes may wait in the socket
        if calls > CALLS_OF_TURN:
            self.read_bytes = max(READ_BYTES_MIN, size_bytes * CALLS_OF_TURN // calls)
        elif is_full and calls * 2 <= CALLS_OF_TURN:
            self.read_bytes = min(self.read_bytes * 2, READ_BYTES)
        return calls >= CALLS_OF_TURN or (is_full and calls > 0)


class Waiting(Protocol):
    """A connection that is not read."""

    def resume_reading(self) -> None:
        """Read again. No effect on a connection that has ended."""


class Turns:
    """The connections of a server that wait for their next turn. One of them is read in each loop iteration."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()

    def wait(self, connection: Waiting) -> None:
        """Resume the reading of a connection at its next turn."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        self._waiting.append(connection)

    def _next(self) -> None:
        self._waiting.popleft().resume_reading()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
