"""Time controlled by tests: moved by the test, or automatically when all tasks wait.

clock = VirtualClock()
clock.advance(30)                              # by the test: due sleepers wake in their order

result = VirtualClock().run(scenario)         # automatic: thirty days of sleeping take no time
"""

import asyncio
import heapq
import selectors
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
TURNS_PER_STEP = 16
"""Turns of the loop that `pass_time` gives woken tasks, before the next ones wake."""
EPOCH_MS = 1_800_000_000_000


class TimeLimitExceeded(RuntimeError):
    """All tasks wait, and the time limit of the run has passed."""


class VirtualClock:
    """A `Clock` that stands still until it is moved."""

    def __init__(self, now_ms: int = EPOCH_MS) -> None:
        """Begin at a wall-clock time; the monotonic clock begins at 0."""
        self._wall_at_zero_ms = float(now_ms)
        self._monotonic_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC."""
        return round(self._wall_at_zero_ms + self._monotonic_s * 1000)

    def monotonic_s(self) -> float:
        """Seconds since the clock was made."""
        return self._monotonic_s

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has moved by `seconds`. A sleep of 0 yields one turn."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        if seconds <= 0:
            asyncio.get_running_loop().call_soon(_wake, woken)
        else:
            heapq.heappush(self._sleepers, (self._monotonic_s + seconds, self._count, woken))
        await woken

    @property
    def sleeping(self) -> int:
        """The number of sleepers."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    def advance(self, seconds: float) -> int:
        """Advance and wake all due sleepers, in the order of their times; returns their number.

        They run when the caller next awaits, and all see the final time.
        """
        target = self._monotonic_s + seconds
        count = 0
        while (deadline := self.next_deadline_s()) is not None and deadline <= target:
            count += self.advance_to_next()
        self._move_to(target)
        return count

    async def pass_time(self, seconds: float) -> None:
        """Advance step by step: each woken task runs at its own time, and may sleep again within these seconds."""
        target = self._monotonic_s + seconds
        while True:
            for _ in range(TURNS_PER_STEP):
                await self.sleep(0)
            deadline = self.next_deadline_s()
            if deadline is None or deadline > target:
                break
            self.advance_to_next()
        self._move_to(target)

    def set_wall(self, now_ms: int) -> None:
        """Step the wall clock, in either direction; no sleeper wakes, because sleeps follow the monotonic clock."""
        self._wall_at_zero_ms = now_ms - self._monotonic_s * 1000

    def next_deadline_s(self) -> float | None:
        """The wake time of the next sleeper on the monotonic clock; None when there is none."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def advance_to_next(self) -> int:
        """Advance to the next sleeper's time and wake all due ones; returns their number."""
        deadline = self.next_deadline_s()
        if deadline is None:
            return 0
        self._move_to(deadline)
        count = 0
        while self._sleepers and self._sleepers[0][0] <= deadline:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
                count += 1
        return count

    def run(self, main: Callable[[], Awaitable[T]], *, limit_s: float = 10 * 366 * 86_400) -> T:
        """Run `main` on a loop of its own whose time moves whenever all tasks wait for it.

        It must not wait for anything outside the loop, such as threads or other processes. After `limit_s` virtual
        seconds the run ends. Errors: TimeLimitExceeded.
        """
        brought: list[T] = []

        async def whole() -> None:
            # Returning a large result would be slow: the runner formats the task when it restores the signal handlers.
            brought.append(await main())

        def new_loop() -> asyncio.AbstractEventLoop:
            return asyncio.SelectorEventLoop(_ClockSelector(self, self._monotonic_s + limit_s))

        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(whole())
        return brought[0]

    def _move_to(self, monotonic_s: float) -> None:
        self._monotonic_s = max(self._monotonic_s, monotonic_s)


class _ClockSelector(selectors.DefaultSelector):
    """A selector that moves the clock instead of waiting."""

    def __init__(self, clock: VirtualClock, until_s: float) -> None:
        """Move `clock`, not beyond `until_s`."""
        super().__init__()
        self._clock = clock
        self._until_s = until_s

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The ready events; if there are none, wake the next sleeper."""
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        deadline = self._clock.next_deadline_s()
        if deadline is None and timeout is None:
            raise TimeLimitExceeded("all tasks wait, and no timer is pending")
        if deadline is None:
            return super().select(timeout)
        if deadline > self._until_s:
            raise TimeLimitExceeded(
                f"all tasks wait, and the next would wake at {deadline:.3f} s of {self._until_s:.3f} s"
            )
        self._clock.advance_to_next()
        return []


def _wake(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)
