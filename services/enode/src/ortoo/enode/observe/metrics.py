"""The enode's metrics: stored messages, the lag of groups, the health of its disk."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from ortoo.common.process.clock import Clock
from ortoo.common.telemetry.metrics import Metrics
from ortoo.enode.changes.halves import HalfVerdict
from ortoo.enode.cluster.group_retention import GroupRetention
from ortoo.enode.log.results import StoreDescription
from ortoo.enode.observe.backlog import Backlogs, GroupBacklog
from ortoo.enode.pops.leasing import PopLeasing
from ortoo.enode.pops.retry_copies import RetryCopies
from ortoo.enode.store.stats import topic_stats
from ortoo.enode.store.store import Store
from ortoo.enode.transactions.coordinator import TransactionCoordinator

COUNTERS = {
    "appends": "Batches stored.",
    "fetches": "Reads answered.",
    "batches_from_memory": "Batches read from memory.",
    "batches_from_disk": "Batches read from disk.",
    "deleted_segments": "Segments deleted by retention.",
    "flushes": "Calls of fdatasync.",
}
GAUGES: dict[str, tuple[str, Callable[[StoreDescription], float]]] = {
    "rocketmq_storage_size": ("Bytes of the log.", lambda it: it.log_bytes),
    "rocketmq_storage_flush_behind_bytes": (
        "Accepted bytes that are not durable yet.",
        lambda it: it.counters["pending_bytes"],
    ),
    "ortoo_segments": ("Files of the log.", lambda it: it.segment_count),
    "ortoo_writable": (
        "1 while messages are taken; 0 when the disk is full or has failed.",
        lambda it: int(it.writable),
    ),
    "ortoo_damaged_places": ("Damaged places in the log.", lambda it: len(it.damages)),
    "ortoo_waiting_fetches": ("Readers waiting at the end of a queue.", lambda it: it.counters["waiting_fetches"]),
}
OF_TOPIC = ("topic",)
OF_GROUP = ("topic", "consumer_group")
BACKLOG_STATES = ("waiting", "leased", "retrying", "parked")
"""The values of the label `state`: counts of `GroupBacklog`."""


def register_store(metrics: Metrics, store: Store) -> None:
    """Register the metrics of `store`. Names that begin with rocketmq_ are those of RocketMQ 5."""
    for name, (help_text, read) in GAUGES.items():
        metrics.gauge(name, help_text, lambda read=read: read(store.describe()))  # type: ignore[misc]
    for name, help_text in COUNTERS.items():
        metrics.counter(f"ortoo_{name}_total", help_text, lambda name=name: store.describe().counters[name])  # type: ignore[misc]
    metrics.counter(
        "ortoo_flush_seconds_total",
        "Total time of all flushes.",
        lambda: store.describe().counters["flush_ms"] / 1000,
    )
    files = store.engine.catalog.files
    metrics.gauge("ortoo_segments_open", "Open files of the log, each a descriptor.", lambda: files.count)
    metrics.counter(
        "ortoo_segment_opens_total",
        "Files of the log that were opened because a reader needed them.",
        lambda: files.opened,
    )
    metrics.gauge(
        "ortoo_index_bytes", "Memory of the index of queues by segment.", lambda: store.engine.catalog.index_bytes
    )
    metrics.gauge("ortoo_index_bytes_max", "Limit of ortoo_index_bytes.", lambda: store.engine.settings.index_bytes_max)
    metrics.gauge("ortoo_dedup_ids", "Remembered deduplication ids.", lambda: len(store.engine.state.ids))
    metrics.counter(
        "ortoo_backward_commits_total",
        "Commits of an offset below the stored one.",
        lambda: store.offsets.backward_commits,
    )
    _register_topics(metrics, store)


def register_pops(metrics: Metrics, store: Store, pops: PopLeasing, sending: RetryCopies) -> None:
    """Register the metrics of popped messages and dead letters."""

    def named(*counters: Counter[tuple[int, str]]) -> Iterator[tuple[tuple[str, ...], int]]:
        for key in set().union(*counters):
            if (topic := store.topic(key[0])) is not None:
                yield (topic.name, key[1]), sum(totals[key] for totals in counters)

    metrics.counter(
        "ortoo_pops_expired_total",
        "Messages that expired before a group received them by pop.",
        lambda: named(pops.expired_totals),
        labels=OF_GROUP,
    )
    metrics.counter(
        "rocketmq_send_to_dlq_messages_total",
        "Messages that became dead letters of a group.",
        lambda: named(pops.parking.parked_totals, sending.parked_totals),
        labels=OF_GROUP,
    )


def register_transactions(metrics: Metrics, store: Store, transactions: TransactionCoordinator, clock: Clock) -> None:
    """Register the metrics of open and ended transactions."""

    def named(totals: Mapping[int, int]) -> Iterator[tuple[tuple[str, ...], int]]:
        for topic_id, count in list(totals.items()):
            if (topic := store.topic(topic_id)) is not None:
                yield (topic.name,), count

    open_messages: dict[int, int] = {}
    oldest_ms: dict[tuple[int, str], int] = {}

    def examine_open() -> Iterator[None]:
        counts, oldest = Counter[int](), dict[tuple[int, str], int]()
        for half in list(store.halves.open.values()):
            counts[half.topic_id] += half.count
            key = (half.topic_id, half.producer_group)
            oldest[key] = min(oldest.get(key, half.stored_at_ms), half.stored_at_ms)
            yield
        open_messages.clear()
        open_messages.update(counts)
        oldest_ms.clear()
        oldest_ms.update(oldest)

    def ages() -> Iterator[tuple[tuple[str, ...], float]]:
        now_ms = clock.now_ms()
        for (topic_id, producer_group), stored_at_ms in list(oldest_ms.items()):
            if (topic := store.topic(topic_id)) is not None:
                yield (topic.name, producer_group), max(0, now_ms - stored_at_ms) / 1000

    def ended(verdict: HalfVerdict) -> dict[int, int]:
        return {topic_id: count for (topic_id, how), count in transactions.ended_totals.items() if how is verdict}

    metrics.prepare(examine_open)
    metrics.gauge(
        "rocketmq_half_messages",
        "Messages of open transactions.",
        lambda: named(open_messages),
        labels=OF_TOPIC,
    )
    metrics.gauge(
        "ortoo_oldest_transaction_seconds",
        "Age of the oldest open transaction of a producer group.",
        ages,
        labels=("topic", "producer_group"),
    )
    for word, verdict in (("commit", HalfVerdict.COMMITTED), ("rollback", HalfVerdict.ROLLED_BACK)):
        metrics.counter(
            f"rocketmq_{word}_messages_total",
            f"Messages of transactions that ended by {word}.",
            lambda verdict=verdict: named(ended(verdict)),  # type: ignore[misc]
            labels=OF_TOPIC,
        )


def register_groups(metrics: Metrics, groups: GroupRetention) -> None:
    """Register the metric of dropped groups."""
    metrics.counter(
        "ortoo_groups_dropped_total",
        "Groups whose state in a topic was dropped, by reason.",
        lambda: [((why,), count) for why, count in groups.dropped.items()],
        labels=("reason",),
    )


def register_backlogs(metrics: Metrics, backlogs: Backlogs, clock: Clock) -> None:
    """Register the metrics of the messages that groups have not finished."""

    def each(read: Callable[[GroupBacklog], float]) -> Iterator[tuple[tuple[str, str], float]]:
        return (((one.topic, one.group), read(one)) for one in backlogs.all())

    def nonzero(read: Callable[[GroupBacklog], float]) -> Iterator[tuple[tuple[str, str], float] | None]:
        return (sample if sample[1] else None for sample in each(read))

    def by_state() -> Iterator[tuple[tuple[str, str, str], int] | None]:
        for one in backlogs.all():
            yield None
            for state in BACKLOG_STATES:
                if count := getattr(one, state):
                    yield (one.topic, one.group, state), count

    def age_ms(one: GroupBacklog) -> int:
        return max(0, clock.now_ms() - one.oldest_at_ms) if one.oldest_at_ms else 0

    metrics.prepare(backlogs.refresh)
    metrics.gauge(
        "rocketmq_consumer_lag_messages",
        "Messages on this enode that a group has not acknowledged, including messages that wait for another attempt.",
        lambda: each(lambda one: one.unfinished),
        labels=OF_GROUP,
    )
    metrics.gauge(
        "rocketmq_consumer_lag_latency",
        "Milliseconds since the oldest message that a group has not acknowledged was stored.",
        lambda: each(age_ms),
        labels=OF_GROUP,
    )
    metrics.gauge(
        "ortoo_group_messages",
        "Messages on this enode that a group has not acknowledged, by state; states without messages have no series.",
        by_state,
        labels=(*OF_GROUP, "state"),
    )
    metrics.gauge(
        "ortoo_group_failed_attempts",
        "Largest known number of failed attempts of a message that waits for another attempt.",
        lambda: nonzero(lambda one: one.attempts if one.retrying else 0),
        labels=OF_GROUP,
    )
    metrics.gauge(
        "ortoo_group_retention_used_ratio",
        "Share of its retention that the oldest unacknowledged message of a group has used.",
        lambda: nonzero(lambda one: one.retention_used),
        labels=OF_GROUP,
    )
    metrics.counter(
        "ortoo_group_lost_messages_total",
        "Messages that retention deleted before a group had acknowledged them.",
        lambda: nonzero(lambda one: one.lost),
        labels=OF_GROUP,
    )


def _register_topics(metrics: Metrics, store: Store) -> None:
    metrics.counter(
        "rocketmq_messages_in_total",
        "Messages stored since the topic was created.",
        lambda: (((one.topic,), one.messages_in) for one in topic_stats(store.engine)),
        labels=OF_TOPIC,
    )
    metrics.counter(
        "rocketmq_throughput_in_total",
        "Bytes stored since the enode started.",
        lambda: (((one.topic,), one.bytes_in) for one in topic_stats(store.engine)),
        labels=OF_TOPIC,
    )
    metrics.gauge(
        "ortoo_stored_messages",
        "Stored messages that retention has not deleted.",
        lambda: (((one.topic,), one.messages) for one in topic_stats(store.engine)),
        labels=OF_TOPIC,
    )
    metrics.gauge("rocketmq_topic_number", "Topics on this enode.", lambda: store.engine.state.topics.count)
