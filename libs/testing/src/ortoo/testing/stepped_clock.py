"""A wall clock that can be set, over a monotonic clock that cannot: what an operator or a bad time server does."""

from ortoo.common.clock import SystemClock


class SteppedClock(SystemClock):
    """The machine's time, and how far its wall clock is set off."""

    def __init__(self, offset_ms: int = 0) -> None:
        """Begin so far off."""
        self.offset_ms = offset_ms

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC, as it is set now."""
        return super().now_ms() + self.offset_ms
