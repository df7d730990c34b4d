"""What a consumer holds of one queue, from pull to processed: pure bookkeeping.

Messages are taken in order and may finish in any order; the offset to commit is the smallest that is not finished.
"""

from collections import deque
from collections.abc import Sequence

from ortoo.client.core.place import Queue
from ortoo.client.core.progress import BatchProgress, QueueProgress
from ortoo.client.core.received import ReceivedBatch, ReceivedMessage
from ortoo.client.pull.flow_control import Held


class ProcessQueue:
    """One queue under one ownership. What it held is worth nothing once it is dropped: its next owner gets it."""

    def __init__(self, queue: Queue, start_offset: int, generation: int = 0) -> None:
        """Begin at `start_offset`, under a lock's `generation`; 0 = without a lock."""
        self.queue = queue
        self.generation = generation
        self.next_offset = start_offset
        """Where to pull next."""
        self.is_dropped = False
        self.pulled_at_s = 0.0
        """When it was last pulled, on the monotonic clock."""
        self.epoch = 0
        """Grows when it begins anew elsewhere; what was pulled before is worth nothing then."""
        self.is_restarted = False
        """Whether it began anew since its offset was taken last."""
        self.running = 0
        """How many of its messages handlers have now."""
        self._progress = QueueProgress(start_offset)
        self._waiting: deque[tuple[ReceivedBatch, int]] = deque()
        """Messages that were not taken yet: each batch with the place of its first one."""
        self._newest = start_offset

    @property
    def commit_offset(self) -> int:
        """Everything before is processed."""
        return self._progress.floor_offset

    @property
    def held(self) -> Held:
        """What is held and not finished."""
        progress = self._progress
        oldest = progress.oldest_offset
        return Held(progress.messages, progress.size_bytes, 0 if oldest is None else self._newest - oldest)

    @property
    def has_waiting(self) -> bool:
        """Whether a message waits to be taken."""
        return bool(self._waiting) and not self.is_dropped

    def put(self, batch: ReceivedBatch) -> None:
        """A batch was pulled, after those before it."""
        self._progress.deliver(batch.progress)
        self._waiting.append((batch, 0))
        self._newest = batch.offset(len(batch) - 1)
        self.next_offset = batch.next_offset

    def move_on(self, next_offset: int) -> None:
        """Nothing before `next_offset` was wanted."""
        if next_offset > self.next_offset:
            self._progress.deliver(BatchProgress([], next_offset))
            self.next_offset = next_offset

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """The next messages of one batch, at most so many; none when all are taken or the queue is dropped."""
        if not self.has_waiting:
            return []
        batch, at = self._waiting.popleft()
        end = min(len(batch), at + count_max)
        if end < len(batch):
            self._waiting.appendleft((batch, end))
        return [batch[place] for place in range(at, end)]

    def take_batch(self) -> ReceivedBatch | None:
        """The next whole batch; None when all are taken or the queue is dropped."""
        return self._waiting.popleft()[0] if self.has_waiting else None

    def finished(self, epoch: int, batch: ReceivedBatch, count: int) -> None:
        """So many messages of a batch, pulled in `epoch`, were acknowledged."""
        if epoch == self.epoch:
            self._progress.finished(batch.progress, count)

    def restart(self, offset: int) -> None:
        """Go on at another offset and forget what is held."""
        self.epoch += 1
        self.is_restarted = True
        self.next_offset = offset
        self._progress = QueueProgress(offset)
        self._waiting.clear()

    def drop(self) -> None:
        """It has another owner from now on."""
        self.is_dropped = True
        self._waiting.clear()


def in_order(queues: Sequence[ProcessQueue], after: Queue | None) -> Sequence[ProcessQueue]:
    """The queues in turn, beginning behind the one that was last served, so that a full one does not starve others."""
    ordered = sorted(queues, key=lambda it: it.queue)
    if after is None:
        return ordered
    cut = next((at for at, it in enumerate(ordered) if it.queue > after), 0)
    return [*ordered[cut:], *ordered[:cut]]
