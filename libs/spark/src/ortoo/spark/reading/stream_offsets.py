"""The position of a streaming query and the end of its next batch: a state machine without I/O.

For each queue, a batch either reads offsets of one topic id or *moves* the queue. A new queue is moved to its first
message, and a queue of a topic that was created again to its start. A truncated queue is moved back to its end. A move
is in the checkpoint before messages are read from the new offset, so that a repeated batch reads the same messages.

The checkpoint has only the ends of batches. The end of the first batch therefore also has its start.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ortoo.client import Queue
from ortoo.spark.core.offsets import SourceOffsets
from ortoo.spark.reading.batch_limits import BytesLimit, limit_offsets
from ortoo.spark.reading.data_loss import Loss, data_loss_error
from ortoo.spark.reading.topic_state import OffsetSpan, TopicState


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The limits of one batch of a stream; 0 = no limit."""

    messages: int = 0
    messages_min: int = 0
    delay_max_s: float = 0.0
    """Longest wait for `messages_min`."""
    by_bytes: BytesLimit | None = None


OffsetStep = tuple[SourceOffsets, tuple[Loss, ...]]
"""The end of the next batch, and the losses found."""


@dataclass(slots=True)
class StreamOffsets:
    """Plans the offsets of a query's batches. `policy` is the reaction to lost messages: fail, earliest or latest."""

    policy: str
    limits: StreamLimits
    reads: Callable[[str], bool] = lambda topic: True
    """Whether the options name a topic."""
    target: SourceOffsets | None = None
    """The end of a query that only reads what was stored at its start."""
    _reported: set[tuple[Queue, int]] = field(default_factory=set)
    _waiting_since_s: float | None = None

    def is_moving(self, at: SourceOffsets, state: TopicState) -> bool:
        """Whether the next batch after `at` only moves offsets or reports losses, because queues are new or changed."""
        moved, losses = self._move(at, state)
        return bool(losses) or moved != at

    def next(self, at: SourceOffsets, state: TopicState, now_s: float, *, unlimited: bool = False) -> OffsetStep:
        """The end of the batch that begins at `at`, and the losses found; `unlimited` ignores the limits.

        Errors: DataLoss under the policy `fail`.
        """
        moved, losses = self._move(at, state)
        if losses and self.policy == "fail":
            raise data_loss_error(losses[0])
        self._reported.update((loss.queue, at.topic_ids.get(loss.queue.topic, 0)) for loss in losses)
        if moved != at:
            return moved, losses
        latest = {queue: self._end(queue, offset, state) for queue, offset in at.queues.items()}
        if unlimited:
            return SourceOffsets(latest, at.topic_ids), losses
        if self.target is None and self._must_wait(sum(latest.values()) - sum(at.queues.values()), now_s):
            return at, losses
        if self.limits.messages:
            latest = limit_offsets(at.queues, latest, self.limits.messages)
        if self.limits.by_bytes is not None:
            latest = self.limits.by_bytes.limit(at.queues, latest)
        return SourceOffsets(latest, at.topic_ids), losses

    def _move(self, at: SourceOffsets, state: TopicState) -> OffsetStep:
        """The offsets to continue from. Offsets that are no longer stored are replaced."""
        queues: dict[Queue, int] = {}
        losses: list[Loss] = []
        renewed = {topic for topic, number in at.topic_ids.items() if state.topic_ids.get(topic, number) != number}
        for queue, offset in sorted(at.queues.items()):
            stored = state.ranges.get(queue)
            if queue.topic in renewed:
                losses.append(Loss(queue, offset, None, "the topic was deleted and created again"))
                continue
            queues[queue] = offset
            if stored is None and queue not in state.unavailable:
                topic_id = at.topic_ids.get(queue.topic, 0)
                if (queue, topic_id) not in self._reported:
                    losses.append(Loss(queue, offset, None, self._reason_missing(queue.topic, state)))
                if self._is_gone(queue.topic, topic_id, state):
                    del queues[queue]
            elif stored is not None and offset > stored.end:
                losses.append(Loss(queue, stored.end, offset, f"the queue holds {stored}; it was truncated"))
                queues[queue] = stored.end
            elif stored is not None and offset < stored.begin:
                # The batch between the two offsets is planned like any other, and reports the loss.
                queues[queue] = stored.end if self.policy == "latest" else stored.begin
                if self.policy == "fail":
                    losses.append(Loss(queue, offset, stored.begin, f"retention deleted them; it holds {stored}"))
        for queue, stored in state.ranges.items():
            if queue not in queues:
                skips = queue.topic in renewed and self.policy == "latest"
                queues[queue] = stored.end if skips else stored.begin
        kept = {queue.topic for queue in queues}
        ids = {topic: number for topic, number in at.topic_ids.items() if topic in kept}
        return SourceOffsets(queues, {**ids, **state.topic_ids}), tuple(losses)

    def _reason_missing(self, topic: str, state: TopicState) -> str:
        if topic in state.topic_ids:
            return "the queue is no longer read"
        return "the topic was deleted" if self.reads(topic) else "the options of this query no longer name its topic"

    def _is_gone(self, topic: str, topic_id: int, state: TopicState) -> bool:
        """Whether a topic was deleted and cannot be restored. Other topics may continue at their offsets."""
        return topic not in state.topic_ids and topic_id in state.gone

    def deleted(self, at: SourceOffsets, state: TopicState) -> set[int]:
        """The ids of deleted topics that the offsets have."""
        return {number for topic, number in at.topic_ids.items() if topic not in state.topic_ids and self.reads(topic)}

    def _end(self, queue: Queue, offset: int, state: TopicState) -> int:
        """The readable end of a queue; the current offset if its enode is down."""
        stored, target = state.ranges.get(queue), self.target
        if stored is None:
            return offset
        if target is None:
            return max(stored.end, offset)
        is_meant = target.topic_ids.get(queue.topic) == state.topic_ids.get(queue.topic)
        return max(min(stored.end, target.queues.get(queue, offset)), offset) if is_meant else offset

    def lacks_enode(self, at: SourceOffsets, state: TopicState) -> bool:
        """Whether a query with a target has messages to read on an enode that is down. Without a wait it would end."""
        ends = self.target.queues if self.target is not None else {}
        return any(at.queues.get(queue, 0) < ends.get(queue, 0) for queue in state.unavailable)

    def _must_wait(self, new: int, now_s: float) -> bool:
        """Whether to wait for more messages."""
        if new == 0 or new >= self.limits.messages_min:
            self._waiting_since_s = None
            return False
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        if now_s - self._waiting_since_s < self.limits.delay_max_s:
            return True
        self._waiting_since_s = None
        return False


def ranges(start: SourceOffsets, end: SourceOffsets) -> dict[Queue, OffsetSpan]:
    """The ranges that a batch reads.

    Queues whose offset the batch only moves are left out: new, recreated or truncated queues.
    """
    return {
        queue: OffsetSpan(start.queues[queue], stop)
        for queue, stop in end.queues.items()
        if stop > start.queues.get(queue, stop)
        and start.topic_ids.get(queue.topic, 0) in (0, end.topic_ids.get(queue.topic, 0))
    }
