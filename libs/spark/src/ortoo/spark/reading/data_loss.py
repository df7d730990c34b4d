"""What to do about offsets that were wanted and are not there any more: a pure decision, with its numbers."""

from dataclasses import dataclass

from ortoo.client import DataLoss, Queue
from ortoo.spark.reading.topic_state import Range


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets of one queue that cannot be read: `begin` to `end`, exclusive, and why."""

    queue: Queue
    begin: int
    end: int | None
    """None = nobody knows how many there were."""
    reason: str

    @property
    def messages(self) -> int:
        """How many are lost, as far as that is known."""
        return 0 if self.end is None else self.end - self.begin

    def __str__(self) -> str:
        queue = f"queue {self.queue.queue_id} of {self.queue.topic} on {self.queue.enode}"
        if self.end is None:
            return f"{queue} was read up to {self.begin}, but {self.reason}"
        return f"{queue}: offsets {self.begin} to {self.end} ({self.messages} messages) are lost: {self.reason}"


def refused(loss: Loss) -> DataLoss:
    """The error under the policy `fail`."""
    return DataLoss(f"{loss}. To go on with what there is set failOnDataLoss=false", field="failOnDataLoss")


def readable(
    queue: Queue, wanted: Range, held: Range | None, policy: str, *, recreated: bool = False
) -> tuple[Range, list[Loss]]:
    """Cut a wanted range to what is stored; what is left of it, and what is lost.

    Errors: DataLoss under the policy `fail`, naming both ranges.
    Policy `earliest` goes on with the first message that is still there; `latest` gives up what is left of the range.
    """
    losses: list[Loss] = []
    begin, end = wanted.begin, wanted.end
    if begin >= end:
        return Range(begin, begin), losses
    if recreated:
        losses.append(Loss(queue, begin, end, "the topic was deleted and created again, what it held is gone"))
        begin = end
    elif held is None:
        losses.append(Loss(queue, begin, end, "the queue does not exist any more"))
        begin = end
    else:
        if begin < held.begin:
            kept_from = min(held.begin, end) if policy != "latest" else end
            losses.append(
                Loss(queue, begin, kept_from, f"the queue holds {held.begin} to {held.end}; retention took them")
            )
            begin = kept_from
        if end > held.end and begin < end:
            losses.append(
                Loss(queue, max(begin, held.end), end, f"the queue holds {held.begin} to {held.end}; it was cut")
            )
            end = max(begin, held.end)
    if losses and policy == "fail":
        raise refused(losses[0])
    return Range(begin, end), losses
