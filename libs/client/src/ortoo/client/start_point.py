"""Where a group begins in a queue: pure rules."""

from dataclasses import dataclass

RETRY_PREFIX = "%RETRY%"


@dataclass(frozen=True, slots=True)
class StartRule:
    """Where to begin without a stored offset: at the end (the default), at the first message, or at a time."""

    from_first: bool = False
    from_time_ms: int | None = None

    def needs_time(self, topic: str, committed: int | None) -> bool:
        """Whether the offset at the rule's time has to be looked up."""
        return committed is None and self.from_time_ms is not None and not topic.startswith(RETRY_PREFIX)

    def offset(
        self, topic: str, committed: int | None, begin_offset: int, end_offset: int, at_time: int | None = None
    ) -> int:
        """The first offset to consume; a stored one always wins, and None = there is none.

        A queue of failed messages begins at its first message, so that none is skipped; by time it begins at its end,
        because its messages have the time of their failure. `at_time` is the offset at the rule's time.
        """
        if committed is not None:
            return committed
        is_retry = topic.startswith(RETRY_PREFIX)
        if self.from_time_ms is not None:
            return end_offset if is_retry or at_time is None else at_time
        return begin_offset if self.from_first or is_retry else end_offset
