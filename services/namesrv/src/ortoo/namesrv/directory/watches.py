"""The watchers of the routes: each waits for changes and reads at its own pace."""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from ortoo.common.errors import Overloaded, Unsupported
from ortoo.common.process.clock import Clock, current_clock
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.routes.route_changes import DIRECTORY_BYTES_MAX, NO_START, Routes, WatchStart

ROUND_S, ROUND_S_PER_WATCHER = 0.02, 0.0005
"""The minimum time between two messages to the watchers is the larger of both. The changes in it become one message.

A message costs about 0.1 ms for each watcher, so a burst of changes uses a limited part of the processor.
"""
SNAPSHOTS_AT_ONCE = 8
"""The number of watchers to which snapshots are sent at the same time, because gRPC copies each message."""
SNAPSHOT_TURN_S = 1.0
"""After this time the snapshot of a further watcher may be sent, so that slow readers delay no others for longer."""


class RouteWatchers:
    """Sends the changes of `Routes` to all watchers."""

    def __init__(self, routes: Routes, *, watchers_max: int, clock: Clock | None = None) -> None:
        """Serve at most `watchers_max` at once. `clock` None = the default clock."""
        self._routes = routes
        self.watchers_max = watchers_max
        self.count = 0
        """The number of current watchers."""
        self._ended = False
        self._news = asyncio.Event()
        self._clock = clock or current_clock()
        self._round_s = -math.inf
        """The time of the last or next round of messages."""
        self._turns = asyncio.Semaphore(SNAPSHOTS_AT_ONCE)

    def publish(self, change: RouteChange) -> None:
        """Apply a change and wake all watchers."""
        self._routes.apply(change)
        self._wake()

    def resend_snapshots(self) -> None:
        """Send a snapshot to all watchers."""
        self._routes.clear_log()
        self._wake()

    def check_complete(self) -> None:
        """Refuse a watcher of an earlier version, which needs all lite topics, if they are too large.

        Errors: Unsupported.
        """
        if self._routes.complete_bytes > DIRECTORY_BYTES_MAX:
            raise Unsupported(
                f"the directory with all its lite topics needs more than {DIRECTORY_BYTES_MAX} bytes; upgrade this "
                "process, so that it watches a part of the lite topics",
                field="lite_topics",
            )

    def check_expandable(self) -> None:
        """Refuse a watcher that needs the placements in each topic if they are too large. Errors: Unsupported."""
        if self._routes.expanded_bytes > DIRECTORY_BYTES_MAX:
            raise Unsupported(
                f"placements in each topic need more than {DIRECTORY_BYTES_MAX} bytes; upgrade this process, so that "
                "it accepts sets of placements",
                field="accepts_placement_sets",
            )

    def close(self) -> None:
        """End all watches; a watch that begins later ends at once."""
        self._ended = True
        self._wake()

    async def close_on(self, event: asyncio.Event) -> None:
        """End all watches as soon as `event` is set, which is when the process shuts down."""
        await event.wait()
        self.close()

    async def watch(self, start: WatchStart = NO_START) -> AsyncGenerator[RouteChange, None]:
        """Yield a snapshot or the changes since `start`, then every change.

        A reader that is too slow gets a snapshot. Changes that follow each other closely are yielded as one. Errors:
        Overloaded.
        """
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
                if self._routes.needs_snapshot(seen, start):
                    async with self._turn():
                        if self._ended:
                            return
                        change, seen = self._routes.first(WatchStart(lite_scope=start.lite_scope))
                        yield change
                elif seen is None:
                    change, seen = self._routes.first(start)
                    yield change
                elif (wait_s := self._round_s - self._clock.monotonic_s()) > 0:
                    await self._clock.sleep(wait_s)
                else:
                    following, seen = self._routes.next_after(seen, start.lite_scope)
                    if following is None:
                        await news.wait()
                    else:
                        yield following
        finally:
            self.count -= 1

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait until a snapshot may be sent. The turn ends with the block, or earlier after `SNAPSHOT_TURN_S`."""
        await self._turns.acquire()
        has_turn = True

        def end() -> None:
            nonlocal has_turn
            if has_turn:
                has_turn = False
                self._turns.release()

        timer = asyncio.get_running_loop().call_later(SNAPSHOT_TURN_S, end)
        try:
            yield
        finally:
            timer.cancel()
            end()

    def _wake(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._round_s <= now_s:
            interval_s = max(ROUND_S, self.count * ROUND_S_PER_WATCHER)
            self._round_s = max(now_s, self._round_s + interval_s)
        news, self._news = self._news, asyncio.Event()
        news.set()
