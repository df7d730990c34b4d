"""The unprocessed messages of one assigned queue, without I/O.

Messages are taken in order and may finish in any order. The commit offset is the smallest unfinished offset.
"""

from collections import deque
from collections.abc import Callable, Sequence

from ortoo.client.core.progress import BatchProgress, QueueProgress
from ortoo.client.core.queues import Queue
from ortoo.client.core.received import ReceivedBatch, ReceivedMessage
from ortoo.client.pull.flow_control import BufferedMessages


class ProcessQueue:
    """One queue during one assignment. After `drop` its messages are ignored, because the next owner receives them."""

    def __init__(self, queue: Queue, start_offset: int, generation: int = 0) -> None:
        """Start at `start_offset`, with a lock's `generation`; 0 = without a lock."""
        self.queue = queue
        self.generation = generation
        self.start_offset = start_offset
        self.next_offset = start_offset
        """The next offset to pull."""
        self.is_dropped = False
        self.pulled_at_s = 0.0
        """Time of the last pull, on the monotonic clock."""
        self.epoch = 0
        """Incremented by `reset`; results of earlier pulls are ignored then."""
        self.was_reset = False
        """Whether it was restarted since the last commit."""
        self.running_handlers = 0
        """Number of its messages in handlers."""
        self.on_progress: Callable[[], object] = lambda: None
        """Called when messages are finished, if the server waits for their commit."""
        self.is_commit_awaited = False
        """Whether the server waits for the commit of the pulled messages before it returns more."""
        self._progress = QueueProgress(start_offset)
        self._waiting: deque[tuple[ReceivedBatch, int]] = deque()
        """Messages not taken yet: each batch with the index of its first one."""
        self._newest_offset = start_offset

    @property
    def commit_offset(self) -> int:
        """The offset to commit. All offsets before it are processed."""
        return self._progress.commit_offset

    @property
    def buffered(self) -> BufferedMessages:
        """The unfinished messages."""
        progress = self._progress
        oldest = progress.first_unfinished_offset
        return BufferedMessages(
            progress.messages, progress.size_bytes, 0 if oldest is None else self._newest_offset - oldest
        )

    @property
    def has_waiting(self) -> bool:
        """Whether a message waits to be taken."""
        return bool(self._waiting) and not self.is_dropped

    def put(self, batch: ReceivedBatch) -> None:
        """Add a pulled batch that follows all earlier ones."""
        self._progress.add_batch(batch.progress)
        self._waiting.append((batch, 0))
        self._newest_offset = batch.offset(len(batch) - 1)
        self.next_offset = batch.next_offset

    def advance(self, next_offset: int) -> None:
        """Advance to `next_offset` over messages that were filtered out."""
        if next_offset > self.next_offset:
            self._progress.add_batch(BatchProgress([], next_offset))
            self.next_offset = next_offset

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """The next messages of one batch, at most `count_max`; empty when no message waits or the queue is dropped."""
        if not self.has_waiting:
            return []
        batch, at = self._waiting.popleft()
        end = min(len(batch), at + count_max)
        if end < len(batch):
            self._waiting.appendleft((batch, end))
        return [batch[place] for place in range(at, end)]

    def take_batch(self) -> ReceivedBatch | None:
        """The next whole batch; None when all batches are taken or the queue is dropped."""
        return self._waiting.popleft()[0] if self.has_waiting else None

    def on_finished(self, epoch: int, batch: ReceivedBatch, count: int) -> None:
        """Count acknowledged messages of a batch pulled in `epoch`; a reset begins another epoch and ignores them."""
        if epoch == self.epoch:
            self._progress.finish(batch.progress, count)
            if self.is_commit_awaited:
                self.on_progress()

    def reset(self, offset: int) -> None:
        """Continue at another offset and drop the unfinished messages."""
        self.epoch += 1
        self.was_reset = True
        self.start_offset = self.next_offset = offset
        self._progress = QueueProgress(offset)
        self._waiting.clear()

    def drop(self) -> None:
        """Stop processing, because the queue gets another owner."""
        self.is_dropped = True
        self._waiting.clear()


def round_robin(queues: Sequence[ProcessQueue], after: Queue | None) -> Sequence[ProcessQueue]:
    """The queues in turn, starting after the queue served last, so that a full queue does not starve others."""
    ordered = sorted(queues, key=lambda it: it.queue)
    if after is None:
        return ordered
    start = next((at for at, it in enumerate(ordered) if it.queue > after), 0)
    return [*ordered[start:], *ordered[:start]]
