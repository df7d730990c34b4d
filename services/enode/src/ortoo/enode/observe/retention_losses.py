"""Counts the messages that retention deleted before a group finished them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ortoo.common.groups.group_topics import REPLAY_PREFIX, group_of_retry_topic
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.enode import log_events
from ortoo.enode.log.queue_index import QueueKey
from ortoo.enode.state.tables.pops import PopQueue
from ortoo.enode.store.store import Store

_log = get_logger("retention")


@dataclass(frozen=True, slots=True)
class LossTotal:
    """The messages of one topic that one group lost."""

    messages: int = 0
    at_ms: int = 0
    """The time of the last loss; 0 = it was before this process started."""


@dataclass(slots=True)
class RetentionLosses:
    """The losses of each group since this process started.

    The count begins with the messages that were lost before and that the group has not passed yet. The log has no
    record of losses that a group has passed, so a restart forgets them.
    """

    store: Store
    clock: Clock
    totals: dict[tuple[int, str], LossTotal] = field(default_factory=dict)
    """(topic id, group) to its losses."""

    def __post_init__(self) -> None:
        """Count the losses that the state still shows, and follow retention."""
        trims = self.store.engine.state.trims
        self._add({key: trims.of(*key) for key in self.store.engine.catalog.queues}, at_ms=0)
        self.store.engine.housekeeping.on_deleted = self._on_deleted

    def _on_deleted(self, begins: Mapping[QueueKey, int]) -> None:
        for (topic_id, group), count in self._add(begins, at_ms=self.clock.now_ms()).items():
            topic = self.store.topic(topic_id)
            name = topic.name if topic is not None else str(topic_id)
            _log.emit(log_events.RETENTION_DELETED_UNREAD, group=group, topic=name, messages=count)

    def _add(self, begins: Mapping[QueueKey, int], *, at_ms: int) -> dict[tuple[int, str], int]:
        """Add the unfinished messages between the previous begin of each queue and its begin now."""
        engine, added = self.store.engine, dict[tuple[int, str], int]()
        owners = {copy.topic_id: group_of_retry_topic(copy.name) for copy in engine.state.topics.all()}
        for (topic_id, queue_id), begin in begins.items():
            queue = engine.catalog.queues.get((topic_id, queue_id))
            if queue is None or queue.begin_offset <= begin or topic_id not in owners:
                continue
            offsets = engine.state.offsets.of_topic(topic_id)
            starts = {group: rows[queue_id][0] for group, rows in offsets.items() if queue_id in rows}
            if owner := owners[topic_id]:
                starts.setdefault(owner, 0)
            for group, offset in starts.items():
                popped = engine.state.pops.get((topic_id, group, queue_id)) or PopQueue(offset)
                pieces = popped.intervals.unfinished(begin, queue.begin_offset)
                count = sum(piece.end - piece.first for piece in pieces)
                if count and not group.startswith(REPLAY_PREFIX):
                    added[topic_id, group] = added.get((topic_id, group), 0) + count
        for key, count in added.items():
            self.totals[key] = LossTotal(self.totals.get(key, LossTotal()).messages + count, at_ms)
        return added
