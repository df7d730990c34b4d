"""Messages that a consumer will never get, because their bytes are damaged where they are stored."""

from collections.abc import Callable
from dataclasses import dataclass

from ortoo.client import log_events
from ortoo.client.core.place import Queue
from ortoo.common.logs.logger import get_logger

_log = get_logger("consumer")


@dataclass(frozen=True, slots=True)
class LostMessages:
    """Messages of a queue, from `begin_offset` to `end_offset`, exclusive, that are damaged where they are stored."""

    queue: Queue
    begin_offset: int
    end_offset: int
    reason: str


class Losses:
    """Counts what is lost, logs it, and tells whoever wants to know."""

    def __init__(self, on_loss: Callable[[LostMessages], None] | None) -> None:
        """Call `on_loss` for each loss; what it raises is logged."""
        self._on_loss = on_loss
        self.messages = 0

    def add(self, lost: LostMessages) -> None:
        """The server said that these messages cannot be had."""
        begin, end = lost.begin_offset, lost.end_offset
        self.messages += end - begin
        _log.emit(log_events.MESSAGES_LOST, queue=str(lost.queue), begin=begin, end=end, reason=lost.reason)
        if self._on_loss is not None:
            try:
                self._on_loss(lost)
            except Exception:
                _log.emit(log_events.ON_LOSS_CALLBACK_FAILED, exc_info=True)
