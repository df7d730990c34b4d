"""What went through this snode, counted by topic and group."""

from ortoo.common.telemetry.metrics import Metrics
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.observe.traces import PushTraces

PAIR = ("topic", "consumer_group")


class Traffic:
    """Running totals; those of deleted topics are dropped when somebody reads."""

    def __init__(self, traces: PushTraces | None = None) -> None:
        """Nothing went through yet."""
        self.traces = traces
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

    def register(self, metrics: Metrics, directory: Directory) -> None:
        """Name what is read; names beginning with rocketmq_ are those of RocketMQ 5."""

        def pushed(column: int) -> dict[tuple[str, ...], int]:
            self._forget(directory)
            return {pair: numbers[column] for pair, numbers in self.pushed_totals.items()}

        for name, about, read in (
            ("rocketmq_messages_out_total", "Messages delivered in push sessions.", lambda: pushed(0)),
            ("rocketmq_throughput_out_total", "Bytes delivered in push sessions.", lambda: pushed(1)),
            ("ortoo_pushes_total", "Batches delivered in push sessions.", lambda: pushed(2)),
            (
                "ortoo_messages_lost_total",
                "Messages passed over in push sessions because they are damaged where they are stored.",
                lambda: dict(self.lost_totals),
            ),
            (
                "ortoo_messages_expired_total",
                "Messages left out of pushes and pulls because their time was over.",
                lambda: dict(self.expired_totals),
            ),
        ):
            metrics.counter(name, about, read, labels=PAIR)

    def _forget(self, directory: Directory) -> None:
        """Drop the totals of every (topic, group) that does not exist any more."""
        for totals in (self.pushed_totals, self.lost_totals):
            for topic, group in list(totals):
                if not (directory.find_topic(topic) and directory.group(group)):
                    del totals[topic, group]
