"""The state of a producer for one queue: the open batch, the sealed batches, and timers."""

import asyncio
from dataclasses import dataclass

from ortoo.client import log_events
from ortoo.client.core.queues import Queue
from ortoo.client.produce.in_flight import InFlight
from ortoo.client.produce.producer_batch import ProducerBatch
from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.common.records.builder import BatchBuilder

_log = get_logger("producer")


@dataclass(eq=False, slots=True)
class Batcher:
    """One queue's open batch with its builder, the sealed ones in flight, and the timers of both."""

    queue: Queue
    in_flight: InFlight
    builder: BatchBuilder
    open: ProducerBatch | None = None
    """The batch that is being filled."""
    timer: asyncio.Handle | None = None
    """Seals the open batch."""
    retry: asyncio.Handle | None = None
    """Sends returned batches again."""
    attempt: int = 0
    """Number of retries since the last success."""
    reason: str = ""
    """The enode's error text of the first rejection since the last success."""

    @property
    def is_troubled(self) -> bool:
        """Whether batches wait for a retry, so that new ones should use another queue."""
        return self.retry is not None or self.in_flight.has_failed

    @property
    def has_room(self) -> bool:
        """Whether a new batch would be sent immediately."""
        return self.in_flight.has_room and not self.is_troubled

    @property
    def is_settled(self) -> bool:
        """Whether every message for this queue has its outcome."""
        return self.open is None and self.in_flight.is_idle

    def close(self) -> ProducerBatch | None:
        """Remove and return the open batch, if there is one."""
        batch, self.open = self.open, None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return batch

    def refused(self, error: OrtooError) -> None:
        """Record a failed send; the reason is logged once until the next success."""
        if error.retriable and not self.reason:
            self.reason = error.message
            _log.emit(log_events.SEND_FAILED_RETRYING, queue=str(self.queue), reason=self.reason)

    def too_late(self, batch: ProducerBatch, timeout_s: float) -> Unavailable:
        """The error of an expired batch, with the enode's last error text."""
        words = "the outcome is unknown" if batch.is_numbered else "it was never sent"
        said = f"; last error: {self.reason}" if self.reason else ""
        return Unavailable(f"not stored within {timeout_s:.0f} s by {self.queue.enode}; {words}{said}")

    def abandon(self) -> None:
        """Fail all batches without an outcome; they will not be sent."""
        error = Unavailable("the producer was closed before the answer; the outcome is unknown")
        if self.retry is not None:
            self.retry.cancel()
        for batch in (self.close(), *self.in_flight.everything()):
            if batch is not None:
                batch.fail(error)
