"""Committed offsets of groups."""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from ortoo.common.errors import Fenced
from ortoo.common.groups.sinks import is_sink_group
from ortoo.enode.changes.kinds import OffsetRows, OffsetsCommitted, QueueTrimmed
from ortoo.enode.state.table import GroupTable, split_rows


class GroupOffsetTable(GroupTable[dict[int, tuple[int, int]]]):
    """The table of the last commits: topic id to group to queue id to (next offset, generation)."""

    def of(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, int]:
        """A group's next offset by queue id, without queues that have no offset. Empty `queue_ids` = all queues."""
        rows = self._of(topic_id, group)
        wanted = tuple(queue_ids) or sorted(rows)
        return {queue_id: rows[queue_id][0] for queue_id in wanted if queue_id in rows}

    def groups(self, topic_id: int) -> list[str]:
        """The groups with an offset in this topic, sorted."""
        return sorted(self._topics.get(topic_id, ()))

    def of_topic(self, topic_id: int) -> Mapping[str, Mapping[int, tuple[int, int]]]:
        """Group to queue id to (next offset, generation); the caller must not change the mapping."""
        return self._topics.get(topic_id, {})

    def generation(self, topic_id: int, group: str, queue_id: int) -> int:
        """The newest generation that committed to this queue; 0 = none."""
        return self._of(topic_id, group).get(queue_id, (0, 0))[1]

    def is_passed_by_all(self, topic_id: int, queue_id: int, offset: int, owner: str | None = None) -> bool:
        """Whether all groups with offsets in the topic have reached `offset` in this queue. Sinks consume nothing.

        `owner` is the group of a retry topic. If it has an offset in another topic only, it still has to consume this
        one.
        """
        groups = self._topics.get(topic_id, {})
        if owner is not None and not groups.get(owner) and any(one.get(owner) for one in self._topics.values()):
            return False
        consuming = [rows for name, rows in groups.items() if rows and not is_sink_group(name)]
        return all(queue_id in rows and rows[queue_id][0] >= offset for rows in consuming)

    def set_floor(self, topic_id: int, group: str, queue_id: int, offset: int) -> None:
        """Set the offset of a popping group to its floor."""
        rows = self._topics.setdefault(topic_id, {}).setdefault(group, {})
        rows[queue_id] = (offset, rows.get(queue_id, (0, 0))[1])

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes."""
        for topic_id, group, rows in self.iterate_live():
            for part in split_rows([(queue_id, *row) for queue_id, row in sorted(rows.items())]):
                yield OffsetRows(topic_id, group, part).encoded()

    def _of(self, topic_id: int, group: str) -> dict[int, tuple[int, int]]:
        return self._topics.get(topic_id, {}).get(group, {})

    def _commit(self, change: OffsetsCommitted) -> None:
        rows = self._topics.setdefault(change.topic_id, {}).setdefault(change.group, {})
        for queue_id, offset in change.offsets:
            rows[queue_id] = (offset, change.generation or rows.get(queue_id, (0, 0))[1])

    def _load(self, change: OffsetRows) -> None:
        rows = self._topics.setdefault(change.topic_id, {}).setdefault(change.group, {})
        rows.update({queue_id: (offset, generation) for queue_id, offset, generation in change.rows})

    def _trim(self, change: QueueTrimmed) -> None:
        for rows in self._topics.get(change.topic_id, {}).values():
            offset, generation = rows.get(change.queue_id, (change.begin_offset, 0))
            if offset < change.begin_offset:
                rows[change.queue_id] = (change.begin_offset, generation)

    FOLDS: ClassVar = {OffsetsCommitted: _commit, OffsetRows: _load, QueueTrimmed: _trim}


class GenerationReservations:
    """Generations of commits that are not durable yet: fencing considers them, readers do not."""

    def __init__(self) -> None:
        """Begin empty."""
        self._generations: dict[tuple[int, str, int], list[int]] = {}

    def check(
        self, offsets: GroupOffsetTable, topic_id: int, group: str, queue_ids: Iterable[int], generation: int
    ) -> None:
        """Refuse a commit of an older assignment. Errors: Fenced, with the queue and both generations."""
        if not generation:
            return
        for queue_id in queue_ids:
            in_flight = self._generations.get((topic_id, group, queue_id), ())
            newest = max(offsets.generation(topic_id, group, queue_id), *in_flight, 0)
            if generation < newest:
                raise Fenced(
                    f"queue {queue_id} was committed by generation {newest}, this commit is of {generation}: another "
                    "group member owns the queue now",
                    field="generation",
                )

    def reserve(self, topic_id: int, group: str, offsets: Mapping[int, int], generation: int) -> None:
        """Record the generation of an accepted commit until the commit is durable."""
        if generation:
            for queue_id in offsets:
                self._generations.setdefault((topic_id, group, queue_id), []).append(generation)

    def release(self, change: OffsetsCommitted) -> None:
        """Remove a commit that is durable and folded."""
        if change.generation:
            for queue_id, _ in change.offsets:
                key = (change.topic_id, change.group, queue_id)
                waiting = self._generations.get(key, [])
                if change.generation in waiting:
                    waiting.remove(change.generation)
                if not waiting:
                    self._generations.pop(key, None)
