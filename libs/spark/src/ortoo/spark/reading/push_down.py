"""Filters that become smaller ranges: on the queue's columns, on the offset, and on the time of storing."""

import datetime
from dataclasses import dataclass, field
from typing import Any

from ortoo.client import Queue
from ortoo.spark.core.link import Link
from ortoo.spark.reading.topic_state import Range, offset_at

_PLACES = ("topic", "enode", "queue_id")
_LOWER = {"GreaterThan": 1, "GreaterThanOrEqual": 0, "EqualTo": 0}
_UPPER = {"LessThan": 0, "LessThanOrEqual": 1, "EqualTo": 1}


@dataclass(slots=True)
class OffsetFilter:
    """What filters say about queues, offsets and times. The ranges it leaves may be too large, never too small."""

    allowed: dict[str, set[Any]] = field(default_factory=dict)
    begin: int = 0
    end: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    @classmethod
    def of(cls, filters: list[Any]) -> "OffsetFilter":
        """Take from Spark's filters what can be used."""
        made = cls()
        for each in filters:
            kind, path = type(each).__name__, tuple(getattr(each, "attribute", ()))
            name = path[0] if len(path) == 1 else ""
            if name in _PLACES and kind in ("EqualTo", "In"):
                values = {each.value} if kind == "EqualTo" else set(each.value)
                made.allowed[name] = made.allowed.get(name, values) & values
            elif name == "offset":
                made._offset(kind, getattr(each, "value", None))
            elif name == "stored_at" and isinstance(getattr(each, "value", None), datetime.datetime):
                made._time(kind, each.value)
        return made

    def takes(self, queue: Queue) -> bool:
        """Whether messages of this queue can match."""
        return all(getattr(queue, name) in values for name, values in self.allowed.items())

    def cut(self, link: Link, queue: Queue, held: Range) -> Range:
        """The part of a range that can match."""
        begin = max(held.begin, self.begin)
        end = held.end if self.end is None else min(held.end, self.end)
        if begin < end and self.from_ms is not None:
            begin = max(begin, offset_at(link, queue, Range(begin, end), self.from_ms))
        if begin < end and self.to_ms is not None:
            end = min(end, offset_at(link, queue, Range(begin, end), self.to_ms))
        return Range(begin, max(begin, end))

    def _offset(self, kind: str, value: Any) -> None:
        if not isinstance(value, int):
            return
        if kind in _LOWER:
            self.begin = max(self.begin, value + _LOWER[kind])
        if kind in _UPPER:
            end = max(value + _UPPER[kind], 0)
            self.end = end if self.end is None else min(self.end, end)

    def _time(self, kind: str, value: datetime.datetime) -> None:
        moment = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        time_ms = int(moment.timestamp() * 1000)
        if kind in _LOWER:
            self.from_ms = max(self.from_ms or 0, time_ms)
        if kind in _UPPER:
            self.to_ms = min(self.to_ms, time_ms + 1) if self.to_ms is not None else time_ms + 1
