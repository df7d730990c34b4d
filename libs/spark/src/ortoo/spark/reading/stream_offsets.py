"""The position of a streaming query and the end of its next batch: a state machine without I/O.

A batch either reads offsets of one topic id, or it moves queues. A new queue is added at its first message. A queue of
a topic that was created again starts again, and a truncated queue moves back to its end. Moves are in the checkpoint
before anything is read from the new offsets, so that a repeated batch reads the same messages.

Spark requests the first offsets twice, and again if a query is restarted before its first batch was committed. The
first batch of a new query is therefore empty: it stores the start in the checkpoint.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ortoo.client import Queue
from ortoo.spark.core.offsets import Offsets
from ortoo.spark.reading.data_loss import Loss, refused
from ortoo.spark.reading.batch_limits import limited
from ortoo.spark.reading.topic_state import Range, TopicState

BytesLimit = Callable[[Mapping[Queue, int], Mapping[Queue, int]], int]
"""The number of messages between starts and ends that a byte limit allows."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one batch; 0 = no limit."""

    messages: int = 0
    messages_min: int = 0
    delay_max_s: float = 0.0
    """Longest wait for `messages_min`."""
    by_bytes: BytesLimit | None = None


Step = tuple[Offsets, tuple[Loss, ...]]
"""The end of the next batch, and the losses found."""


@dataclass(slots=True)
class StreamOffsets:
    """One run of a query. `policy` is fail, earliest or latest."""

    policy: str
    limits: Limits
    first: Offsets | None = None
    target: Offsets | None = None
    """The end of a query that only reads what was stored at its start."""
    _pinned: bool = False
    _told: set[tuple[Queue, int]] = field(default_factory=set)
    _waiting_since_s: float | None = None

    def pins(self, at: Offsets) -> bool:
        """Whether the next batch is the empty one that stores the start in the checkpoint."""
        if self.first is None or self._pinned:
            return False
        self._pinned = True
        return at == self.first

    def planned(self) -> None:
        """Record that a batch was planned or repeated, so that the start is in the checkpoint."""
        self._pinned = True

    def moves(self, at: Offsets, held: TopicState) -> bool:
        """Whether the state `held` moves a queue or shows lost messages."""
        moved, losses = self._moved(at, held)
        return bool(losses) or moved != at

    def next(self, at: Offsets, held: TopicState, now_s: float, *, everything: bool = False) -> Step:
        """The end of the batch after `at`, within the limits, or with `everything` without limits.

        Errors: DataLoss for the policy `fail`.
        """
        moved, losses = self._moved(at, held)
        if losses and self.policy == "fail":
            raise refused(losses[0])
        self._told.update((loss.queue, at.topic_ids.get(loss.queue.topic, 0)) for loss in losses)
        if moved != at:
            return moved, losses
        latest = {queue: self._end(queue, offset, held) for queue, offset in at.queues.items()}
        if everything:
            return Offsets(latest, at.topic_ids), losses
        if self.target is None and self._holds_back(sum(latest.values()) - sum(at.queues.values()), now_s):
            return at, losses
        if self.limits.messages:
            latest = limited(at.queues, latest, self.limits.messages)
        if self.limits.by_bytes is not None:
            latest = limited(at.queues, latest, self.limits.by_bytes(at.queues, latest))
        return Offsets(latest, at.topic_ids), losses

    def _moved(self, at: Offsets, held: TopicState) -> Step:
        """The offsets to continue from; those that are no longer stored are replaced."""
        queues: dict[Queue, int] = {}
        losses: list[Loss] = []
        renewed = {topic for topic, number in at.topic_ids.items() if held.topic_ids.get(topic, number) != number}
        for queue, offset in sorted(at.queues.items()):
            found = held.ranges.get(queue)
            if queue.topic in renewed:
                losses.append(Loss(queue, offset, None, "the topic was deleted and created again"))
                continue
            queues[queue] = offset
            if found is None and queue not in held.missing:
                # It stays among the offsets: a topic that is restored under its id continues at its offset.
                reason = "is no longer read" if queue.topic in held.topic_ids else "was deleted"
                what = "the queue" if queue.topic in held.topic_ids else "the topic"
                if (queue, at.topic_ids.get(queue.topic, 0)) not in self._told:
                    losses.append(Loss(queue, offset, None, f"{what} {reason}"))
            elif found is not None and offset > found.end:
                losses.append(Loss(queue, found.end, offset, f"the queue holds {found}; it was truncated"))
                queues[queue] = found.end
            elif found is not None and offset < found.begin:
                # The batch between the two offsets is planned like any other, and reports the loss.
                queues[queue] = found.end if self.policy == "latest" else found.begin
                if self.policy == "fail":
                    losses.append(Loss(queue, offset, found.begin, f"retention deleted them; it holds {found}"))
        for queue, found in held.ranges.items():
            if queue not in queues:
                skips = queue.topic in renewed and self.policy == "latest"
                queues[queue] = found.end if skips else found.begin
        return Offsets(queues, {**at.topic_ids, **held.topic_ids}), tuple(losses)

    def _end(self, queue: Queue, offset: int, held: TopicState) -> int:
        """The readable end of a queue; the current offset if its enode is down."""
        found, target = held.ranges.get(queue), self.target
        if found is None:
            return offset
        if target is None:
            return max(found.end, offset)
        is_meant = target.topic_ids.get(queue.topic) == held.topic_ids.get(queue.topic)
        return max(min(found.end, target.queues.get(queue, offset)), offset) if is_meant else offset

    def _holds_back(self, new: int, now_s: float) -> bool:
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


def ranges(start: Offsets, end: Offsets) -> dict[Queue, Range]:
    """The ranges that a batch reads. Moved queues (new, with another topic id, or truncated) are not read."""
    return {
        queue: Range(start.queues[queue], stop)
        for queue, stop in end.queues.items()
        if stop > start.queues.get(queue, stop)
        and start.topic_ids.get(queue.topic, 0) in (0, end.topic_ids.get(queue.topic, 0))
    }
