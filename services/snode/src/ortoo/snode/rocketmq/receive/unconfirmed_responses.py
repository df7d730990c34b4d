"""Finds the one message that a client cannot receive, by dividing a broken answer into smaller ones.

A client may refuse a message as too large or unreadable. The client then drops the whole answer silently.
After a broken answer of several messages the next answers hold half as many, so that the other messages pass. A message
that was alone in a broken answer has failed. A broken answer is detected by an error of the stream, or because
the client repeats an attempt id that was already answered.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from ortoo.common.groups.pop import PoppedBatch
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode.pop.call import PoppedMessages, PopResult

RECEIVERS_MAX = 10_000
ATTEMPTS_MAX = 4
"""Answers to one client that are remembered by their attempts, because a client polls several enodes separately."""
EMPTY_BATCH = SealedBatch(b"", 0, 0, 0)
Receiver = tuple[str, str, str]
"""Client id, group, topic."""


@dataclass(slots=True, eq=False)
class UnconfirmedResponse:
    """An answer whose receipt the client has not confirmed yet."""

    attempt_id: str
    result: PopResult
    """The answer without its messages."""
    is_handled: bool = False
    """Whether the answer was already found to be not received."""


@dataclass(slots=True)
class UnconfirmedResponses:
    """Reduces the number of messages in an answer after a client did not receive an earlier answer."""

    _limits: OrderedDict[Receiver, int] = field(default_factory=OrderedDict)
    _unconfirmed: OrderedDict[Receiver, OrderedDict[str, UnconfirmedResponse]] = field(default_factory=OrderedDict)
    """The unconfirmed answers of each receiver, by attempt id."""

    def limit_messages(self, receiver: Receiver, requested: int) -> int:
        """The number of messages that the next answer to a receiver may contain, at most `requested`."""
        return min(requested, self._limits.get(receiver, requested))

    def on_undelivered(self, receiver: Receiver, messages: int) -> bool:
        """Halve the limit of a receiver, because it did not receive an answer of `messages` messages.

        Returns whether the answer had only one message.
        """
        self._limits[receiver] = max(1, messages // 2)
        self._limits.move_to_end(receiver)
        while len(self._limits) > RECEIVERS_MAX:
            self._limits.popitem(last=False)
        return messages == 1

    def add(self, receiver: Receiver, attempt_id: str, result: PopResult) -> UnconfirmedResponse:
        """Record that an answer is sent to a receiver."""
        batches = []
        if attempt_id:
            batches = [_without_messages(one) for one in result.batches]
        response = UnconfirmedResponse(attempt_id, PopResult(batches))
        if attempt_id and batches:
            attempts = self._unconfirmed.setdefault(receiver, OrderedDict())
            attempts[attempt_id] = response
            if len(attempts) > ATTEMPTS_MAX:
                attempts.popitem(last=False)
            self._unconfirmed.move_to_end(receiver)
            while len(self._unconfirmed) > RECEIVERS_MAX:
                self._unconfirmed.popitem(last=False)
        return response

    def find_undelivered(self, receiver: Receiver, attempt_id: str) -> PopResult | None:
        """The earlier answer to this attempt id, or None. A client repeats an attempt id if it got no answer."""
        response = self._attempts(receiver).get(attempt_id)
        return response.result if response is not None and self.claim(receiver, response) else None

    def has_attempt(self, receiver: Receiver, attempt_id: str) -> bool:
        """Whether an answer to this attempt id is not confirmed."""
        return attempt_id in self._attempts(receiver)

    def claim(self, receiver: Receiver, response: UnconfirmedResponse) -> bool:
        """Mark an answer as not received; returns True only for the first call with this answer."""
        attempts = self._attempts(receiver)
        if attempts.get(response.attempt_id) is response:
            del attempts[response.attempt_id]
        is_first, response.is_handled = not response.is_handled, True
        return is_first

    def _attempts(self, receiver: Receiver) -> OrderedDict[str, UnconfirmedResponse]:
        return self._unconfirmed.get(receiver) or OrderedDict()

    def on_delivered(self, receiver: Receiver, requested: int) -> None:
        """Double the limit of a receiver, because it received an answer.

        An answer counts as received if it was written completely, or if the client sent a new attempt id.
        """
        limit = self._limits.get(receiver)
        if limit is not None and 2 * limit >= requested:
            del self._limits[receiver]
        elif limit is not None:
            self._limits[receiver] = 2 * limit


def _without_messages(one: PoppedMessages) -> PoppedMessages:
    popped = one.popped
    empty = PoppedBatch(
        popped.queue_id, popped.number, popped.stored_at_ms, EMPTY_BATCH, popped.offsets, popped.attempts
    )
    return PoppedMessages(one.queue, one.handle, empty)
