"""Where a streaming query is and how far its next batch goes: a pure state machine over what topics hold.

A batch either reads from an offset to another one of the same topic id, or it moves a queue: a queue that is new enters
with its first message, one of a topic that was created again starts anew, one that lost its end goes back to it. What
moves is in the checkpoint before anything is read from there, so a repeated batch reads what it read before.

Spark asks for the first offsets twice, and again when a query is started anew before its first batch was committed. So
the first batch of a new query is empty: it fixes the start in the checkpoint, and from then on nobody asks again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ortoo.client import Queue
from ortoo.spark.core.offsets import Offsets
from ortoo.spark.reading.data_loss import Loss, refused
from ortoo.spark.reading.limits import limited
from ortoo.spark.reading.topic_state import Range, TopicState

BytesLimit = Callable[[Mapping[Queue, int], Mapping[Queue, int]], int]
"""How many messages between these starts and ends are allowed by their bytes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one batch may hold. 0 = anything."""

    messages: int = 0
    messages_min: int = 0
    delay_max_s: float = 0.0
    """For how long fewer than `messages_min` are held back."""
    by_bytes: BytesLimit | None = None


Step = tuple[Offsets, tuple[Loss, ...]]
"""The end of the next batch, and what was found to be lost on the way."""


@dataclass(slots=True)
class StreamOffsets:
    """One run of a query. `policy` is fail, earliest or latest."""

    policy: str
    limits: Limits
    first: Offsets | None = None
    target: Offsets | None = None
    """Where the query ends, when it only takes what was there at its beginning."""
    _pinned: bool = False
    _told: set[tuple[Queue, int]] = field(default_factory=set)
    _waiting_since_s: float | None = None

    def pins(self, at: Offsets) -> bool:
        """Whether the next batch is the empty one that fixes the start in the checkpoint."""
        if self.first is None or self._pinned:
            return False
        self._pinned = True
        return at == self.first

    def planned(self) -> None:
        """A batch is planned, or one of an earlier run is repeated: the start is in the checkpoint."""
        self._pinned = True

    def moves(self, at: Offsets, held: TopicState) -> bool:
        """Whether what is held, if it is true, moves a queue or loses messages."""
        moved, losses = self._moved(at, held)
        return bool(losses) or moved != at

    def next(self, at: Offsets, held: TopicState, now_s: float, *, everything: bool = False) -> Step:
        """How far the batch behind `at` goes: within the limits, or with `everything` without any.

        Errors: DataLoss under the policy fail.
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
        """Where reading can go on: offsets that are not there any more are replaced by ones that are."""
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
                # It stays among the offsets: a topic that comes back under its id goes on where it was.
                reason = "is not read any more" if queue.topic in held.topic_ids else "was deleted"
                what = "the queue" if queue.topic in held.topic_ids else "the topic"
                if (queue, at.topic_ids.get(queue.topic, 0)) not in self._told:
                    losses.append(Loss(queue, offset, None, f"{what} {reason}"))
            elif found is not None and offset > found.end:
                losses.append(Loss(queue, found.end, offset, f"the queue holds {found}; it was cut"))
                queues[queue] = found.end
            elif found is not None and offset < found.begin:
                # The batch that goes from here to there is planned like any other, and tells what is lost.
                queues[queue] = found.end if self.policy == "latest" else found.begin
                if self.policy == "fail":
                    losses.append(Loss(queue, offset, found.begin, f"retention took them; it holds {found}"))
        for queue, found in held.ranges.items():
            if queue not in queues:
                skips = queue.topic in renewed and self.policy == "latest"
                queues[queue] = found.end if skips else found.begin
        return Offsets(queues, {**at.topic_ids, **held.topic_ids}), tuple(losses)

    def _end(self, queue: Queue, offset: int, held: TopicState) -> int:
        """How far a queue could be read: one of an enode that is away stays where it is."""
        found, target = held.ranges.get(queue), self.target
        if found is None:
            return offset
        if target is None:
            return max(found.end, offset)
        is_meant = target.topic_ids.get(queue.topic) == held.topic_ids.get(queue.topic)
        return max(min(found.end, target.queues.get(queue, offset)), offset) if is_meant else offset

    def _holds_back(self, new: int, now_s: float) -> bool:
        """Whether to wait for more, until the time for that is over."""
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
    """What a batch reads. Queues that it moves (new ones, other topic ids, ends that went back) it does not read."""
    return {
        queue: Range(start.queues[queue], stop)
        for queue, stop in end.queues.items()
        if stop > start.queues.get(queue, stop)
        and start.topic_ids.get(queue.topic, 0) in (0, end.topic_ids.get(queue.topic, 0))
    }
