"""The state of a producer for one queue: the open batch, the sealed batches, and timers."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ortoo.client import log_events
from ortoo.client.core.queues import Queue
from ortoo.client.produce.future_builder import FutureBuilder
from ortoo.client.produce.in_flight import InFlight
from ortoo.client.produce.producer_batch import ProducerBatch
from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.logs.logger import get_logger

_log = get_logger("producer")

LINGERING_BYTES_MAX = 1 << 16
"""Size at which a waiting batch is sealed: large enough to be efficient, small with many queues."""
PROMPT_BATCHES_MAX = 2
"""With fewer batches in flight, the next one does not wait for more messages."""


@dataclass(eq=False, slots=True)
class QueueBatcher:
    """One queue's open batch with its builder, the sealed batches in flight, and the timers of both."""

    queue: Queue
    in_flight: InFlight
    builder: FutureBuilder
    open_batch: ProducerBatch | None = None
    """The batch that is being filled."""
    linger_timer: asyncio.Handle | None = None
    """Seals the open batch."""
    retry_timer: asyncio.Handle | None = None
    """Sends returned batches again."""
    attempt: int = 0
    """Number of retries since the last success."""
    refusal_reason: str = ""
    """The enode's error text of the first rejection since the last success."""

    @property
    def is_retrying(self) -> bool:
        """Whether batches wait for a retry, so that new batches should use another queue."""
        return self.retry_timer is not None or self.in_flight.has_failed

    @property
    def can_send_now(self) -> bool:
        """Whether a new batch would be sent immediately."""
        return self.in_flight.can_send_now and not self.is_retrying

    @property
    def is_idle(self) -> bool:
        """Whether every message for this queue has its outcome."""
        return self.open_batch is None and self.in_flight.is_idle

    @property
    def message_count(self) -> int:
        """Number of messages without an outcome."""
        return len(self.builder) + sum(batch.sealed.count for batch in self.in_flight.all_batches())

    def take_open_batch(self) -> ProducerBatch | None:
        """Remove and return the open batch, if there is one."""
        batch, self.open_batch = self.open_batch, None
        if self.linger_timer is not None:
            self.linger_timer.cancel()
            self.linger_timer = None
        return batch

    def on_stored(self, batch: ProducerBatch) -> None:
        """Record a stored batch."""
        self.attempt, self.refusal_reason = 0, ""
        self.in_flight.on_stored(batch)

    def log_refusal(self, error: OrtooError) -> None:
        """Record a failed send. The reason is logged only for the first failure after a success."""
        if error.retriable and not self.refusal_reason:
            self.refusal_reason = error.message
            _log.emit(log_events.SEND_FAILED_RETRYING, queue=str(self.queue), reason=self.refusal_reason)

    def timeout_error(self, batch: ProducerBatch, timeout_s: float) -> Unavailable:
        """The error of an expired batch, with the last error text from the enode."""
        outcome = "the outcome is unknown" if batch.is_numbered else "it was never sent"
        reason = f"; last error: {self.refusal_reason}" if self.refusal_reason else ""
        return Unavailable(f"not stored within {timeout_s:.0f} s by {self.queue.enode}; {outcome}{reason}")

    def abandon(self) -> None:
        """Fail all batches without an outcome; they will not be sent."""
        error = Unavailable("the producer was closed before the answer; the outcome is unknown")
        if self.retry_timer is not None:
            self.retry_timer.cancel()
        for batch in (self.take_open_batch(), *self.in_flight.all_batches()):
            if batch is not None:
                batch.fail(error)


@asynccontextmanager
async def closing(topic: str, batchers: Collection[QueueBatcher], timeout_s: float) -> AsyncIterator[None]:
    """Limit the final flush, which runs in the block, to `timeout_s`.

    Errors: Unavailable, with the queues that have messages without an answer.
    """
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        unanswered = {one.queue: one.message_count for one in batchers if not one.is_idle}
        reason = next((f"; last error: {one.refusal_reason}" for one in batchers if one.refusal_reason), "")
        raise Unavailable(
            f"the producer of {topic} was closed before {sum(unanswered.values())} messages had an answer, for "
            f"{', '.join(map(str, unanswered))}; their outcome is unknown{reason}. Check the servers, or allow more "
            "time with close_timeout_ms"
        ) from None
