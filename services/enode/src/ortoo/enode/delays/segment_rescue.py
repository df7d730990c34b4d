"""Stores delayed messages again before their segment is deleted. They keep their ids."""

import numpy as np

from ortoo.common.groups.system_topics import DELAYED_TOPIC_ID
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.enode import log_events
from ortoo.enode.changes.kinds import StateChange
from ortoo.enode.changes.timers import TimerEnd, TimersDone, TimersSet
from ortoo.enode.delays.reading import read_delayed
from ortoo.enode.delays.staging import StagingBuffer, split_by_destination
from ortoo.enode.state.tables.timers import Destination
from ortoo.enode.state.timer_bucket import Int64s, TimerArray, TimerStatus, times_and_ids
from ortoo.enode.store.batch_write import Deferral
from ortoo.enode.store.store import Store

RESCUED_AT_ONCE = 1_024
BUFFERED_BYTES_MAX = 32 << 20
"""At this size the messages read so far are stored before more are read."""
ATTEMPTS_MAX, ATTEMPT_INTERVAL_S = 40, 0.05
"""The number of retries, and the delay, for messages that are being delivered."""
_log = get_logger("delays")


class SegmentRescue:
    """Moves delayed messages out of segments that are to be deleted."""

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._timers = store.timers
        self._clock = clock
        self._rescued_bytes = 0
        """Bytes stored by the rescue in progress."""

    async def rescue(self, end_place: int) -> int | None:
        """Store every delayed message whose place is below `end_place` again; returns the number of stored bytes.

        Staged messages are stored again too. Returns None if a message is still being delivered or recalled.
        Errors: Overloaded, Unavailable, NotFound (a topic is being deleted). After an error no segment may be deleted.
        """
        self._rescued_bytes, rescued = 0, 0
        for _ in range(ATTEMPTS_MAX):
            rows = self._timers.in_places(0, end_place)
            lost = rows[rows["status"] == TimerStatus.UNREADABLE]
            if len(lost):
                _log.emit(log_events.DELAYED_MESSAGES_LOST, count=len(lost))
                await self._lose(*times_and_ids(lost))
            movable = rows[np.isin(rows["status"], (TimerStatus.STAGED, TimerStatus.FREE))]
            for start in range(0, len(movable), RESCUED_AT_ONCE):
                rescued += await self._rescue_rows(movable[start : start + RESCUED_AT_ONCE])
            if len(rows) == len(lost) + len(movable):
                break
            await self._clock.sleep(ATTEMPT_INTERVAL_S)
        else:
            return None
        if rescued:
            _log.emit(log_events.DELAYED_MESSAGES_MOVED, messages=rescued)
        return self._rescued_bytes

    async def _rescue_rows(self, rows: TimerArray) -> int:
        """Move the rows that still wait; returns their number."""
        rows = rows[np.isin(self._timers.statuses(*times_and_ids(rows)), (TimerStatus.STAGED, TimerStatus.FREE))]
        times, ids = times_and_ids(rows)
        were_staged = self._timers.statuses(times, ids) == TimerStatus.STAGED
        self._timers.set_status(times, ids, TimerStatus.MOVING)
        waiting = StagingBuffer()
        try:
            found = read_delayed(self._store, rows["place"].tolist(), clock=self._clock)
            async for start, end, opened, chosen in found:
                if opened is None:
                    await self._lose(times[start:end], ids[start:end])
                    continue
                for due in split_by_destination(rows[start:end], opened, chosen):
                    waiting.add(due)
                if waiting.bytes >= BUFFERED_BYTES_MAX:
                    await self._store_again(waiting)
            await self._store_again(waiting)
        finally:
            is_still_staged = were_staged & (self._timers.statuses(times, ids) == TimerStatus.MOVING)
            self._timers.set_status(times[~is_still_staged], ids[~is_still_staged], TimerStatus.FREE)
            self._timers.set_status(times[is_still_staged], ids[is_still_staged], TimerStatus.STAGED)
        return len(rows)

    async def _store_again(self, waiting: StagingBuffer) -> None:
        for due in waiting.take_all():
            destination = self._timers.destination_of(due.destination)
            if destination is None:
                await self._lose(due.deliver_at_ms, due.timer_ids)
                continue
            for batch, times, ids in due.batches():
                self._rescued_bytes += len(batch.records)
                await self._store.append(*destination, batch, deferral=_deferral(destination, times, ids))

    async def _lose(self, times: Int64s, ids: Int64s) -> None:
        await self._store.change(TimersDone(TimerEnd.LOST, times.tobytes(), ids.tobytes()))


def _deferral(destination: Destination, times: Int64s, ids: Int64s) -> Deferral:
    def changes(first_place: int, stored_at_ms: int) -> tuple[StateChange, ...]:
        return (TimersSet(*destination, first_place, 0, 0, stored_at_ms, 0, times.tobytes(), ids.tobytes()),)

    return Deferral(DELAYED_TOPIC_ID, changes, int(times.min()), int(times.max()))
