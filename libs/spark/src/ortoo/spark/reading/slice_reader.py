"""Reads the slices of a task: exactly the planned offsets, or an error, or a counted loss."""

from collections.abc import Iterator, Sequence

from ortoo.client import Filter, Queue, ReceivedBatch
from ortoo.client.offsets.offset_lookup import offset_ranges
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
    """All batches of one slice; a broken read is resumed until `timeout_ms` without progress."""
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
                f"{rest.begin} for {timeout_ms / 1000:.0f} s ({problem}); the option fetchTimeoutMs sets this limit"
            )
        link.sleep(_RETRY_S)


class Remainder:
    """The part of a slice that is still to be read."""

    def __init__(self, link: Link, part: Slice, policy: str) -> None:
        self.part = part
        self.begin, self.end = part.begin, part.end
        self.recreated = False
        self.passed: list[tuple[int, int]] = []
        """Next offset and topic id of the last answer, also of one without matching messages."""
        self._link = link
        self._queue = part.queue
        self._policy = policy

    def hear(self, next_offset: int, topic_id: int) -> None:
        """Record an answer. Called by another thread."""
        self.passed = [(next_offset, topic_id)]

    def is_another(self, topic_id: int) -> bool:
        """Whether an answer came from a topic that was created later under the same name."""
        self.recreated = self.recreated or self.part.topic_id not in (0, topic_id)
        return self.recreated

    def catch_up(self) -> bool:
        """Advance to the last answer; returns whether it is behind the last batch."""
        for next_offset, topic_id in self.passed:
            if not self.is_another(topic_id) and next_offset > self.begin:
                self.begin = next_offset
                return True
        return False

    def go_on_after(self, problem: OrtooError) -> bool:
        """Advance behind lost offsets; False if nothing is lost and only a retry can help.

        Errors: DataLoss by the policy, or `problem` if it is of another kind.
        """
        if isinstance(problem, DataLoss):
            # Damaged bytes: the error has the next readable offset.
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
    """The stored range of a queue; None if it does not exist. Errors: Unavailable when its enode is down."""
    try:
        ranges = link.run(offset_ranges(link.connection, {queue.topic}))
    except NotFound:
        return None
    if queue in ranges:
        return Range(*ranges[queue])
    description = link.run(link.admin.describe_topic(queue.topic))
    if any(p.enode == queue.enode and queue.queue_id < p.read_queue_count for p in description.topic.placements):
        raise Unavailable(f"the enode {queue.enode} is down")
    return None
