"""The watchers of the routes: each waits for changes and reads at its own pace."""

import asyncio
from collections.abc import AsyncGenerator

from ortoo.common.errors import Overloaded
from ortoo.namesrv.decisions.route_changes import RouteChange, Routes


class RouteWatchers:
    """Sends the changes of `Routes` to all watchers."""

    def __init__(self, routes: Routes, *, watchers_max: int) -> None:
        """Serve at most `watchers_max` at once."""
        self._routes = routes
        self.watchers_max = watchers_max
        self.count = 0
        """The number of current watchers."""
        self._ended = False
        self._news = asyncio.Event()

    def publish(self, change: RouteChange) -> None:
        """Apply a change and wake all watchers."""
        self._routes.apply(change)
        self._wake()

    def resend_snapshots(self) -> None:
        """Send a snapshot to all watchers."""
        self._routes.clear_log()
        self._wake()

    def close(self) -> None:
        """End all watches; a watch that begins later ends at once."""
        self._ended = True
        self._wake()

    async def close_on(self, event: asyncio.Event) -> None:
        """End all watches as soon as `event` is set, which is when the process shuts down."""
        await event.wait()
        self.close()

    async def watch(self) -> AsyncGenerator[RouteChange, None]:
        """Yield a snapshot, then every change; a reader that is too slow gets a new snapshot. Errors: Overloaded."""
        if self.count >= self.watchers_max:
            raise Overloaded(
                f"{self.count} watchers are connected, the maximum; use another name server, or raise watchers_max",
                retry_after_ms=1000,
            )
        self.count += 1
        try:
            seen: int | None = None
            while not self._ended:
                news = self._news
                change, seen = self._routes.next_after(seen)
                if change is None:
                    await news.wait()
                else:
                    yield change
        finally:
            self.count -= 1

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
