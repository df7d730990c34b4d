"""Finds the message of a broken answer that a client cannot receive, by smaller answers. Pure bookkeeping.

A message may be larger than a client allows, or unreadable for it. The client then drops the whole answer silently.
After a broken answer of several messages the next answers hold half as many, so that the other messages pass. A message
that came alone and broke its answer has failed. A break shows on the stream, or when the client repeats an attempt id
that already had its answer.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, replace

from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode.pop.processor import PopAnswer

KNOWN_MAX = 10_000
ATTEMPTS_MAX = 4
"""Answers to one client that are remembered by their attempts, because it polls several enodes separately."""
NOTHING = SealedBatch(b"", 0, 0, 0)
Receiver = tuple[str, str, str]
"""Client id, group, topic."""


@dataclass(slots=True, eq=False)
class Given:
    """An answer that was presumably received by a client."""

    attempt_id: str
    answer: PopAnswer
    """Without the messages."""
    is_seen_to: bool = False
    """Whether it was already found that the client has not received it."""


@dataclass(slots=True)
class Doubts:
    """Limits of messages in an answer, for clients that broke one off."""

    _limits: OrderedDict[Receiver, int] = field(default_factory=OrderedDict)
    _given: OrderedDict[Receiver, OrderedDict[str, Given]] = field(default_factory=OrderedDict)
    """By attempt."""

    def limit(self, receiver: Receiver, wanted: int) -> int:
        """The number of messages to return at once, at most `wanted`."""
        return min(wanted, self._limits.get(receiver, wanted))

    def broken(self, receiver: Receiver, messages: int) -> bool:
        """Record that an answer of `messages` messages was not received; returns whether one message is at fault."""
        self._limits[receiver] = max(1, messages // 2)
        self._limits.move_to_end(receiver)
        while len(self._limits) > KNOWN_MAX:
            self._limits.popitem(last=False)
        return messages == 1

    def given(self, receiver: Receiver, attempt_id: str, answer: PopAnswer) -> Given:
        """Record that the client gets an answer."""
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
        """The earlier answer for an attempt id that the client repeats, because it has not received it."""
        given = self._attempts(receiver).get(attempt_id)
        return given.answer if given is not None and self.is_still(receiver, given) else None

    def is_still(self, receiver: Receiver, given: Given) -> bool:
        """Whether the answer was not yet found unreceived; True at most once."""
        attempts = self._attempts(receiver)
        if attempts.get(given.attempt_id) is given:
            del attempts[given.attempt_id]
        is_first, given.is_seen_to = not given.is_seen_to, True
        return is_first

    def _attempts(self, receiver: Receiver) -> OrderedDict[str, Given]:
        return self._given.get(receiver) or OrderedDict()

    def taken(self, receiver: Receiver, wanted: int) -> None:
        """Record that an answer was written whole; for a client with attempt ids, that it sent a new one."""
        limit = self._limits.get(receiver)
        if limit is not None and 2 * limit >= wanted:
            del self._limits[receiver]
        elif limit is not None:
            self._limits[receiver] = 2 * limit
