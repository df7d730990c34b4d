"""The polls that clients wait for. They end when their client leaves."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class OpenPolls:
    """The open polls of each client."""

    def __init__(self) -> None:
        """Start without polls."""
        self._limits: dict[str, dict[asyncio.Timeout, None]] = {}

    async def run(self, client_id: str, poll: Awaitable[T]) -> T | None:
        """Wait for a poll; None if its client leaves meanwhile. Errors: those of `poll`."""
        limits = self._limits.setdefault(client_id, {})
        limit = asyncio.timeout(None)
        try:
            async with limit:
                limits[limit] = None
                return await poll
        except TimeoutError:
            if limit.expired():
                return None
            raise
        finally:
            limits.pop(limit, None)
            if not limits and self._limits.get(client_id) is limits:
                del self._limits[client_id]

    def end(self, client_id: str) -> None:
        """End all polls of a client that leaves."""
        now_s = asyncio.get_running_loop().time()
        for limit in list(self._limits.get(client_id, ())):
            limit.reschedule(now_s)
