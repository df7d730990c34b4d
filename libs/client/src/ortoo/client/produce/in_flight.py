"""Batches of one queue in flight: order, sequence numbers and returned batches, without I/O.

Batches of a queue are sent in order, several at a time. Each batch carries its producer id and its sequence: the number
of messages sent before it under this id. These rules prevent that a retry stores twice or changes the order:

* A batch gets its id and sequence at its first send. It keeps both, and its queue, while its outcome is unknown.
* After a failure nothing more is sent until everything in flight is answered or lost with the connection. Then all
  failed batches are sent again, in order.
* "Gap before this batch" means that the batch was not stored. It gets a new sequence if the batch before it was refused
  permanently or continues under another id.
* A batch that was certainly not stored may move to another queue, unless one of its messages is bound to its queue.
  Batches sent behind it are refused because of the gap, and get new sequences.
* An enode that does not know a producer id has not received the first batch of this id, and refuses later batches. A
  refused batch keeps its sequence if an earlier batch will be sent again; otherwise it gets a new sequence.
* Batches of two ids are never in flight together, because the enode could not detect a missing batch.
* A batch may expire with an unknown outcome, or be refused permanently after an attempt with an unknown outcome.
  Batches that were never sent then get a new producer id. Batches that were sent wait for their own answers.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from enum import Enum

from ortoo.client.produce.producer_batch import ProducerBatch
from ortoo.common.errors import NOT_ACCEPTED_FIELD, NotFound, OrtooError, Unavailable

IN_FLIGHT_MAX = 5
"""Largest number of batches of a queue in flight, equal to the number whose offsets an enode remembers."""

_GAP_FIELD = "batch.first_sequence"
_PRODUCER_FIELD = "batch.producer_id"


class FailureAction(Enum):
    """The handling of a batch after a failed send."""

    FAIL = "refused"
    """The batch fails permanently and is not stored."""
    RETRY = "returned"
    """The batch is sent again to this queue."""
    REROUTE = "moves"
    """The batch may go to another queue; it was removed from this one."""


class InFlight:
    """The sealed batches of one queue without an outcome: waiting, in flight, or returned for a retry."""

    def __init__(self, new_producer_id: Callable[[], int]) -> None:
        """Start empty; `new_producer_id` returns unique ids."""
        self._new_producer_id = new_producer_id
        self._producer_id = new_producer_id()
        self._next_sequence = 0
        self._ready: deque[ProducerBatch] = deque()
        self._in_flight: deque[ProducerBatch] = deque()
        self._to_retry: list[ProducerBatch] = []
        self._refused_sequence: int | None = None
        self._enode_refuses_writes = False
        """Whether the enode rejects all sends, so that the batches behind the refused one may move as well."""

    @property
    def is_idle(self) -> bool:
        """Whether no batch of this queue waits or is in flight."""
        return not (self._ready or self._in_flight or self._to_retry)

    @property
    def can_send_now(self) -> bool:
        """Whether one more batch would be sent immediately."""
        return not self._ready and not self._to_retry and len(self._in_flight) < IN_FLIGHT_MAX

    @property
    def has_failed(self) -> bool:
        """Whether a batch was refused, or lost its answer, since the last `retry`."""
        return bool(self._to_retry) or self._refused_sequence is not None

    def put(self, batch: ProducerBatch) -> None:
        """Add a sealed batch behind all others."""
        self._ready.append(batch)

    def next_to_send(self) -> ProducerBatch | None:
        """The next batch to send, with its sequence; None if no batch waits or sending must wait."""
        if self.has_failed or not self._ready or len(self._in_flight) >= IN_FLIGHT_MAX:
            return None
        batch = self._ready[0]
        producer_id = batch.sealed.producer_id if batch.is_numbered else self._producer_id
        if self._in_flight and self._in_flight[-1].sealed.producer_id != producer_id:
            return None
        self._ready.popleft()
        if not batch.is_numbered:
            batch.number(self._producer_id, self._next_sequence)
            self._next_sequence += batch.sealed.count
        self._in_flight.append(batch)
        return batch

    def on_stored(self, batch: ProducerBatch) -> None:
        """Remove a batch that was acknowledged."""
        self._in_flight.remove(batch)

    def on_failed(self, batch: ProducerBatch, error: OrtooError) -> FailureAction:
        """Handle an error answer to a batch; returns what happens to the batch."""
        self._in_flight.remove(batch)
        if isinstance(error, Unavailable) and error.field == _GAP_FIELD:
            if batch.sealed.producer_id != self._producer_id:
                batch.reset_number()  # earlier batches continue under another id, so the gap would stay
            if self._refused_sequence is not None:
                batch.reset_number()
                if self._enode_refuses_writes and batch.can_reroute and not self._to_retry:
                    return FailureAction.REROUTE
        elif isinstance(error, NotFound) and error.field == _PRODUCER_FIELD:
            if not any(map(batch.is_after, self._to_retry)):  # their retry may register the id first
                batch.reset_number()
                self._reset_producer_id()
        elif not error.retriable:
            if batch.is_ambiguous:
                self._reset_producer_id()  # an earlier attempt of it may have used its number
            else:
                self._skip_sequence(batch)
            return FailureAction.FAIL
        elif error.field == NOT_ACCEPTED_FIELD:
            if batch.can_reroute and not self._to_retry:
                self._skip_sequence(batch)
                self._enode_refuses_writes = True
                batch.reset_number()
                return FailureAction.REROUTE
        elif isinstance(error, Unavailable):
            batch.is_ambiguous = True
        self._to_retry.append(batch)
        return FailureAction.RETRY

    def on_connection_lost(self) -> None:
        """Mark all batches in flight for a retry, because their answers are lost."""
        for batch in self._in_flight:
            batch.is_ambiguous = True
        self._to_retry += self._in_flight
        self._in_flight.clear()

    def take_reroutable(self) -> list[ProducerBatch]:
        """Remove and return batches that were never sent and may use another queue."""
        taken = [batch for batch in self._ready if batch.can_reroute and not batch.is_numbered]
        self._remove(taken)
        return taken

    def take_expired(self, now_s: float) -> list[ProducerBatch]:
        """Remove and return expired batches; the outcome of batches that were sent is unknown."""
        expired = [p for p in self.all_batches() if p.deadline_s <= now_s]
        self._remove(expired)
        if any(batch.is_numbered for batch in expired):
            self._reset_producer_id()
        return expired

    @property
    def is_ready_to_retry(self) -> bool:
        """Whether nothing is in flight and batches must be sent again."""
        return bool(self._to_retry or self._refused_sequence is not None) and not self._in_flight

    def retry(self) -> None:
        """Queue the returned batches again, in order, before all others, if nothing is in flight."""
        if not self.is_ready_to_retry:
            return
        if self._refused_sequence is not None:
            for batch in self._to_retry:
                if batch.sealed.first_sequence > self._refused_sequence:  # an earlier one may be stored
                    batch.reset_number()
            self._next_sequence = self._refused_sequence
            self._refused_sequence, self._enode_refuses_writes = None, False
        self._ready.extendleft(reversed(self._to_retry))
        self._to_retry = []

    def all_batches(self) -> Iterable[ProducerBatch]:
        """All batches without an outcome, in order."""
        return (*self._in_flight, *self._to_retry, *self._ready)

    def _skip_sequence(self, batch: ProducerBatch) -> None:
        """Skip a batch that is not stored; the next batch takes its sequence."""
        if self._refused_sequence is None:
            self._refused_sequence = batch.sealed.first_sequence

    def _reset_producer_id(self) -> None:
        self._producer_id = self._new_producer_id()
        self._next_sequence = 0

    def _remove(self, batches: Collection[ProducerBatch]) -> None:
        if batches:
            removed = set(batches)
            self._in_flight = deque(batch for batch in self._in_flight if batch not in removed)
            self._to_retry = [batch for batch in self._to_retry if batch not in removed]
            self._ready = deque(batch for batch in self._ready if batch not in removed)
