"""Conditions of a query that become less to read: tags for the broker; queues, offsets and times for the plan."""

import datetime
import re
from dataclasses import dataclass, field
from typing import Any

from ortoo.client import Filter, Queue, Sql
from ortoo.spark.core.link import Link
from ortoo.spark.reading.topic_state import Range, offset_at

_IS_PLAIN = re.compile(r"[^|*\s](?:[^|]*[^|\s])?").fullmatch
"""Tags that mean themselves in a tag expression."""
_PLACES = ("topic", "enode", "queue_id")
_LOWER = {"GreaterThan": 1, "GreaterThanOrEqual": 0, "EqualTo": 0}
_UPPER = {"LessThan": 0, "LessThanOrEqual": 1, "EqualTo": 1}


@dataclass(slots=True)
class OffsetFilter:
    """What conditions say about tags, queues, offsets and times."""

    allowed: dict[str, set[Any]] = field(default_factory=dict)
    begin: int = 0
    end: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def take(self, condition: Any) -> bool:
        """Use one of Spark's conditions; whether that is exact, so that Spark need not look at it again."""
        kind, path = type(condition).__name__, tuple(getattr(condition, "attribute", ()))
        name = path[0] if len(path) == 1 else ""
        value: Any = getattr(condition, "value", None)
        if kind in ("EqualTo", "In") and (name in _PLACES or name == "tag"):
            values = {value} if kind == "EqualTo" else set(value) - {None}
            if name == "tag" and not all(_IS_PLAIN(each) for each in values):
                return False
            self.allowed[name] = self.allowed.get(name, values) & values
            return True
        if kind == "IsNotNull":
            return name in (*_PLACES, "offset", "stored_at")
        if name == "offset" and isinstance(value, int):
            return self._offset(kind, value)
        if name == "stored_at" and isinstance(value, datetime.datetime):
            self._time(kind, value)  # to the millisecond: Spark looks again
        return False

    def wanted(self, given: Filter) -> Filter:
        """What the broker shall send: the tags of the conditions, and what the options say. No tag left = no queue."""
        tags = self.allowed.get("tag")
        if tags is None:
            return given
        if isinstance(given, Sql):
            names = ", ".join(sorted("'" + tag.replace("'", "''") + "'" for tag in tags))
            return Sql(f"({given.expression}) AND TAGS IN ({names})") if tags else given
        if given not in ("", "*"):
            tags = self.allowed["tag"] = tags & {tag.strip() for tag in given.split("||")}
        return " || ".join(sorted(tags)) or given

    def takes(self, queue: Queue) -> bool:
        """Whether messages of this queue can match."""
        return all(
            getattr(queue, name) in values if name in _PLACES else bool(values) for name, values in self.allowed.items()
        )

    def cut(self, link: Link, queue: Queue, held: Range) -> Range:
        """The part of a range that can match."""
        begin = max(held.begin, self.begin)
        end = held.end if self.end is None else min(held.end, self.end)
        if begin < end and self.from_ms is not None:
            begin = max(begin, offset_at(link, queue, Range(begin, end), self.from_ms))
        if begin < end and self.to_ms is not None:
            end = min(end, offset_at(link, queue, Range(begin, end), self.to_ms))
        return Range(begin, max(begin, end))

    def _offset(self, kind: str, value: int) -> bool:
        if kind in _LOWER:
            self.begin = max(self.begin, value + _LOWER[kind])
        if kind in _UPPER:
            end = max(value + _UPPER[kind], 0)
            self.end = end if self.end is None else min(self.end, end)
        return kind in _LOWER or kind in _UPPER

    def _time(self, kind: str, value: datetime.datetime) -> None:
        moment = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        time_ms = int(moment.timestamp() * 1000)
        if kind in _LOWER:
            self.from_ms = max(self.from_ms or 0, time_ms)
        if kind in _UPPER:
            self.to_ms = min(self.to_ms, time_ms + 1) if self.to_ms is not None else time_ms + 1
