"""Which message of a broken answer a client could not take: found by smaller answers. Pure bookkeeping.

A client that cannot take one message, because it is larger than it allows or made of what it cannot read, throws the
whole answer away and says nothing. Of several messages the next answers hold half as many, so that the innocent pass;
one that came alone and broke its answer has failed. A break shows on the stream, or by the client's asking again with
the same attempt id, which its answer has used up.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, replace

from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode.pop.popping import PopAnswer

KNOWN_MAX = 10_000
ATTEMPTS_MAX = 4
"""So many answers to one client are known by their attempts: it asks each of some enodes on its own."""
NOTHING = SealedBatch(b"", 0, 0, 0)
Receiver = tuple[str, str, str]
"""Client id, group, topic."""


@dataclass(slots=True, eq=False)
class Given:
    """An answer that a client has, for all one knows."""

    attempt_id: str
    answer: PopAnswer
    """Without the messages."""
    is_seen_to: bool = False
    """Whether it was found out that the client has not taken it."""


@dataclass(slots=True)
class Doubts:
    """How many messages an answer may hold, for clients that broke one off."""

    _limits: OrderedDict[Receiver, int] = field(default_factory=OrderedDict)
    _given: OrderedDict[Receiver, OrderedDict[str, Given]] = field(default_factory=OrderedDict)
    """By attempt."""

    def limit(self, receiver: Receiver, wanted: int) -> int:
        """How many of `wanted` messages to give at once."""
        return min(wanted, self._limits.get(receiver, wanted))

    def broken(self, receiver: Receiver, messages: int) -> bool:
        """An answer of so many messages was not taken; whether that was one message's fault."""
        self._limits[receiver] = max(1, messages // 2)
        self._limits.move_to_end(receiver)
        while len(self._limits) > KNOWN_MAX:
            self._limits.popitem(last=False)
        return messages == 1

    def given(self, receiver: Receiver, attempt_id: str, answer: PopAnswer) -> Given:
        """The client gets an answer."""
        batches = []
        if attempt_id:
            batches = [replace(one, popped=replace(one.popped, batch=NOTHING)) for one in answer.batches]
        given = Given(attempt_id, PopAnswer(batches))
        if attempt_id and batches:
            attempts = self._given.setdefault(receiver, OrderedDict())
            attempts[attempt_id] = given
            if len(attempts) > ATTEMPTS_MAX:
                attempts.popitem(last=False)
            self._given.move_to_end(receiver)
            while len(self._given) > KNOWN_MAX:
                self._given.popitem(last=False)
        return given

    def untaken(self, receiver: Receiver, attempt_id: str) -> PopAnswer | None:
        """What the client asks for once more: it could not take the answer, or never got it."""
        given = self._attempts(receiver).get(attempt_id)
        return given.answer if given is not None and self.is_still(receiver, given) else None

    def is_still(self, receiver: Receiver, given: Given) -> bool:
        """Whether nobody has asked for this answer once more, and so seen to it; asked once."""
        attempts = self._attempts(receiver)
        if attempts.get(given.attempt_id) is given:
            del attempts[given.attempt_id]
        is_first, given.is_seen_to = not given.is_seen_to, True
        return is_first

    def _attempts(self, receiver: Receiver) -> OrderedDict[str, Given]:
        return self._given.get(receiver) or OrderedDict()

    def taken(self, receiver: Receiver, wanted: int) -> None:
        """An answer was written whole; of a client that says what it takes, by a new attempt id."""
        limit = self._limits.get(receiver)
        if limit is not None and 2 * limit >= wanted:
            del self._limits[receiver]
        elif limit is not None:
            self._limits[receiver] = 2 * limit
