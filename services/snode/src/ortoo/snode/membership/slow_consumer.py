"""When a member of a group is slow: a pure rule."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlowRule:
    """The thresholds of a group."""

    threshold_messages: int = 1024
    grace_s: float = 10.0

    def broken_by(
        self, *, newest_offset: int, acknowledged_offset: int | None, waiting_since_s: float | None, now_s: float
    ) -> bool:
        """Whether a member is slow in one queue.

        `newest_offset` is the last stored message's. `acknowledged_offset` is None when the group has none yet, which
        is never slow. `waiting_since_s` is since when the server has waited for an acknowledgement; None = it does not.
        """
        if acknowledged_offset is None or waiting_since_s is None:
            return False
        return newest_offset - acknowledged_offset > self.threshold_messages and (
            now_s - waiting_since_s >= self.grace_s
        )
