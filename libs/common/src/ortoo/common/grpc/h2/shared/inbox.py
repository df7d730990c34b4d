"""The received messages of a stream, until they are read."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from ortoo.common.grpc.h2.framing import PREFIX_BYTES


def _ignore(size: int) -> None:
    """Open no window."""


class Inbox:
    """Keeps messages in order, and opens the peer's window as they are read."""

    __slots__ = ("_consumed", "_held_bytes", "_loop", "_messages", "_reading")

    def __init__(self, loop: asyncio.AbstractEventLoop, consumed: Callable[[int], None]) -> None:
        """`consumed` opens the peer's window by a number of bytes."""
        self._loop = loop
        self._consumed = consumed
        self._messages: deque[bytes] = deque()
        self._held_bytes = 0
        """Number of bytes for which the peer's window is not open again."""
        self._reading: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def is_awaited(self) -> bool:
        """Whether a reader waits for a message."""
        return self._reading is not None

    def add(self, messages: Sequence[bytes], data_bytes: int) -> None:
        """Keep the messages that have become complete with the last `data_bytes`."""
        self._held_bytes += data_bytes
        self._messages.extend(messages)
        if not self._messages:  # the reader waits for the rest of this message, or soon will
            self._open_window(self._held_bytes)
        if messages:
            self.wake()

    def pop(self) -> bytes:
        """The next message; there must be one."""
        data = self._messages.popleft()
        # The window was already opened by bytes that came while no complete message waited.
        size = min(PREFIX_BYTES + len(data), self._held_bytes) if self._messages else self._held_bytes
        self._open_window(size)
        return data

    async def wait(self) -> None:
        """Wait until `wake` is called, which a new message does."""
        self._reading = self._loop.create_future()
        try:
            await self._reading
        finally:
            self._reading = None

    def wake(self) -> None:
        """Let the reader look again."""
        if self._reading is not None and not self._reading.done():
            self._reading.set_result(None)

    def close(self) -> None:
        """The stream has ended. Its reader looks again, and the peer's window stays as it is.

        The reference to the call would be a cycle, which keeps the call and its connection until a garbage collection.
        """
        self._consumed = _ignore
        self.wake()

    def clear(self) -> None:
        """Drop all messages."""
        self._messages.clear()

    def _open_window(self, size: int) -> None:
        self._held_bytes -= size
        self._consumed(size)
