"""Storing delayed messages again before the segment that holds them is deleted. They keep their ids."""

from collections.abc import Sequence

import numpy as np

from ortoo.common.groups.system_topics import DELAYED_TOPIC_ID
from ortoo.common.process.clock import Clock
from ortoo.common.process.logs import get_logger
from ortoo.common.records.builder import BatchBuilder
from ortoo.common.records.message import Message
from ortoo.common.records.text_rules import OF_COPIES
from ortoo.common.records.view import open_batch
from ortoo.enode.changes.all import Change
from ortoo.enode.changes.timers import TimerEnd, TimersDone, TimersSet
from ortoo.enode.deferred.waiting_messages import read_waiting
from ortoo.enode.state.tables.timers import Destination
from ortoo.enode.state.timer_bucket import Hold, Int64s, TimerArray, times_and_ids
from ortoo.enode.store.deferral import Deferral
from ortoo.enode.store.store import Store

MOVED_AT_ONCE = 1_024
LOOKS_MAX, LOOK_S = 40, 0.05
"""How often, and after how long, it is looked again for messages that were just being delivered."""
_log = get_logger("delays")


class TimerMoves:
    """Keeps delayed messages when their segment goes."""

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._timers = store.timers
        self._clock = clock
        self._moved_bytes = 0
        """In the rescue that is under way."""

    async def rescue(self, end_place: int) -> int | None:
        """Store every delayed message again that lies below a place; returns how many bytes that were.

        What waits in memory for its time is stored again too. None when one is still just being delivered or recalled.
        Errors: Overloaded, Unavailable, NotFound while a topic is being deleted; then nothing may be deleted.
        """
        self._moved_bytes, moved = 0, 0
        for _ in range(LOOKS_MAX):
            rows = self._timers.in_places(0, end_place)
            lost = rows[rows["hold"] == Hold.UNREADABLE]
            if len(lost):
                _log.error("delayed messages are lost: their bytes are damaged and their segment goes", count=len(lost))
                await self._lose(*times_and_ids(lost))
            movable = rows[np.isin(rows["hold"], (Hold.STAGED, Hold.FREE))]
            for start in range(0, len(movable), MOVED_AT_ONCE):
                moved += await self._move(movable[start : start + MOVED_AT_ONCE])
            if len(rows) == len(lost) + len(movable):
                break
            await self._clock.sleep(LOOK_S)
        else:
            return None
        if moved:
            _log.info("delayed messages are stored again before their segment goes", messages=moved)
        return self._moved_bytes

    async def _move(self, rows: TimerArray) -> int:
        """Move those that are still to be moved; returns how many."""
        rows = rows[np.isin(self._timers.holds(*times_and_ids(rows)), (Hold.STAGED, Hold.FREE))]
        times, ids = times_and_ids(rows)
        were_staged = self._timers.holds(times, ids) == Hold.STAGED
        self._timers.hold(times, ids, Hold.MOVING)
        try:
            by_queue: dict[int, list[tuple[int, Message]]] = {}
            found = read_waiting(self._store, rows["place"].tolist(), clock=self._clock)
            async for start, end, opened, chosen in found:
                if opened is None:
                    await self._lose(times[start:end], ids[start:end])
                    continue
                for at, message in enumerate(open_batch(opened.sealed).messages(chosen.tolist()), start):
                    by_queue.setdefault(int(rows["destination"][at]), []).append((at, message))
            for destination, several in by_queue.items():
                await self._store_again(destination, several, times, ids)
        finally:
            is_still_staged = were_staged & (self._timers.holds(times, ids) == Hold.MOVING)
            self._timers.hold(times[~is_still_staged], ids[~is_still_staged], Hold.FREE)
            self._timers.hold(times[is_still_staged], ids[is_still_staged], Hold.STAGED)
        return len(rows)

    async def _store_again(
        self, number: int, several: Sequence[tuple[int, Message]], times: Int64s, ids: Int64s
    ) -> None:
        destination = self._timers.destination_of(number)
        while several:
            builder, count = BatchBuilder(), 0
            while count < len(several) and builder.add(several[count][1]) is not None:
                count += 1
            rows, several = [at for at, _ in several[:count]], several[count:]
            part_ids, part_times = ids[rows], times[rows]
            if destination is None:
                await self._lose(part_times, part_ids)
                continue
            batch = builder.seal(now_ms=self._clock.now_ms(), limits=OF_COPIES)
            self._moved_bytes += len(batch.records)
            await self._store.append(*destination, batch, deferral=_deferral(destination, part_times, part_ids))

    async def _lose(self, times: Int64s, ids: Int64s) -> None:
        await self._store.change(TimersDone(TimerEnd.LOST, times.tobytes(), ids.tobytes()))


def _deferral(destination: Destination, times: Int64s, ids: Int64s) -> Deferral:
    def changes(first_place: int, stored_at_ms: int) -> tuple[Change, ...]:
        return (TimersSet(*destination, first_place, 0, 0, stored_at_ms, 0, times.tobytes(), ids.tobytes()),)

    return Deferral(DELAYED_TOPIC_ID, changes, int(times.min()), int(times.max()))
