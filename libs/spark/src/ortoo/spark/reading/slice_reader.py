"""Reading one task's slices: exactly the offsets that were planned, or an error, or a loss that is counted."""

from collections.abc import Iterator, Sequence

from ortoo.client import Filter, Queue, ReceivedBatch
from ortoo.client.offsets.queue_starts import offset_ranges
from ortoo.common.errors import DataLoss, NotFound, OrtooError, OutOfRange, Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.spark.core import log_events
from ortoo.spark.core.link import Link
from ortoo.spark.reading.data_loss import Loss, readable
from ortoo.spark.reading.planning import Slice
from ortoo.spark.reading.topic_state import Range

_RETRY_S = 0.5
_log = get_logger("spark")


def read_slice(
    link: Link, rest: "Remainder", *, columns: Sequence[str], wanted: Filter, timeout_ms: int
) -> Iterator[ReceivedBatch]:
    """The batches of one slice, all of it: a read that breaks goes on where it was until the time is over."""
    queue = rest.part.queue
    deadline_s = link.clock.monotonic_s() + timeout_ms / 1000
    while rest.begin < rest.end:
        problem: OrtooError = OutOfRange(f"reading stopped before {rest.end}")
        rest.passed.clear()
        try:
            for received in link.fetch(queue, rest.begin, rest.end, columns, wanted, rest.hear):
                if rest.is_another(received.topic_id):
                    break
                rest.begin = received.next_offset
                deadline_s = link.clock.monotonic_s() + timeout_ms / 1000
                yield received
        except OrtooError as error:
            problem = error
        if rest.catch_up():
            deadline_s = link.clock.monotonic_s() + timeout_ms / 1000
        if rest.begin >= rest.end or rest.go_on_after(problem):
            continue
        if link.clock.monotonic_s() > deadline_s:
            raise Unavailable(
                f"queue {queue.queue_id} of {queue.topic} on {queue.enode} could not be read at offset "
                f"{rest.begin} for {timeout_ms / 1000:.0f} s: {problem}; the option fetchTimeoutMs says how long to try"
            )
        link.sleep(_RETRY_S)


class Remainder:
    """What is left of a slice."""

    def __init__(self, link: Link, part: Slice, policy: str) -> None:
        self.part = part
        self.begin, self.end = part.begin, part.end
        self.recreated = False
        self.passed: list[tuple[int, int]] = []
        """The last answer, also one without messages that are wanted: the next offset and the topic's id."""
        self._link = link
        self._queue = part.queue
        self._policy = policy

    def hear(self, next_offset: int, topic_id: int) -> None:
        """An answer came. Called by another thread."""
        self.passed = [(next_offset, topic_id)]

    def is_another(self, topic_id: int) -> bool:
        """Whether an answer came from a topic that was created later under the name."""
        self.recreated = self.recreated or self.part.topic_id not in (0, topic_id)
        return self.recreated

    def catch_up(self) -> bool:
        """All that came is taken: go on behind the last answer. Whether that is further than the last batch."""
        for next_offset, topic_id in self.passed:
            if not self.is_another(topic_id) and next_offset > self.begin:
                self.begin = next_offset
                return True
        return False

    def go_on_after(self, problem: OrtooError) -> bool:
        """Move behind what is lost; False if nothing is lost and trying again is all that can be done.

        Errors: DataLoss as the policy says; the problem itself when it is of another kind.
        """
        if isinstance(problem, DataLoss):
            # Bytes that cannot be read any more: the error says where reading can go on.
            if self._policy == "fail" or problem.end_offset <= self.begin:
                raise problem
            self._lost(Loss(self._queue, self.begin, min(problem.end_offset, self.end), str(problem)))
            self.begin = min(problem.end_offset, self.end)
            return True
        if isinstance(problem, Unavailable):
            return False
        if not isinstance(problem, OutOfRange | NotFound):
            raise problem
        try:
            held = _held(self._link, self._queue)
        except Unavailable:
            return False
        part, losses = readable(self._queue, Range(self.begin, self.end), held, self._policy, recreated=self.recreated)
        for loss in losses:
            self._lost(loss)
        self.begin, self.end = part.begin, part.end
        return bool(losses)

    @staticmethod
    def _lost(loss: Loss) -> None:
        _log.emit(log_events.MESSAGES_LOST, what=str(loss))


def _held(link: Link, queue: Queue) -> Range | None:
    """What the queue holds; None if it does not exist. Errors: Unavailable when its enode is away."""
    try:
        ranges = link.run(offset_ranges(link.connection, {queue.topic}))
    except NotFound:
        return None
    if queue in ranges:
        return Range(*ranges[queue])
    description = link.run(link.admin.describe_topic(queue.topic))
    if any(p.enode == queue.enode and queue.queue_id < p.read_queue_count for p in description.topic.placements):
        raise Unavailable(f"the enode {queue.enode} is away")
    return None
