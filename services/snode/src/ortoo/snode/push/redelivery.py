"""The limit of a session that redelivers messages that ended earlier sessions: pure bookkeeping.

A message that ends its consumer's process is found by delivering it alone. After an interruption without progress, the
messages that the consumer had are therefore redelivered first, a sixteenth of them at a time. Each further interruption
leaves a sixteenth of the messages. An attempt counts when a single message is left.
"""

from collections.abc import Callable, Hashable

from ortoo.snode.enodes.link import Interruption

WINDOW_DIVISOR = 16
REPEATS_MIN = 2
"""The number of interruptions without progress from which on the limit applies: an ordinary stop costs nothing."""
STALL_S = 30.0
"""Without an acknowledgement for this time the limit ends: some applications acknowledge many messages together."""


class RedeliveryLimit:
    """The queues of a client whose messages are redelivered first, and the number of its unacknowledged messages."""

    def __init__(self) -> None:
        """Begin without a limit."""
        self._ranges: dict[Hashable, tuple[int, int]] = {}
        """The first offset that is not acknowledged, and the end of the messages to redeliver."""
        self._window = 0
        self._progress_s = 0.0

    def add(self, queue: Hashable, interruption: Interruption | None, committed: int, now_s: float) -> None:
        """Limit the session if the interrupted delivery of a queue, which starts at `committed`, may repeat itself."""
        if interruption is None or not (interruption.attempts or interruption.repeats >= REPEATS_MIN):
            return
        if committed < interruption.end_offset:
            self._ranges[queue] = (committed, interruption.end_offset)
            self._window = max(1, sum(end - at for at, end in self._ranges.values()) // WINDOW_DIVISOR)
            self._progress_s = now_s

    def is_worth_recording(self, queue: Hashable, interruption: Interruption) -> bool:
        """Whether an interruption changes what the enode knows.

        An empty range of a queue in redelivery is recorded, because its messages did not end the client.
        """
        return interruption.offset < interruption.end_offset or queue in self._ranges

    def discard(self, queue: Hashable) -> None:
        """Do not wait for a queue any more, because it is released or suspended."""
        self._ranges.pop(queue, None)

    def on_committed(self, queue: Hashable, offset: int, now_s: float) -> None:
        """Record that messages before `offset` were acknowledged."""
        if (range_ := self._ranges.pop(queue, None)) is not None:
            self._progress_s = now_s
            if offset < range_[1]:
                self._ranges[queue] = (offset, range_[1])

    def messages_max(self, queue: Hashable, unacknowledged: Callable[[], int]) -> int | None:
        """The number of messages of a queue that may be sent now; None = unlimited.

        `unacknowledged` counts the messages of the session that were sent and not acknowledged. It is called only
        during a redelivery, because it looks at all queues of the session.
        """
        if not self._ranges:
            return None
        return max(0, self._window - unacknowledged()) if queue in self._ranges else 0

    def end_if_stalled(self, now_s: float) -> bool:
        """End the limit if nothing was acknowledged for a long time; returns whether it ended now."""
        if not self._ranges or now_s - self._progress_s < STALL_S:
            return False
        self._ranges.clear()
        return True
