"""The broker's clock, controlled by the test."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from ortoo.testing.pytest_broker.durations import Duration, seconds_of
from ortoo.testing.pytest_broker.loop import BrokerLoop
from ortoo.testing.pytest_broker.next_due import next_due_ms
from ortoo.testing.simulation.cluster.roles import EnodeMachine
from ortoo.testing.simulation.kernel.clock import EPOCH_MS, RunClock

SETTLE_S = 1.0
"""Ordinary time before and after each leap, so that sent messages are stored and due ones delivered."""
LEAD_S = 2.0
"""A leap ends this long before the next due event, so that clients that lost their connection reconnect in time."""
LEAP_MIN_S = 1.0
LEAP_MAX_S = 10 * 86_400.0


class ClientsClock(RunClock):
    """The clock of clients in the test: the loop can tell their sleeps from the test's own."""

    def __init__(self, loop: BrokerLoop) -> None:
        """Follow `loop`."""
        super().__init__(loop)
        self._timers = loop

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of virtual time."""
        if seconds <= 0:
            await super().sleep(seconds)
            return
        over = self._timers.create_future()
        self._timers.in_client = True
        timer = self._timers.call_later(seconds, _wake, over)
        self._timers.in_client = False
        try:
            await over
        finally:
            timer.cancel()


def _wake(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)


class TimeAdvance:
    """Advances time in leaps from one due event to the next: in between there are only heartbeats."""

    def __init__(self, loop: BrokerLoop, clock: RunClock, enode: EnodeMachine) -> None:
        """Advance the time of `loop`, which all machines share."""
        self.clock = clock
        self._loop = loop
        self._enode = enode

    async def pass_by(self, seconds: float) -> None:
        """Advance by `seconds`; everything due in that time happens, in order."""
        end_s = self._loop.time() + seconds
        self._loop.allow_advance(seconds)
        await self.clock.sleep(min(SETTLE_S, seconds))
        while (left_s := end_s - self._loop.time()) > 0:
            due_s = min(filter(None, (self._next_due_s(), self._loop.next_timer_s(), end_s)))
            leap_s = min(due_s - LEAD_S - self._loop.time(), LEAP_MAX_S)
            if leap_s > LEAP_MIN_S:
                self._loop.leap(leap_s)
                left_s -= leap_s
            await self.clock.sleep(min(left_s, LEAD_S + SETTLE_S))

    def _next_due_s(self) -> float | None:
        running = self._enode.running if self._enode.alive and self._enode.ready.is_set() else None
        if running is None:
            return None
        state = running.store.engine.state  # type: ignore[attr-defined]  # it is an enode that runs there
        # Events due a moment ago are still being processed, and a leap would interrupt them.
        at_ms = next_due_ms(state, self.clock.now_ms() - round(SETTLE_S * 500))
        return None if at_ms is None else (at_ms - EPOCH_MS) / 1000


class _Reading:
    """The readings that both clocks share."""

    def __init__(self, passing: TimeAdvance) -> None:
        self._passing = passing

    def now(self) -> datetime:
        """The broker's current time, in UTC."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, the unit of a message's `deliver_at_ms`."""
        return self._passing.clock.now_ms()

    def in_ms(self, duration: Duration) -> int:
        """The time `duration` from now, for `deliver_at_ms`."""
        return self.now_ms() + round(seconds_of(duration) * 1000)


class BrokerClock(_Reading):
    """The clock of the broker and of the test's clients. While all of them wait, time passes automatically."""

    async def advance(
        self,
        duration: Duration = 0.0,
        *,
        days: float = 0.0,
        hours: float = 0.0,
        minutes: float = 0.0,
        seconds: float = 0.0,
    ) -> None:
        """Advance the clock: `advance("1h30m")`, `advance(minutes=90)`. Everything due in that time happens, in order.

        Errors: ValueError for an invalid duration.
        """
        await self._passing.pass_by(total_s(duration, days, hours, minutes, seconds))


class BlockingClock(_Reading):
    """Like `BrokerClock`, for tests without an event loop."""

    def __init__(self, passing: TimeAdvance, drive: Callable[..., None]) -> None:
        """`drive` runs a coroutine to its end."""
        super().__init__(passing)
        self._drive = drive

    def advance(
        self,
        duration: Duration = 0.0,
        *,
        days: float = 0.0,
        hours: float = 0.0,
        minutes: float = 0.0,
        seconds: float = 0.0,
    ) -> None:
        """Like `BrokerClock.advance`."""
        self._drive(self._passing.pass_by(total_s(duration, days, hours, minutes, seconds)))


def total_s(duration: Duration, days: float, hours: float, minutes: float, seconds: float) -> float:
    """The sum in seconds. Errors: ValueError."""
    named = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return seconds_of(duration) + seconds_of(named)
