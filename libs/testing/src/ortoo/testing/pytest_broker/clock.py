"""The broker's time, in the test's hand."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from ortoo.testing.pytest_broker.due import next_due_ms
from ortoo.testing.pytest_broker.durations import Duration, seconds_of
from ortoo.testing.pytest_broker.loop import BrokerLoop
from ortoo.testing.simulation.cluster.roles import EnodeMachine
from ortoo.testing.simulation.kernel.clock import EPOCH_MS, RunClock

SETTLE_S = 1.0
"""So long time passes as usual before and after each leap: what was sent is stored, what is due is delivered."""
LEAD_S = 2.0
"""A leap ends so long before what is due, so that whoever lost its connection by it is back in time."""
LEAP_MIN_S = 1.0
LEAP_MAX_S = 10 * 86_400.0


class ClientsClock(RunClock):
    """The clock of clients in the test: the loop can tell their sleep from that of the test."""

    def __init__(self, loop: BrokerLoop) -> None:
        """Follow `loop`."""
        super().__init__(loop)
        self._timers = loop

    async def sleep(self, seconds: float) -> None:
        """Wait for so many virtual seconds."""
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


class Passing:
    """Lets time pass, by leaps from one thing that is due to the next: in between there are only heartbeats."""

    def __init__(self, loop: BrokerLoop, clock: RunClock, enode: EnodeMachine) -> None:
        """Time of `loop`, which all machines share."""
        self.clock = clock
        self._loop = loop
        self._enode = enode

    async def pass_by(self, seconds: float) -> None:
        """Let so much time pass; everything that is due in it happens, in order."""
        end_s = self._loop.time() + seconds
        self._loop.advanced(seconds)
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
        # What was due a moment ago is still on its way, and a leap would break it off.
        at_ms = next_due_ms(state, self.clock.now_ms() - round(SETTLE_S * 500))
        return None if at_ms is None else (at_ms - EPOCH_MS) / 1000


class _Reading:
    """What both clocks show."""

    def __init__(self, passing: Passing) -> None:
        self._passing = passing

    def now(self) -> datetime:
        """What the broker's clocks show, in UTC."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, as `deliver_at_ms` of a message counts them."""
        return self._passing.clock.now_ms()

    def in_ms(self, duration: Duration) -> int:
        """The time so long from now, for `deliver_at_ms`."""
        return self.now_ms() + round(seconds_of(duration) * 1000)


class BrokerClock(_Reading):
    """The clock of the broker and of the test's clients. While everybody waits, time passes by itself."""

    async def advance(
        self,
        duration: Duration = 0.0,
        *,
        days: float = 0.0,
        hours: float = 0.0,
        minutes: float = 0.0,
        seconds: float = 0.0,
    ) -> None:
        """Let so much time pass: `advance("1h30m")`, `advance(minutes=90)`. What is due in it happens, in order.

        Errors: ValueError for what is no duration.
        """
        await self._passing.pass_by(total_s(duration, days, hours, minutes, seconds))


class BlockingClock(_Reading):
    """As `BrokerClock`, for tests without an event loop."""

    def __init__(self, passing: Passing, drive: Callable[..., None]) -> None:
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
        """As `BrokerClock.advance`."""
        self._drive(self._passing.pass_by(total_s(duration, days, hours, minutes, seconds)))


def total_s(duration: Duration, days: float, hours: float, minutes: float, seconds: float) -> float:
    """All of it in seconds. Errors: ValueError."""
    named = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return seconds_of(duration) + seconds_of(named)
