"""Planted: messages that come too early, or after they were recalled or rolled back."""

from typing import Any

import numpy as np

from ortoo.common.errors import NotFound
from ortoo.enode.changes.halves import HalfVerdict
from ortoo.enode.delays import scheduler
from ortoo.enode.state.timer_bucket import TimerStatus
from ortoo.enode.transactions import coordinator


def delivered_early() -> None:
    """G6: delayed messages come a second and a half too early."""
    deliver = scheduler.DelayScheduler._deliver

    def early(self: Any, now_ms: int) -> None:
        deliver(self, now_ms + 1_500)

    scheduler.DelayScheduler._deliver = early  # type: ignore[method-assign]


def recall_forgotten_at_restart() -> None:
    """G6: a recall is acknowledged and never written."""

    async def recall(self: Any, topic_id: int, timer_id: int, deliver_at_ms: int) -> None:
        times = np.array([deliver_at_ms], "<i8")
        ids = np.array([timer_id], "<i8")
        self._timers.advance(self._clock.now_ms())
        if int(self._timers.statuses(times, ids)[0]) not in (TimerStatus.FREE, TimerStatus.STAGED):
            raise NotFound("no such delayed message")
        self._timers.set_status(times, ids, TimerStatus.RECALLING)

    scheduler.DelayScheduler.recall = recall  # type: ignore[method-assign]


def rolled_back_and_delivered() -> None:
    """G7: some rolled back transactions are committed."""
    end = coordinator.TransactionCoordinator.end

    async def wrong(self: Any, topic_id: int, number: int, verdict: Any, source: Any) -> None:
        if verdict == HalfVerdict.ROLLED_BACK and number % 4 == 1:
            verdict = HalfVerdict.COMMITTED
        await end(self, topic_id, number, verdict, source)

    coordinator.TransactionCoordinator.end = wrong  # type: ignore[method-assign]


def commit_answered_and_dropped() -> None:
    """G7: a commit is answered at once, and sometimes has no effect."""
    end = coordinator.TransactionCoordinator._end

    async def lost(self: Any, half: Any, ended: Any) -> None:
        if ended.verdict == HalfVerdict.COMMITTED and half.number % 5 == 2:
            self._halves.open.pop(half.number, None)
            return
        await end(self, half, ended)

    coordinator.TransactionCoordinator._end = lost  # type: ignore[method-assign]


def checks_never_asked() -> None:
    """G7: a transaction that its producer left open is never checked."""

    async def silent(self: Any, number: int) -> None:
        """Ask no producer."""

    coordinator.TransactionCoordinator._check = silent  # type: ignore[method-assign]
