"""The order within message groups of a queue: only the first unfinished message of a message group may be delivered."""

from collections import deque
from collections.abc import Sequence

from ortoo.enode.state.interval_map import IntervalMap


class KeyOrder:
    """Tracks the messages that wait for an earlier message of their message group."""

    def __init__(self, scan: int) -> None:
        """Start without messages; the caller adds message groups from offset `scan` on."""
        self.scan = scan
        """The next offset whose message group is to be read."""
        self._first_of_group: dict[int, str] = {}
        """Offset of the first unfinished message of each group to that group."""
        self._waiting: dict[str, deque[int]] = {}
        """Each group with an unfinished message, to the offsets of the messages behind it."""
        self._blocked: set[int] = set()

    @property
    def blocked_count(self) -> int:
        """The number of messages that wait."""
        return len(self._blocked)

    def add(self, first_offset: int, message_groups: Sequence[str | None], intervals: IntervalMap) -> list[int]:
        """Add the message groups of messages from `first_offset` on; returns the deliverable offsets, in order."""
        free = []
        start = max(self.scan - first_offset, 0)
        for offset, group in enumerate(message_groups[start:], first_offset + start):
            if intervals.is_finished(offset):
                continue
            if group is None:
                free.append(offset)
            elif group in self._waiting:
                self._waiting[group].append(offset)
                self._blocked.add(offset)
            else:
                self._waiting[group] = deque()
                self._first_of_group[offset] = group
                free.append(offset)
        self.scan = max(self.scan, first_offset + len(message_groups))
        return free

    def is_free(self, offset: int) -> bool:
        """Whether no earlier message of the same message group blocks this message."""
        return offset < self.scan and offset not in self._blocked

    def waiting_for(self, offset: int) -> Sequence[int]:
        """The messages, in order, that wait for the message at `offset`; empty unless it is the first of its group."""
        group = self._first_of_group.get(offset)
        return tuple(self._waiting[group]) if group is not None else ()

    def finish(self, first: int, end: int, intervals: IntervalMap) -> list[int]:
        """Forget the messages from `first` to `end`, which `intervals` records as finished.

        Returns the offsets that became deliverable.
        """
        free = []
        # The groups of lost messages are never read, and unfinished messages before these hold the floor back.
        self.scan = max(self.scan, intervals.floor, end if first <= self.scan else 0)
        for offset in range(first, end) if end - first <= len(self._first_of_group) else sorted(self._first_of_group):
            group = self._first_of_group.pop(offset, None) if first <= offset < end else None
            if group is None:
                continue
            waiting = self._waiting[group]
            while waiting:
                following = waiting.popleft()
                self._blocked.discard(following)
                if not intervals.is_finished(following):
                    self._first_of_group[following] = group
                    free.append(following)
                    break
            else:
                del self._waiting[group]
        return free
