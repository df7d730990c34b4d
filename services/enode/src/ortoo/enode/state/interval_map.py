"""An interval map over the offsets of one queue: the finished and held messages of a group above a floor."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple


class Phase(IntEnum):
    """The state of an unfinished message that was delivered before."""

    LEASED = 1
    """Leased to a consumer, until a time."""
    RETURNED = 2
    """Released or nacked; may be delivered again from a time on."""
    EXPIRED = 3
    """Its lease expired. Only in memory of a pop line; never in the folded state, which has no clock."""


class DeliveryState(NamedTuple):
    """The state of some unfinished messages."""

    phase: Phase
    attempt: int
    """The number of deliveries, including this one."""
    number: int
    """The number of the newest lease; newer leases have larger numbers."""
    until_ms: int
    """When the lease ends, or when the messages may be delivered again."""
    duration_ms: int
    """The time from the decision to `until_ms`."""


class Piece(NamedTuple):
    """Offsets `first` to `end`, exclusive, with one state; None = not known to be delivered."""

    first: int
    end: int
    state: DeliveryState | None

    def has_expired(self, number: int, now_ms: int) -> bool:
        """Whether lease `number` is the newest of these messages, and has ended."""
        state = self.state
        return state is not None and state.number == number and state.until_ms <= now_ms


class IntervalMap:
    """Disjoint intervals of offsets above `floor`.

    Offsets below `floor` are finished. Offsets in no interval are untouched.

    A finished offset stays finished: a later state has no effect on it. So folding the last part of the changes a
    second time leaves the same map.
    """

    __slots__ = ("_ends", "_firsts", "_states", "delivered_count", "floor")

    def __init__(self, floor: int) -> None:
        """Begin with everything below `floor` finished and the rest untouched."""
        self.floor = floor
        self.delivered_count = 0
        """The number of messages with a state."""
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self._states: list[DeliveryState | None] = []
        """None = finished."""

    def __len__(self) -> int:
        return len(self._firsts)

    def is_finished(self, offset: int) -> bool:
        """Whether a message is finished."""
        if offset < self.floor:
            return True
        at = bisect_right(self._firsts, offset) - 1
        return at >= 0 and offset < self._ends[at] and self._states[at] is None

    def unfinished(self, first: int, end: int) -> Iterator[Piece]:
        """The unfinished parts of a range, untouched or held, in order."""
        at = max(first, self.floor)
        index = max(bisect_right(self._firsts, at) - 1, 0)
        while at < end:
            if index < len(self._firsts) and self._ends[index] <= at:
                index += 1
                continue
            if index == len(self._firsts) or self._firsts[index] >= end:
                yield Piece(at, end, None)
                return
            if at < self._firsts[index]:
                yield Piece(at, self._firsts[index], None)
                at = self._firsts[index]
            stop, hold = min(end, self._ends[index]), self._states[index]
            if hold is not None:
                yield Piece(at, stop, hold)
            at = stop

    def set_state(self, first: int, end: int, state: DeliveryState) -> None:
        """Set the state of the unfinished offsets of a range."""
        first = max(first, self.floor)
        if first >= end:
            return
        if not self._ends or first >= self._ends[-1]:
            self._firsts.append(first)
            self._ends.append(end)
            self._states.append(state)
            self.delivered_count += end - first
            return
        first, end = self._shrink_to_unfinished(first, end)
        if first >= end:
            return
        low, high = self._split_around(first, end)
        firsts: list[int] = []
        ends: list[int] = []
        holds: list[DeliveryState | None] = []
        at, held, free = first, 0, end - first
        for index in range(low, high):
            if self._states[index] is not None:
                held += self._ends[index] - self._firsts[index]
                continue
            if at < self._firsts[index]:
                firsts.append(at)
                ends.append(self._firsts[index])
                holds.append(state)
            firsts.append(self._firsts[index])
            ends.append(self._ends[index])
            holds.append(None)
            free -= self._ends[index] - self._firsts[index]
            at = self._ends[index]
        if at < end:
            firsts.append(at)
            ends.append(end)
            holds.append(state)
        self._firsts[low:high], self._ends[low:high], self._states[low:high] = firsts, ends, holds
        self.delivered_count += free - held

    def finish(self, first: int, end: int) -> None:
        """Finish a range; the floor rises to the first unfinished offset."""
        first = max(first, self.floor)
        if first >= end:
            return
        low, high = self._split_around(first, end)
        for index in range(low, high):
            if self._states[index] is not None:
                self.delivered_count -= self._ends[index] - self._firsts[index]
        if first == self.floor:
            del self._firsts[low:high], self._ends[low:high], self._states[low:high]
            self.floor = end
            if self._firsts and self._firsts[0] == end and self._states[0] is None:
                self.floor = self._ends[0]
                del self._firsts[0], self._ends[0], self._states[0]
            return
        if low and self._ends[low - 1] == first and self._states[low - 1] is None:
            low -= 1
            first = self._firsts[low]
        if high < len(self._firsts) and self._firsts[high] == end and self._states[high] is None:
            end = self._ends[high]
            high += 1
        self._firsts[low:high], self._ends[low:high], self._states[low:high] = [first], [end], [None]

    def rows(self, from_offset: int, limit: int) -> list[Piece]:
        """Up to `limit` intervals that end after `from_offset`. An interval whose state is None is finished."""
        start = bisect_right(self._ends, from_offset)
        stop = min(start + limit, len(self._firsts))
        return [Piece(self._firsts[at], self._ends[at], self._states[at]) for at in range(start, stop)]

    def _shrink_to_unfinished(self, first: int, end: int) -> tuple[int, int]:
        """Shrink a range so that its borders are not inside finished intervals, which are never split."""
        at = bisect_right(self._firsts, first) - 1
        if at >= 0 and self._states[at] is None:
            first = max(first, self._ends[at])
        at = bisect_left(self._firsts, end) - 1
        if at >= 0 and self._states[at] is None and end < self._ends[at]:
            end = self._firsts[at]
        return first, end

    def _split_around(self, first: int, end: int) -> tuple[int, int]:
        """Split intervals at the range's borders; return the index range of the intervals inside."""
        low = self._split_at(first)
        if low < len(self._firsts) and self._ends[low] == end and self._firsts[low] == first:
            return low, low + 1
        return low, self._split_at(end)

    def _split_at(self, offset: int) -> int:
        """Split the interval that holds `offset`; return the index of the first interval at or after `offset`."""
        index = bisect_left(self._firsts, offset)
        if index and self._ends[index - 1] > offset:
            self._firsts.insert(index, offset)
            self._ends.insert(index, self._ends[index - 1])
            self._states.insert(index, self._states[index - 1])
            self._ends[index - 1] = offset
        return index
