"""Pulls one queue while the consumer owns it, as fast as its messages are processed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ortoo.client import log_events
from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Filter
from ortoo.client.core.suspension import Suspension
from ortoo.client.offsets.losses import Losses, LostMessages
from ortoo.client.pull.flow_control import FlowLimits, HoldCounts
from ortoo.client.pull.process_queue import ProcessQueue
from ortoo.client.pull.pull_call import Pulled, PullStatus, pull
from ortoo.client.pull.settings import PullSettings
from ortoo.common.errors import DataLoss, Fenced, NotFound, OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.retry import Backoff

DAMAGE_PULLS = 3
"""Number of pulls of damaged messages before they count as lost, because memory and cables fail as well as disks."""
_log = get_logger("consumer")


@dataclass(eq=False, slots=True, kw_only=True)
class QueuePuller:
    """The pull loop of one queue."""

    connection: Connection
    group: str
    queue: ProcessQueue
    settings: PullSettings
    wanted: Filter
    suspension: Suspension
    may_pull: Callable[[], bool]
    """Whether the queue's lock is held."""
    arrived: Callable[[], None]
    """Called when messages arrived."""
    lost: Callable[[ProcessQueue], None]
    """Called when the lock is lost."""
    counts: HoldCounts
    losses: Losses
    limits: FlowLimits = FlowLimits()
    task: "asyncio.Task[None]" = field(init=False)
    """The task of `run`."""

    async def run(self) -> None:
        """Pull until the queue is dropped or its lock is lost."""
        queue, failures, damaged = self.queue, 0, 0
        backoff = Backoff(max_s=self.settings.pull_retry_ms / 1000)
        while not queue.is_dropped:
            queue.pulled_at_s = self.connection.clock.monotonic_s()
            if not await self._has_leave():
                continue
            epoch = queue.epoch
            address = self.connection.address
            try:
                pulled = await self._pull(epoch)
            except (Fenced, NotFound) as error:
                _log.emit(log_events.QUEUE_LOST, queue=str(queue.queue), reason=str(error))
                self.lost(queue)
                return
            except OrtooError as error:
                _log.emit(log_events.PULL_FAILED_RETRYING, queue=str(queue.queue), reason=str(error))
                if error.retriable:
                    self.connection.failed(address)
                await self.connection.clock.sleep(backoff.delay_s(failures, self.connection.randomness))
                failures += 1
                damaged = damaged + 1 if isinstance(error, DataLoss) and epoch == queue.epoch else 0
                if isinstance(error, DataLoss) and damaged >= DAMAGE_PULLS and self._pass_over(error):
                    failures = damaged = 0
                continue
            failures = damaged = 0
            if epoch == queue.epoch and not queue.is_dropped:
                await self._take(pulled)

    async def _has_leave(self) -> bool:
        """Whether to pull now. If not, waits a while, or until the queue is resumed."""
        if self.queue.queue in self.suspension:
            await self.suspension.until_resumed(self.queue.queue)
            return False
        hold = self.limits.hold(self.queue.held)
        if hold is not None:
            if self.counts.count(hold):
                held = self.queue.held
                _log.emit(
                    log_events.PULL_THROTTLED,
                    queue=str(self.queue.queue),
                    reason=hold.value,
                    held=held.messages,
                    span=held.span,
                )
            await self.connection.clock.sleep(self.settings.flow_retry_ms / 1000)
            return False
        if not self.may_pull():
            await self.connection.clock.sleep(self.settings.lock_retry_ms / 1000)
            return False
        return True

    async def _pull(self, epoch: int) -> Pulled:
        queue, settings = self.queue, self.settings
        return await pull(
            self.connection,
            self.group,
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
        queue = self.queue
        if pulled.status is PullStatus.OFFSET_ILLEGAL:
            await self._correct(pulled)
            return
        for batch in pulled.batches:
            queue.put(batch)
        queue.move_on(pulled.next_offset)
        if pulled.batches:
            self.arrived()

    def _pass_over(self, error: DataLoss) -> bool:
        """Continue behind damaged messages and report them; False if their end is unknown."""
        queue = self.queue
        if queue.is_dropped or error.end_offset <= queue.next_offset:
            return False
        begin = max(error.begin_offset, queue.next_offset)
        self.losses.add(LostMessages(queue.queue, begin, error.end_offset, error.message))
        queue.move_on(error.end_offset)
        return True

    async def _correct(self, pulled: Pulled) -> None:
        """Continue at the server's offset after the held messages are processed."""
        queue = self.queue
        _log.emit(
            log_events.OFFSET_OUT_OF_RANGE,
            queue=str(queue.queue),
            offset=queue.next_offset,
            corrected=pulled.next_offset,
            begin=pulled.begin_offset,
            end=pulled.end_offset,
        )
        epoch = queue.epoch
        while queue.held.messages and not queue.is_dropped and epoch == queue.epoch:
            await self.connection.clock.sleep(self.settings.flow_retry_ms / 1000)
        if not queue.is_dropped and epoch == queue.epoch:
            queue.restart(pulled.next_offset)
