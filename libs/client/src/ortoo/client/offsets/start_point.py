"""The start rule of a group in a queue, without I/O."""

from dataclasses import dataclass

from ortoo.common.groups.group_topics import RETRY_PREFIX


@dataclass(frozen=True, slots=True)
class StartRule:
    """Where a queue without a committed offset starts: at its end (the default), its first message, or a time."""

    from_beginning: bool = False
    from_time_ms: int | None = None

    def needs_time(self, topic: str) -> bool:
        """Whether the rule has a time whose offset must be looked up."""
        return self.from_time_ms is not None and not topic.startswith(RETRY_PREFIX)

    def offset(self, topic: str, begin_offset: int, end_offset: int, at_time: int | None = None) -> int:
        """The first offset to consume; `at_time` is the offset at the rule's time.

        A queue of the group's retry topic always starts at its first message, so that no message is lost.
        """
        if self.from_beginning or topic.startswith(RETRY_PREFIX):
            return begin_offset
        return end_offset if at_time is None or self.from_time_ms is None else at_time
