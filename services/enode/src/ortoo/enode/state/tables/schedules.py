"""The schedules of topics. Pure: no clock, no disk, no randomness."""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from ortoo.enode.changes.schedules import ScheduleAdvanced, ScheduleDeleted, SchedulePut
from ortoo.enode.state.table import KeyedTable

ROW_BYTES = 512
"""The size of a message that costs a checkpoint as much as a usual row."""


class ScheduleTable(KeyedTable[str, SchedulePut]):
    """Each schedule by (topic id, name)."""

    def get(self, topic_id: int, name: str) -> SchedulePut | None:
        """A schedule, if it exists."""
        return self._topics.get(topic_id, {}).get(name)

    def of_topic(self, topic_id: int) -> list[SchedulePut]:
        """The schedules of a topic."""
        return list(self._topics.get(topic_id, {}).values())

    def all(self) -> list[SchedulePut]:
        """The schedules of all topics."""
        return [one for _, _, one in self.entries()]

    @property
    def rows(self) -> int:
        """The approximate number of rows; a large message counts as several."""
        return sum(1 + len(one.records) // ROW_BYTES for one in self.all())

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes."""
        for _, _, one in self.iterate_live():
            yield one.encoded()

    def _put(self, change: SchedulePut) -> None:
        self._topics.setdefault(change.topic_id, {})[change.name] = change

    def _advance(self, change: ScheduleAdvanced) -> None:
        known = self.get(change.topic_id, change.name)
        if known is not None:
            self._put(replace(known, settled_ms=change.settled_ms, sent_count=change.sent_count))

    def _delete(self, change: ScheduleDeleted) -> None:
        names = self._topics.get(change.topic_id, {})
        names.pop(change.name, None)
        if not names:
            self._topics.pop(change.topic_id, None)

    FOLDS: ClassVar = {SchedulePut: _put, ScheduleAdvanced: _advance, ScheduleDeleted: _delete}
