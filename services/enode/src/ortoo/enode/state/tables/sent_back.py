"""Which messages groups gave back by offset: so that asking again after a lost answer stores nothing twice. Pure.

A mark lives until the group's offset has passed the message, or an operator moves it; both are in the log. What a mark
leaves does not depend on what was known before, so folding a stretch of the log again changes nothing.
"""

from collections.abc import Iterator

from ortoo.enode.changes.all import Change, OffsetsCommitted, TopicGone
from ortoo.enode.changes.lives import SentBack, SentBackForgotten

ROWS_PER_CHANGE = 1_024

Place = tuple[int, str, int]
"""(topic id, group, queue id)."""
Mark = tuple[int, int]
"""(offset, 1 if the message was parked)."""


class SentBackMarks:
    """The folded marks of all groups."""

    def __init__(self) -> None:
        """Nobody gave anything back."""
        self._marks: dict[Place, set[Mark]] = {}

    def has(self, place: Place, mark: Mark) -> bool:
        """Whether this message was given back already, with this outcome."""
        return mark in self._marks.get(place, ())

    def count(self, place: Place) -> int:
        """How many marks a group has in a queue."""
        return len(self._marks.get(place, ()))

    def apply(self, change: Change) -> None:
        """Fold one change in."""
        if isinstance(change, SentBack):
            self._marks.setdefault((change.topic_id, change.group, change.queue_id), set()).update(change.rows)
        elif isinstance(change, OffsetsCommitted):
            for queue_id, offset in change.offsets:
                self._pass((change.topic_id, change.group, queue_id), offset)
        elif isinstance(change, SentBackForgotten):
            for queue_id in change.queue_ids:
                self._marks.pop((change.topic_id, change.group, queue_id), None)
        elif isinstance(change, TopicGone):
            for place in [place for place in self._marks if place[0] == change.topic_id]:
                del self._marks[place]

    def checkpoint(self) -> Iterator[bytes]:
        """The whole as encoded changes; may be drawn while others are made, for they are then folded again."""
        for place in list(self._marks):
            rows = sorted(self._marks.get(place, ()))
            topic_id, group, queue_id = place
            for start in range(0, len(rows), ROWS_PER_CHANGE):
                yield SentBack(topic_id, group, queue_id, tuple(rows[start : start + ROWS_PER_CHANGE])).encoded()

    def _pass(self, place: Place, offset: int) -> None:
        marks = self._marks.get(place)
        if marks:
            left = {mark for mark in marks if mark[0] >= offset}
            if left:
                self._marks[place] = left
            else:
                del self._marks[place]
