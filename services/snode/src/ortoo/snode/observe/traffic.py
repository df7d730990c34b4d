"""What went through this snode, counted by topic and group."""

from collections.abc import Callable

from ortoo.snode.observe.traces import PushTraces


class Traffic:
    """Running totals; those of deleted topics are dropped when somebody reads."""

    def __init__(self) -> None:
        """Nothing went through yet."""
        self.traces: PushTraces | None = None
        """Spans of deliveries, when tracing is on."""
        self.pushed_totals: dict[tuple[str, str], list[int]] = {}
        """(topic, group) to [messages, bytes, batches] delivered in push sessions."""
        self.lost_totals: dict[tuple[str, str], int] = {}
        """(topic, group) to messages that were passed over because they are damaged where they are stored."""

        self.expired_totals: dict[tuple[str, str], int] = {}
        """(topic, group) to messages that were left out of pushes and pulls because their time was over."""

    def pushed(self, topic: str, group: str, messages: int, size_bytes: int) -> None:
        """A batch was handed to a client."""
        totals = self.pushed_totals.get((topic, group))
        if totals is None:
            totals = self.pushed_totals[topic, group] = [0, 0, 0]
        totals[0] += messages
        totals[1] += size_bytes
        totals[2] += 1

    def lost(self, topic: str, group: str, messages: int) -> None:
        """A client was told that it will not get so many messages."""
        self.lost_totals[topic, group] = self.lost_totals.get((topic, group), 0) + messages

    def expired(self, topic: str, group: str, messages: int) -> None:
        """The time of so many messages was over before the group got them."""
        self.expired_totals[topic, group] = self.expired_totals.get((topic, group), 0) + messages

    def forget(self, exists: Callable[[str, str], bool]) -> None:
        """Drop the totals of every (topic, group) that does not exist any more."""
        for topic, group in [pair for pair in self.pushed_totals if not exists(*pair)]:
            del self.pushed_totals[topic, group]
        for topic, group in [pair for pair in self.lost_totals if not exists(*pair)]:
            del self.lost_totals[topic, group]
