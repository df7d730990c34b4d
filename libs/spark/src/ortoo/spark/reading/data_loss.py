"""Decides how to continue when requested offsets are no longer stored; without I/O."""

from dataclasses import dataclass

from ortoo.client import DataLoss, Queue
from ortoo.spark.reading.topic_state import OffsetSpan


@dataclass(frozen=True, slots=True)
class Loss:
    """Lost offsets of one queue, from `begin` to before `end`, and the reason for the loss."""

    queue: Queue
    begin: int
    end: int | None
    """None = unknown."""
    reason: str

    @property
    def messages(self) -> int:
        """Number of lost messages; 0 if unknown."""
        return 0 if self.end is None else self.end - self.begin

    def __str__(self) -> str:
        queue = f"queue {self.queue.queue_id} of {self.queue.topic} on {self.queue.enode}"
        if self.end is None:
            return f"{queue} was read up to {self.begin}, but {self.reason}"
        return f"{queue} has lost the offsets {self.begin} to {self.end} ({self.messages} messages): {self.reason}"


def data_loss_error(loss: Loss) -> DataLoss:
    """The error to raise for `loss` under the policy `fail`."""
    return DataLoss(f"{loss}. To continue with the stored messages set failOnDataLoss=false", field="failOnDataLoss")


def clip_to_stored(
    queue: Queue, requested: OffsetSpan, stored: OffsetSpan | None, policy: str, *, recreated: bool = False
) -> tuple[OffsetSpan, list[Loss]]:
    """Reduce the range `requested` to its stored part; returns this part and the losses.

    `policy` is the reaction to losses. `fail` raises DataLoss with both ranges, `earliest` continues with the first
    message that is still stored, and `latest` skips the rest of the range. `stored` is None if the queue was deleted.
    `recreated` = the topic was deleted and created again.
    """
    losses: list[Loss] = []
    begin, end = requested.begin, requested.end
    if begin >= end:
        return OffsetSpan(begin, begin), losses
    if recreated:
        losses.append(Loss(queue, begin, end, "the topic was deleted and created again"))
        begin = end
    elif stored is None:
        losses.append(Loss(queue, begin, end, "the queue was deleted"))
        begin = end
    else:
        if begin < stored.begin:
            kept_from = min(stored.begin, end) if policy != "latest" else end
            losses.append(
                Loss(queue, begin, kept_from, f"the queue holds {stored.begin} to {stored.end}; retention deleted them")
            )
            begin = kept_from
        if end > stored.end and begin < end:
            losses.append(
                Loss(
                    queue,
                    max(begin, stored.end),
                    end,
                    f"the queue holds {stored.begin} to {stored.end}; it was truncated",
                )
            )
            end = max(begin, stored.end)
    if losses and policy == "fail":
        raise data_loss_error(losses[0])
    return OffsetSpan(begin, end), losses
