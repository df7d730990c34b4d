"""Acknowledgements of one session for one topic on one enode: while a commit is in flight the next one gathers."""

import asyncio
from collections.abc import Callable

from ortoo.common.clock import Clock
from ortoo.common.errors import OrtooError
from ortoo.common.logs import get_logger
from ortoo.common.randomness import Randomness
from ortoo.common.retry import Backoff
from ortoo.snode.offsets import Offsets
from ortoo.snode.routes import Queue

_log = get_logger("acknowledgements")

Durable = Callable[[Queue, int, int], None]


class AckLane:
    """Writes offsets through to the enode, the newest of each queue, oldest assignment first."""

    def __init__(
        self,
        enode: str,
        topic_id: int,
        group: str,
        offsets: Offsets,
        durable: Durable,
        *,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        """`durable` is told each (queue, offset, generation) that the enode has stored."""
        self.draining = False
        """Whether a task works on this lane."""
        self._enode = enode
        self._topic_id = topic_id
        self._group = group
        self._offsets = offsets
        self._durable = durable
        self._clock = clock
        self._randomness = randomness
        self._pending: dict[Queue, tuple[int, int]] = {}
        self._in_flight: dict[Queue, tuple[int, int]] = {}
        self._forgotten: set[Queue] = set()
        self._turn = asyncio.Event()

    def put(self, queue: Queue, offset: int, generation: int) -> None:
        """Commit `offset` soon."""
        self._forgotten.discard(queue)
        self._pending[queue] = (offset, generation)

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
            generation = min(generation for _, generation in self._pending.values())
            self._in_flight = {q: pair for q, pair in self._pending.items() if pair[1] == generation}
            for queue in self._in_flight:
                del self._pending[queue]
            offsets = {queue.queue_id: offset for queue, (offset, _) in self._in_flight.items()}
            try:
                await self._offsets.commit(self._enode, self._topic_id, self._group, offsets, generation)
            except OrtooError as error:
                if error.retriable:
                    kept = {q: pair for q, pair in self._in_flight.items() if q not in self._forgotten}
                    self._pending = {**kept, **self._pending}
                else:
                    _log.warning(
                        "offsets were refused", group=self._group, enode=self._enode, offsets=offsets, reason=str(error)
                    )
                self._next_turn()
                if error.retriable:
                    await self._clock.sleep(backoff.delay_s(attempt, self._randomness))
                    attempt += 1
            else:
                attempt = 0
                for queue, (offset, _) in self._in_flight.items():
                    self._durable(queue, offset, generation)
                self._next_turn()

    def _next_turn(self) -> None:
        self._in_flight = {}
        self._forgotten.clear()
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()
