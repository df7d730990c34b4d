"""Messages that a consumer cannot receive because their stored bytes are damaged."""

from collections.abc import Callable
from dataclasses import dataclass

from ortoo.client import log_events
from ortoo.client.core.queues import Queue
from ortoo.common.logs.logger import get_logger

_log = get_logger("consumer")


@dataclass(frozen=True, slots=True)
class LostMessages:
    """Damaged messages of a queue, from `begin_offset` to `end_offset`, exclusive."""

    queue: Queue
    begin_offset: int
    end_offset: int
    reason: str


class LossLog:
    """Counts and logs lost messages, and passes them to a callback."""

    def __init__(self, on_loss: Callable[[LostMessages], None] | None) -> None:
        """`on_loss` is called for each loss; its exceptions are logged."""
        self._on_loss = on_loss
        self.message_count = 0

    def add(self, lost: LostMessages) -> None:
        """Record messages that the server reported as lost."""
        begin, end = lost.begin_offset, lost.end_offset
        self.message_count += end - begin
        _log.emit(log_events.MESSAGES_LOST, queue=str(lost.queue), begin=begin, end=end, reason=lost.reason)
        if self._on_loss is not None:
            try:
                self._on_loss(lost)
            except Exception:
                _log.emit(log_events.ON_LOSS_CALLBACK_FAILED, exc_info=True)
