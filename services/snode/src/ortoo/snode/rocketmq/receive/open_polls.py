"""The polls that clients wait for. They end when their client leaves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class OpenPolls:
    """The open polls of each client."""

    def __init__(self) -> None:
        """Start without polls."""
        self._ends: dict[str, dict[Callable[[], object], None]] = {}
        """By client: functions that end its polls."""

    async def run(self, client_id: str, poll: Awaitable[T]) -> T | None:
        """Wait for a poll; None if its client leaves meanwhile. Errors: those of `poll`."""
        limit = asyncio.timeout(None)

        def end() -> None:
            limit.reschedule(asyncio.get_running_loop().time())

        try:
            async with limit:
                self.add(client_id, end)
                return await poll
        except TimeoutError:
            if limit.expired():
                return None
            raise
        finally:
            self.remove(client_id, end)

    def add(self, client_id: str, end: Callable[[], object]) -> None:
        """Call `end` when a client leaves."""
        self._ends.setdefault(client_id, {})[end] = None

    def remove(self, client_id: str, end: Callable[[], object]) -> None:
        """Forget a poll that has ended; does nothing for an unknown one."""
        ends = self._ends.get(client_id)
        if ends is not None:
            ends.pop(end, None)
            if not ends:
                del self._ends[client_id]

    def end(self, client_id: str) -> None:
        """End all polls of a client that leaves."""
        for end in list(self._ends.get(client_id, ())):
            end()
