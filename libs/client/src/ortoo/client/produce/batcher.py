"""What a producer has for one queue: the batch that is being filled, those that are sealed, and when to go on."""

import asyncio
from dataclasses import dataclass

from ortoo.client import log_events
from ortoo.client.core.place import Queue
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
    """Seals it."""
    retry: asyncio.Handle | None = None
    """Sends again what was returned."""
    attempt: int = 0
    """How often that was done since the last success."""
    reason: str = ""
    """Why its enode refused the first of what it has not stored since its last success, in its own words."""

    @property
    def is_troubled(self) -> bool:
        """Whether something waits to be sent again, so that others had better go elsewhere."""
        return self.retry is not None or self.in_flight.has_failed

    @property
    def has_room(self) -> bool:
        """Whether a batch would leave at once."""
        return self.in_flight.has_room and not self.is_troubled

    @property
    def is_settled(self) -> bool:
        """Whether every message taken for this queue has its outcome."""
        return self.open is None and self.in_flight.is_idle

    def close(self) -> ProducerBatch | None:
        """Take out the batch that is being filled, if there is one."""
        batch, self.open = self.open, None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return batch

    def refused(self, error: OrtooError) -> None:
        """What was sent failed; why is logged once until something is stored again."""
        if error.retriable and not self.reason:
            self.reason = error.message
            _log.emit(log_events.SEND_FAILED_RETRYING, queue=str(self.queue), reason=self.reason)

    def too_late(self, batch: ProducerBatch, timeout_s: float) -> Unavailable:
        """The failure of a batch whose time is over, in the words of the enode if it said any."""
        words = "the outcome is unknown" if batch.is_numbered else "it was never sent"
        said = f"; it said: {self.reason}" if self.reason else ""
        return Unavailable(f"not stored within {timeout_s:.0f} s by {self.queue.enode}; {words}{said}")

    def abandon(self) -> None:
        """Fail what has no outcome yet: nobody will send it."""
        error = Unavailable("the producer was closed before the answer; the outcome is unknown")
        if self.retry is not None:
            self.retry.cancel()
        for batch in (self.close(), *self.in_flight.everything()):
            if batch is not None:
                batch.fail(error)
