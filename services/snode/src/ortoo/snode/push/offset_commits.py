"""Commits the acknowledgements of one session for one topic on one enode, in batches."""

import asyncio
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

from ortoo.common.errors import Fenced, OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.snode import log_events
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.enodes.serial_batcher import SerialBatcher

_log = get_logger("acknowledgements")


@dataclass(slots=True, eq=False)
class OffsetCommitBatcher(SerialBatcher):
    """Commits the newest offset of each queue to the enode. Offsets that arrive during a commit go into the next."""

    enode: str
    topic_id: int
    group: str
    links: EnodeLinks
    on_durable: Callable[[Queue, int, int], None]
    """Called with each (queue, offset, generation) that the enode has stored."""
    on_fenced: Callable[[Queue, int], None]
    """Called with (queue, generation) when the lock of a queue has a newer generation."""
    _: KW_ONLY
    clock: Clock
    randomness: Randomness
    _pending: dict[Queue, tuple[int, int, int]] = field(default_factory=dict, init=False)
    _in_flight: dict[Queue, tuple[int, int, int]] = field(default_factory=dict, init=False)
    _discarded: set[Queue] = field(default_factory=set, init=False)
    _round_ended: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def put(self, queue: Queue, offset: int, generation: int, fence: int = 0) -> None:
        """Queue `offset` for the next commit; `fence` is the generation of the queue's lock."""
        self._pending[queue] = (offset, generation, fence)

    async def wait_until_stored(self, queue: Queue) -> None:
        """Wait until no commit of this queue is pending or in flight."""
        while queue in self._pending or queue in self._in_flight:
            await self._round_ended.wait()

    def discard(self, queue: Queue) -> None:
        """Drop the offset of a queue that is not stored yet, because the queue gets another owner."""
        self._pending.pop(queue, None)
        if queue in self._in_flight:
            self._discarded.add(queue)

    async def drain(self) -> None:
        """Commit the pending offsets until there are none."""
        try:
            await self._commit()
        except Exception:
            _log.emit(log_events.OFFSET_COMMIT_DEFECT, exc_info=True, group=self.group)

    async def _commit(self) -> None:
        backoff, attempt = Backoff(first_s=0.05, max_s=1.0), 0
        while self._pending:
            self._in_flight, self._pending = self._pending, {}
            rows = [(queue.queue_id, offset, fence) for queue, (offset, _, fence) in self._in_flight.items()]
            try:
                fenced = set(await self.links.to(self.enode).commit_offsets(self.topic_id, self.group, rows))
            except Fenced as error:
                _log.emit(log_events.OFFSET_COMMIT_FENCED, group=self.group, enode=self.enode, reason=str(error))
                fenced = {queue.queue_id for queue in self._in_flight}
            except OrtooError as error:
                if error.retriable:
                    retried = {q: one for q, one in self._in_flight.items() if q not in self._discarded}
                    self._pending = {**retried, **self._pending}
                else:
                    _log.emit(
                        log_events.OFFSET_COMMIT_REJECTED,
                        group=self.group,
                        enode=self.enode,
                        rows=rows,
                        reason=str(error),
                    )
                self._end_round()
                if error.retriable:
                    await self.clock.sleep(backoff.delay_s(attempt, self.randomness))
                    attempt += 1
                continue
            attempt = 0
            done, discarded = self._in_flight, set(self._discarded)
            self._end_round()
            for queue, (offset, generation, fence) in done.items():
                if queue.queue_id not in fenced:
                    self.on_durable(queue, offset, generation)
                elif queue not in discarded:
                    self.on_fenced(queue, fence)

    def _end_round(self) -> None:
        self._in_flight = {}
        self._discarded.clear()
        turn, self._round_ended = self._round_ended, asyncio.Event()
        turn.set()
