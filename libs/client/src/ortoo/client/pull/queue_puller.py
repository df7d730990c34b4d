"""Pulls one queue for a consumer as long as it owns it, as fast as its messages are processed."""

import asyncio
from collections.abc import Callable
from functools import partial

from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Filter
from ortoo.client.pull.flow_control import FlowLimits, HoldCounts
from ortoo.client.pull.process_queue import ProcessQueue
from ortoo.client.pull.pulling import Pulled, PullStatus, pull
from ortoo.client.pull.settings import PullSettings
from ortoo.common.errors import Fenced, NotFound, OrtooError
from ortoo.common.process.logs import get_logger
from ortoo.common.process.retry import Backoff

_log = get_logger("consumer")


class QueuePuller:
    """The pull loop of one queue."""

    def __init__(
        self,
        connection: Connection,
        group: str,
        queue: ProcessQueue,
        settings: PullSettings,
        *,
        wanted: Filter,
        may_pull: Callable[[], bool],
        arrived: Callable[[], None],
        lost: Callable[[ProcessQueue], None],
        counts: HoldCounts,
    ) -> None:
        """`may_pull` says whether the queue's lock is held; `arrived` hears of messages, `lost` of a lost lock."""
        self.limits = FlowLimits()
        self.wanted = wanted
        self._connection = connection
        self._clock = connection.clock
        self._group = group
        self._queue = queue
        self._settings = settings
        self._may_pull = may_pull
        self._arrived = arrived
        self._lost = lost
        self._counts = counts
        self._backoff = Backoff(max_s=settings.pull_retry_ms / 1000)
        self._awake = asyncio.Event()

    def wake(self) -> None:
        """The queue is not suspended any more."""
        self._awake.set()

    async def run(self) -> None:
        """Pull until the queue is dropped or its lock is lost."""
        queue, failures = self._queue, 0
        while not queue.is_dropped:
            queue.pulled_at_s = self._clock.monotonic_s()
            if not await self._has_leave():
                continue
            epoch = queue.epoch
            address = self._connection.address
            try:
                pulled = await self._pull(epoch)
            except (Fenced, NotFound) as error:
                _log.warning("a queue was lost", queue=str(queue.queue), reason=str(error))
                self._lost(queue)
                return
            except OrtooError as error:
                _log.warning("a pull failed", queue=str(queue.queue), reason=str(error))
                if error.retriable:
                    self._connection.failed(address)
                await self._clock.sleep(self._backoff.delay_s(failures, self._connection.randomness))
                failures += 1
                continue
            failures = 0
            if epoch == queue.epoch and not queue.is_dropped:
                await self._take(pulled)

    async def _has_leave(self) -> bool:
        """Whether to pull now; otherwise wait a while, or until the queue goes on."""
        if self._queue.is_suspended:
            self._awake.clear()
            await self._awake.wait()
            return False
        hold = self.limits.hold(self._queue.held)
        if hold is not None:
            if self._counts.count(hold):
                held = self._queue.held
                _log.info(
                    "pulls wait", queue=str(self._queue.queue), reason=hold.value, held=held.messages, span=held.span
                )
            await self._clock.sleep(self._settings.flow_retry_ms / 1000)
            return False
        if not self._may_pull():
            await self._clock.sleep(self._settings.lock_retry_ms / 1000)
            return False
        return True

    async def _pull(self, epoch: int) -> Pulled:
        queue, settings = self._queue, self._settings
        return await pull(
            self._connection,
            self._group,
            queue.queue,
            queue.next_offset,
            messages_max=settings.pull_messages_max,
            bytes_max=settings.pull_bytes_max,
            wait_ms=settings.long_poll_ms,
            wanted=self.wanted,
            generation=queue.generation,
            finished=partial(queue.finished, epoch),
        )

    async def _take(self, pulled: Pulled) -> None:
        queue = self._queue
        if pulled.status is PullStatus.OFFSET_ILLEGAL:
            await self._correct(pulled)
            return
        for batch in pulled.batches:
            queue.put(batch)
        queue.move_on(pulled.next_offset)
        if pulled.batches:
            self._arrived()

    async def _correct(self, pulled: Pulled) -> None:
        """Go on where the server says, after what is held was processed."""
        queue = self._queue
        _log.warning(
            "an offset is not stored; going on at the nearest one",
            queue=str(queue.queue),
            offset=queue.next_offset,
            corrected=pulled.next_offset,
            begin=pulled.begin_offset,
            end=pulled.end_offset,
        )
        epoch = queue.epoch
        while queue.held.messages and not queue.is_dropped and epoch == queue.epoch:
            await self._clock.sleep(self._settings.flow_retry_ms / 1000)
        if not queue.is_dropped and epoch == queue.epoch:
            queue.restart(pulled.next_offset)
