"""What a producer has under way to one queue: a pure account of order, sequences and returns.

Batches of a queue are sent in order, several at a time, each with the producer's id and the number of messages before
it. The rules that keep a retry from storing twice and an order from turning round:

* A batch gets its id and sequence when it is first sent, and keeps both, and its queue, while its outcome is unknown.
* After the first failure nothing more is sent until everything under way is answered or lost with the connection; then
  all that failed is sent again, in order.
* An answer that says "there is a gap before this batch" stored nothing for certain, so such a batch may be numbered
  anew when the batch before it was refused for good, or goes on under another id.
* A batch that its enode has not taken for certain, and was not sent before with an unknown outcome, may move to another
  queue unless one of its messages belongs here; what was sent behind it is refused as a gap, and numbered anew.
* An enode that does not know the id has not seen its first batch. While one before it is to come again, so is the batch
  itself, as it was; else it is numbered anew.
* Batches of two ids are never under way together: nothing would tell the enode that one of them is missing.
* When a batch is given up with an unknown outcome, or refused for good after a try with one, batches that were never
  sent go on under a new producer id; those that were sent wait for their own answer.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from enum import Enum

from ortoo.client.produce.producer_batch import ProducerBatch
from ortoo.common.errors import NOT_TAKEN_FIELD, NotFound, OrtooError, Unavailable

IN_FLIGHT_MAX = 5
"""How many batches of one queue may be under way: as many as the enode remembers the offsets of."""

_GAP_FIELD = "batch.first_sequence"
_PRODUCER_FIELD = "batch.producer_id"


class Fate(Enum):
    """What becomes of a batch whose send failed."""

    REFUSED = "refused"
    """It fails for good and is not stored."""
    RETURNED = "returned"
    """It is sent again."""
    MOVES = "moves"
    """It may go to another queue; it is not in this one any more."""


class InFlight:
    """The batches of one queue, from sealing to answer: those that wait, those under way, those to send again."""

    def __init__(self, new_producer_id: Callable[[], int]) -> None:
        """Start with nothing under way; `new_producer_id` makes ids that nobody else has."""
        self._new_producer_id = new_producer_id
        self._producer_id = new_producer_id()
        self._next_sequence = 0
        self._ready: deque[ProducerBatch] = deque()
        self._in_flight: deque[ProducerBatch] = deque()
        self._returned: list[ProducerBatch] = []
        self._refused_sequence: int | None = None
        self._takes_nothing = False
        """Whether that was refused because the enode takes no messages: what came behind it may move as well."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing of this queue waits or is under way."""
        return not (self._ready or self._in_flight or self._returned)

    @property
    def has_room(self) -> bool:
        """Whether one more batch would be sent at once."""
        return not self._ready and not self._returned and len(self._in_flight) < IN_FLIGHT_MAX

    @property
    def has_failed(self) -> bool:
        """Whether a batch was refused or returned, and nothing has been sent again since."""
        return bool(self._returned) or self._refused_sequence is not None

    def put(self, batch: ProducerBatch) -> None:
        """Take a sealed batch that comes after all that were taken."""
        self._ready.append(batch)

    def next_to_send(self) -> ProducerBatch | None:
        """The next batch to send now, numbered; None if there is none or sending has to wait."""
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

    def stored(self, batch: ProducerBatch) -> None:
        """The batch was acknowledged."""
        self._in_flight.remove(batch)

    def failed(self, batch: ProducerBatch, error: OrtooError) -> Fate:
        """The batch was answered with an error; say what becomes of it."""
        self._in_flight.remove(batch)
        if isinstance(error, Unavailable) and error.field == _GAP_FIELD:
            if batch.sealed.producer_id != self._producer_id:
                batch.forget_number()  # those before it go on under another id: the gap would never be closed
            if self._refused_sequence is not None:
                batch.forget_number()
                if self._takes_nothing and batch.may_move and not self._returned:
                    return Fate.MOVES
        elif isinstance(error, NotFound) and error.field == _PRODUCER_FIELD:
            if not any(map(batch.comes_behind, self._returned)):  # its enode may know the id by then
                batch.forget_number()
                self._start_anew()
        elif not error.retriable:
            if batch.is_doubtful:
                self._start_anew()  # its number may be taken, by itself
            else:
                self._leave_out(batch)
            return Fate.REFUSED
        elif error.field == NOT_TAKEN_FIELD:
            if batch.may_move and not self._returned:
                self._leave_out(batch)
                self._takes_nothing = True
                batch.forget_number()
                return Fate.MOVES
        elif isinstance(error, Unavailable):
            batch.is_doubtful = True
        self._returned.append(batch)
        return Fate.RETURNED

    def connection_lost(self) -> None:
        """No answer will come for what is under way."""
        for batch in self._in_flight:
            batch.is_doubtful = True
        self._returned += self._in_flight
        self._in_flight.clear()

    def take_movable(self) -> list[ProducerBatch]:
        """Take out what was never sent and may go to another queue."""
        taken = [batch for batch in self._ready if batch.may_move and not batch.is_numbered]
        self._take_out(taken)
        return taken

    def give_up(self, now_s: float) -> list[ProducerBatch]:
        """Take out the batches whose time is over; those that were sent have an unknown outcome."""
        late = [p for p in self.everything() if p.deadline_s <= now_s]
        self._take_out(late)
        if any(batch.is_numbered for batch in late):
            self._start_anew()
        return late

    @property
    def is_waiting_to_resend(self) -> bool:
        """Whether everything under way has come back and something must be sent again."""
        return bool(self._returned or self._refused_sequence is not None) and not self._in_flight

    def resume(self) -> None:
        """Send what was returned again, in order, before everything else."""
        if self._refused_sequence is not None:
            for batch in self._returned:
                if batch.sealed.first_sequence > self._refused_sequence:  # one before it may be stored under its own
                    batch.forget_number()
            self._next_sequence = self._refused_sequence
            self._refused_sequence, self._takes_nothing = None, False
        self._ready.extendleft(reversed(self._returned))
        self._returned = []

    def everything(self) -> Iterable[ProducerBatch]:
        """All batches that have no outcome yet, in order."""
        return (*self._in_flight, *self._returned, *self._ready)

    def _leave_out(self, batch: ProducerBatch) -> None:
        """It is not stored, nor is what was sent behind it: what comes next takes its sequence."""
        if self._refused_sequence is None:
            self._refused_sequence = batch.sealed.first_sequence

    def _start_anew(self) -> None:
        self._producer_id = self._new_producer_id()
        self._next_sequence = 0

    def _take_out(self, batches: Collection[ProducerBatch]) -> None:
        if batches:
            gone = set(batches)
            self._in_flight = deque(batch for batch in self._in_flight if batch not in gone)
            self._returned = [batch for batch in self._returned if batch not in gone]
            self._ready = deque(batch for batch in self._ready if batch not in gone)
