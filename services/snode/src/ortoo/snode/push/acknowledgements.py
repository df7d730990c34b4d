"""Acknowledgements of one session for one topic on one enode: while a commit is in flight the next one gathers."""

import asyncio
from collections.abc import Callable

from ortoo.common.errors import Fenced, OrtooError
from ortoo.common.process.clock import Clock
from ortoo.common.process.logs import get_logger
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.pull.offsets import Offsets

_log = get_logger("acknowledgements")

Durable = Callable[[Queue, int, int], None]
Refused = Callable[[Queue, int], None]


class AckLane:
    """Writes offsets through to the enode, the newest of each queue."""

    def __init__(
        self,
        enode: str,
        topic_id: int,
        group: str,
        offsets: Offsets,
        durable: Durable,
        fenced: Refused,
        *,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        """`durable` is told each (queue, offset, generation) that the enode has stored.

        `fenced` is told each (queue, generation) whose lock has a newer generation by now.
        """
        self.draining = False
        """Whether a task works on this lane."""
        self._enode = enode
        self._topic_id = topic_id
        self._group = group
        self._offsets = offsets
        self._durable = durable
        self._fenced = fenced
        self._clock = clock
        self._randomness = randomness
        self._pending: dict[Queue, tuple[int, int, int]] = {}
        self._in_flight: dict[Queue, tuple[int, int, int]] = {}
        self._forgotten: set[Queue] = set()
        self._turn = asyncio.Event()

    def put(self, queue: Queue, offset: int, generation: int, fence: int = 0) -> None:
        """Commit `offset` soon; `fence` is the generation of the queue's lock."""
        self._forgotten.discard(queue)
        self._pending[queue] = (offset, generation, fence)

    async def settled(self, queue: Queue) -> None:
        """Wait until nothing of this queue is waiting or in flight."""
        while queue in self._pending or queue in self._in_flight:
            await self._turn.wait()

    def forget(self, queue: Queue) -> None:
        """Give up what could not be stored of a queue in time: it is somebody else's now."""
        self._pending.pop(queue, None)
        if queue in self._in_flight:
            self._forgotten.add(queue)

    async def drain(self) -> None:
        """Commit until nothing waits."""
        backoff, attempt = Backoff(first_s=0.05, max_s=1.0), 0
        while self._pending:
            self._in_flight, self._pending = self._pending, {}
            rows = [(queue.queue_id, offset, fence) for queue, (offset, _, fence) in self._in_flight.items()]
            try:
                fenced = set(await self._offsets.commit_rows(self._enode, self._topic_id, self._group, rows))
            except Fenced as error:
                _log.info("offsets were refused", group=self._group, enode=self._enode, reason=str(error))
                fenced = {queue.queue_id for queue in self._in_flight}
            except OrtooError as error:
                if error.retriable:
                    kept = {q: one for q, one in self._in_flight.items() if q not in self._forgotten}
                    self._pending = {**kept, **self._pending}
                else:
                    _log.warning(
                        "offsets were refused", group=self._group, enode=self._enode, rows=rows, reason=str(error)
                    )
                self._next_turn()
                if error.retriable:
                    await self._clock.sleep(backoff.delay_s(attempt, self._randomness))
                    attempt += 1
                continue
            attempt = 0
            done, forgotten = self._in_flight, set(self._forgotten)
            self._next_turn()
            for queue, (offset, generation, fence) in done.items():
                if queue.queue_id not in fenced:
                    self._durable(queue, offset, generation)
                elif queue not in forgotten:
                    self._fenced(queue, fence)

    def _next_turn(self) -> None:
        self._in_flight = {}
        self._forgotten.clear()
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()
