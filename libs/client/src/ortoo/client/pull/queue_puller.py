"""Pulls one queue while the consumer owns it, as fast as its messages are processed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ortoo.client import log_events
from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Filter
from ortoo.client.core.suspension import Suspension
from ortoo.client.offsets.losses import LossLog, LostMessages
from ortoo.client.pull.flow_control import FlowControlCounts, FlowLimits
from ortoo.client.pull.process_queue import ProcessQueue
from ortoo.client.pull.pull_call import PullResult, PullStatus, pull
from ortoo.client.pull.settings import PullSettings
from ortoo.common.errors import DataLoss, Fenced, NotFound, OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.retry import Backoff

DAMAGED_PULL_ATTEMPTS = 3
"""Number of pulls of damaged messages before they count as lost, because memory and cables fail as well as disks."""
_log = get_logger("consumer")


@dataclass(eq=False, slots=True, kw_only=True)
class QueuePuller:
    """The pull loop of one queue."""

    connection: Connection
    group: str
    queue: ProcessQueue
    settings: PullSettings
    filter: Filter
    suspension: Suspension
    is_lock_trusted: Callable[[], bool]
    """Whether the queue's lock is held."""
    on_messages: Callable[[], None]
    """Called when messages arrived."""
    on_lost: Callable[[ProcessQueue], None]
    """Called when the lock is lost."""
    flow_control_counts: FlowControlCounts
    losses: LossLog
    limits: FlowLimits = FlowLimits()
    task: "asyncio.Task[None]" = field(init=False)
    """The task of `run`."""

    async def run(self) -> None:
        """Pull until the queue is dropped or its lock is lost."""
        queue, failures, damaged = self.queue, 0, 0
        backoff = Backoff(max_s=self.settings.pull_retry_ms / 1000)
        while not queue.is_dropped:
            queue.pulled_at_s = self.connection.clock.monotonic_s()
            if not await self._wait_allowed():
                continue
            epoch = queue.epoch
            address = self.connection.address
            try:
                result = await self._pull(epoch)
            except (Fenced, NotFound) as error:
                _log.emit(log_events.QUEUE_LOST, queue=str(queue.queue), reason=str(error))
                self.on_lost(queue)
                return
            except OrtooError as error:
                self.connection.retry_log.emit(_log, log_events.PULL_FAILED_RETRYING, error, queue=str(queue.queue))
                if error.retriable:
                    self.connection.mark_failed(address)
                await self.connection.clock.sleep(backoff.delay_s(failures, self.connection.randomness))
                failures += 1
                damaged = damaged + 1 if isinstance(error, DataLoss) and epoch == queue.epoch else 0
                if isinstance(error, DataLoss) and damaged >= DAMAGED_PULL_ATTEMPTS and self._skip_damaged(error):
                    failures = damaged = 0
                continue
            failures = damaged = 0
            if epoch != queue.epoch or queue.is_dropped:
                continue
            next_offset = queue.next_offset
            if result.status is PullStatus.OFFSET_ILLEGAL and next_offset > max(result.end_offset, queue.start_offset):
                reason = f"its end was lost: it ends at {result.end_offset}, and {next_offset} would be next"
                _log.emit(log_events.QUEUE_LOST, queue=str(queue.queue), reason=reason)
                self.on_lost(queue)  # new messages get the lost offsets, so continue at the committed offset
                return
            await self._handle_result(result)

    async def _wait_allowed(self) -> bool:
        """Whether to pull now. Otherwise this call waits: for a while, or until the queue is resumed."""
        if self.queue.queue in self.suspension:
            await self.suspension.wait_resumed(self.queue.queue)
            return False
        reason = self.limits.exceeded(self.queue.buffered)
        if reason is not None:
            if self.flow_control_counts.count(reason):
                buffered = self.queue.buffered
                _log.emit(
                    log_events.PULL_THROTTLED,
                    queue=str(self.queue.queue),
                    reason=reason.value,
                    held=buffered.messages,
                    span=buffered.span,
                )
            await self.connection.clock.sleep(self.settings.flow_retry_ms / 1000)
            return False
        if not self.is_lock_trusted():
            await self.connection.clock.sleep(self.settings.lock_retry_ms / 1000)
            return False
        return True

    async def _pull(self, epoch: int) -> PullResult:
        queue, settings = self.queue, self.settings
        return await pull(
            self.connection,
            self.group,
            queue.queue,
            queue.next_offset,
            messages_max=settings.pull_messages_max,
            bytes_max=settings.pull_bytes_max,
            wait_ms=settings.long_poll_ms,
            filter=self.filter,
            generation=queue.generation,
            on_finished=partial(queue.on_finished, epoch),
        )

    async def _handle_result(self, result: PullResult) -> None:
        queue = self.queue
        queue.is_commit_awaited = result.commit_soon
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await self._correct_offset(result)
            return
        for batch in result.batches:
            queue.put(batch)
        queue.advance(result.next_offset)
        if result.batches:
            self.on_messages()

    def _skip_damaged(self, error: DataLoss) -> bool:
        """Continue behind damaged messages and report them as lost; False if the end of the damage is unknown."""
        queue = self.queue
        if queue.is_dropped or error.end_offset <= queue.next_offset:
            return False
        begin = max(error.begin_offset, queue.next_offset)
        self.losses.add(LostMessages(queue.queue, begin, error.end_offset, error.message))
        queue.advance(error.end_offset)
        return True

    async def _correct_offset(self, result: PullResult) -> None:
        """When the held messages are processed, continue at the offset that the server named."""
        queue = self.queue
        _log.emit(
            log_events.OFFSET_OUT_OF_RANGE,
            queue=str(queue.queue),
            offset=queue.next_offset,
            corrected=result.next_offset,
            begin=result.begin_offset,
            end=result.end_offset,
        )
        epoch = queue.epoch
        while queue.buffered.messages and not queue.is_dropped and epoch == queue.epoch:
            await self.connection.clock.sleep(self.settings.flow_retry_ms / 1000)
        if not queue.is_dropped and epoch == queue.epoch:
            queue.reset(result.next_offset)
