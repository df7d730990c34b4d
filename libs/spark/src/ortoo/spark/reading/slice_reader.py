"""Reads the slices of a task: exactly the planned offsets, or an error, or a counted loss."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ortoo.client import Filter, Queue
from ortoo.common.errors import DataLoss, NotFound, OrtooError, OutOfRange, Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.spark.core import log_events
from ortoo.spark.core.link import ClusterLink
from ortoo.spark.reading.data_loss import Loss, clip_to_stored
from ortoo.spark.reading.planning import QueueSlice
from ortoo.spark.reading.topic_state import OffsetSpan

if TYPE_CHECKING:
    from ortoo.client import ReceivedBatch

_RETRY_S = 0.5
_log = get_logger("spark")


def read_slice(
    link: ClusterLink, remainder: "Remainder", *, columns: Sequence[str], filter: Filter, timeout_ms: int
) -> Iterator["ReceivedBatch"]:
    """Yield all batches of one slice; a broken read is resumed, unless it makes no progress for `timeout_ms`.

    Errors: DataLoss, Unavailable after the timeout, and those of the server.
    """
    queue = remainder.part.queue
    deadline_s = link.clock.monotonic_s() + timeout_ms / 1000
    while remainder.begin < remainder.end:
        problem: OrtooError = OutOfRange(f"reading stopped before {remainder.end}")
        remainder.last_response.clear()
        try:
            for received in link.fetch(queue, remainder.begin, remainder.end, columns, filter, remainder.on_response):
                if remainder.is_recreated(received.topic_id):
                    break
                remainder.begin = received.next_offset
                deadline_s = link.clock.monotonic_s() + timeout_ms / 1000
                yield received
        except OrtooError as error:
            problem = error
        if remainder.advance():
            deadline_s = link.clock.monotonic_s() + timeout_ms / 1000
        if remainder.begin >= remainder.end or remainder.recover(problem):
            continue
        if link.clock.monotonic_s() > deadline_s:
            raise Unavailable(
                f"queue {queue.queue_id} of {queue.topic} on {queue.enode} could not be read at offset "
                f"{remainder.begin} for {timeout_ms / 1000:.0f} s ({problem}); the option fetchTimeoutMs sets this "
                "limit"
            )
        link.sleep(_RETRY_S)


class Remainder:
    """The unread part of a slice. `policy` is the reaction to lost messages: fail, earliest or latest."""

    def __init__(self, link: ClusterLink, part: QueueSlice, policy: str) -> None:
        self.part = part
        self.begin, self.end = part.begin, part.end
        self.recreated = False
        self.last_response: list[tuple[int, int]] = []
        """Next offset and topic id of the last answer, also of one without matching messages."""
        self._link = link
        self._queue = part.queue
        self._policy = policy

    def on_response(self, next_offset: int, topic_id: int) -> None:
        """Record the next offset and the topic id of an answer. Called on the connection's thread."""
        self.last_response = [(next_offset, topic_id)]

    def is_recreated(self, topic_id: int) -> bool:
        """Whether any answer so far had another topic id, because the topic was deleted and created again."""
        self.recreated = self.recreated or self.part.topic_id not in (0, topic_id)
        return self.recreated

    def advance(self) -> bool:
        """Advance to the next offset of the last answer; returns whether that offset was higher."""
        for next_offset, topic_id in self.last_response:
            if not self.is_recreated(topic_id) and next_offset > self.begin:
                self.begin = next_offset
                return True
        return False

    def recover(self, problem: OrtooError) -> bool:
        """Advance beyond lost offsets after the error `problem`; returns False if only a retry can help.

        Errors: DataLoss under the policy `fail`, or `problem` if it is neither about lost offsets nor retriable.
        """
        if isinstance(problem, DataLoss):
            # Damaged bytes: the error has the next readable offset.
            if self._policy == "fail" or problem.end_offset <= self.begin:
                raise problem
            self._report_loss(Loss(self._queue, self.begin, min(problem.end_offset, self.end), str(problem)))
            self.begin = min(problem.end_offset, self.end)
            return True
        if isinstance(problem, Unavailable):
            return False
        if not isinstance(problem, OutOfRange | NotFound):
            raise problem
        try:
            stored = _stored_range(self._link, self._queue)
        except Unavailable:
            return False
        part, losses = clip_to_stored(
            self._queue, OffsetSpan(self.begin, self.end), stored, self._policy, recreated=self.recreated
        )
        for loss in losses:
            self._report_loss(loss)
        self.begin, self.end = part.begin, part.end
        return bool(losses)

    @staticmethod
    def _report_loss(loss: Loss) -> None:
        _log.emit(log_events.MESSAGES_LOST, what=str(loss))


def _stored_range(link: ClusterLink, queue: Queue) -> OffsetSpan | None:
    """The stored range of a queue; None if the queue does not exist. Errors: Unavailable when its enode is down."""
    from ortoo.client.offsets.offset_lookup import offset_ranges

    try:
        ranges = link.run(offset_ranges(link.connection, {queue.topic}))
    except NotFound:
        return None
    if queue in ranges:
        return OffsetSpan(*ranges[queue])
    description = link.run(link.topics.describe_topic(queue.topic))
    if any(p.enode == queue.enode and queue.queue_id < p.read_queue_count for p in description.topic.placements):
        raise Unavailable(f"the enode {queue.enode} is down")
    return None
