"""Deliveries that ended with the session of their consumer, so that a message that ends its consumers is found.

Groups that commit offsets only. The records are kept in memory: after a restart the attempts are counted from 0.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace

from ortoo.enode.state.tables.sent_back import RetryPlace

PLACES_MAX = 10_000
"""The number of queues whose last interruption is kept in memory."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """Messages of one queue that a consumer had when its session ended without an answer."""

    queue_id: int
    offset: int
    """The first of the messages."""
    end_offset: int
    """The offset after the last of the messages."""
    attempts: int = 0
    """The number of attempts of the message at `offset`.

    An attempt counts if the message was the only one that the consumer had.
    """
    repeats: int = 1
    """The number of consecutive interruptions at `offset`."""


class Interruptions:
    """The last interruption of each queue of a group, until the group's offset passes its messages."""

    def __init__(self) -> None:
        """Begin empty."""
        self._last: OrderedDict[RetryPlace, Interruption] = OrderedDict()

    def record(self, place: RetryPlace, reported: Interruption, committed: int) -> Interruption | None:
        """Record an interruption; returns its sum with earlier ones, or None if no message was interrupted.

        `committed` is the group's offset. `reported.attempts` is 1 if the consumer had only this message. An empty
        range means that the messages of an earlier interruption did not end this session; counted attempts stay.
        """
        last = self.of(place, committed)
        if reported.end_offset <= max(reported.offset, committed):
            if last is not None and last.attempts:
                self._put(place, replace(last, end_offset=last.offset + 1, repeats=1))
            else:
                self._last.pop(place, None)
            return None
        found = replace(reported, offset=max(reported.offset, committed), repeats=1)
        if last is not None and last.offset == found.offset:
            found = replace(found, attempts=last.attempts + found.attempts, repeats=last.repeats + 1)
        self._put(place, found)
        return found

    def of(self, place: RetryPlace, committed: int) -> Interruption | None:
        """The last interruption of a queue; None if the group's offset has passed it, or was moved back before it."""
        last = self._last.get(place)
        if last is None:
            return None
        if committed >= last.end_offset:
            del self._last[place]
            return None
        return last

    def drop(self, place: RetryPlace) -> None:
        """Forget a queue, because an operator moved the group's offset."""
        self._last.pop(place, None)

    def _put(self, place: RetryPlace, interruption: Interruption) -> None:
        self._last[place] = interruption
        self._last.move_to_end(place)
        if len(self._last) > PLACES_MAX:
            self._last.popitem(last=False)
