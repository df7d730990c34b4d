"""The enode's metrics: what it stored, how far groups are behind, how its disk does."""

from ortoo.common.process.clock import Clock
from ortoo.common.telemetry.metrics import Metrics
from ortoo.enode.pops.leasing import Leasing
from ortoo.enode.store.store import Store

RUNNING_TOTALS = {
    "appends": "Batches stored.",
    "fetches": "Reads answered.",
    "batches_from_memory": "Batches that readers got from memory.",
    "batches_from_disk": "Batches that readers got from disk.",
    "deleted_segments": "Segments deleted by retention.",
    "flushes": "Calls of fdatasync.",
}


def register(metrics: Metrics, store: Store, clock: Clock) -> None:
    """Name what is read from `store`. Names beginning with rocketmq_ are those of RocketMQ 5."""
    _register_topics(metrics, store)
    _register_groups(metrics, store, clock)
    _register_disk(metrics, store)
    metrics.gauge("ortoo_dedup_ids", "Ids of messages that are remembered.", lambda: len(store.engine.state.ids))
    for name, help_text in RUNNING_TOTALS.items():
        metrics.counter(f"ortoo_{name}_total", help_text, lambda name=name: store.describe().counters[name])  # type: ignore[misc]


def register_pops(metrics: Metrics, store: Store, pops: Leasing) -> None:
    """Name what is read from the leases of popped messages."""
    metrics.counter(
        "ortoo_pops_expired_total",
        "Messages whose time was over before a group that pops got them.",
        lambda: [
            ((topic.name, group), expired)
            for (topic_id, group), expired in pops.expired_totals.items()
            if (topic := store.topic(topic_id)) is not None
        ],
        labels=("topic", "consumer_group"),
    )


def _register_topics(metrics: Metrics, store: Store) -> None:
    census = store.census
    metrics.counter(
        "rocketmq_messages_in_total",
        "Messages stored since the topic was created.",
        lambda: [((one.topic,), one.messages_in) for one in census.topics()],
        labels=("topic",),
    )
    metrics.counter(
        "rocketmq_throughput_in_total",
        "Bytes stored since the enode started.",
        lambda: [((one.topic,), one.bytes_in) for one in census.topics()],
        labels=("topic",),
    )
    metrics.gauge(
        "ortoo_stored_messages",
        "Messages that retention has left.",
        lambda: [((one.topic,), one.messages) for one in census.topics()],
        labels=("topic",),
    )
    metrics.gauge("rocketmq_topic_number", "Topics that lie on this enode.", lambda: len(store.topics()))


def _register_groups(metrics: Metrics, store: Store, clock: Clock) -> None:
    labels = ("topic", "consumer_group")
    metrics.gauge(
        "rocketmq_consumer_lag_messages",
        "Messages stored here that a group has not acknowledged.",
        lambda: (((lag.topic, lag.group), lag.messages) for lag in store.census.lags()),
        labels=labels,
    )

    def ages_ms() -> list[tuple[tuple[str, str], int]]:
        now_ms = clock.now_ms()
        return [
            ((lag.topic, lag.group), max(0, now_ms - lag.oldest_at_ms) if lag.oldest_at_ms else 0)
            for lag in store.census.lags()
        ]

    metrics.counter(
        "ortoo_backward_commits_total",
        "Offsets that were committed below the stored one.",
        lambda: store.backward_commits.count,
    )
    metrics.gauge(
        "rocketmq_consumer_lag_latency",
        "Milliseconds since the oldest message that a group has not acknowledged was stored.",
        ages_ms,
        labels=labels,
    )


def _register_disk(metrics: Metrics, store: Store) -> None:
    metrics.gauge("rocketmq_storage_size", "Bytes of the log.", lambda: store.describe().log_bytes)
    metrics.gauge(
        "rocketmq_storage_flush_behind_bytes",
        "Bytes accepted that are not durable yet.",
        lambda: store.describe().counters["pending_bytes"],
    )
    metrics.gauge("ortoo_segments", "Files of the log.", lambda: store.describe().segment_count)
    metrics.gauge(
        "ortoo_writable",
        "1 while messages are taken; 0 when the disk is full or has failed.",
        lambda: int(store.describe().writable),
    )
    metrics.gauge(
        "ortoo_damaged_places", "Places in the log whose bytes are wrong.", lambda: len(store.describe().damages)
    )
    metrics.counter(
        "ortoo_flush_seconds_total",
        "How long flushes took, all together.",
        lambda: store.describe().counters["flush_ms"] / 1000,
    )
    metrics.gauge(
        "ortoo_waiting_fetches",
        "Readers waiting at the end of a queue.",
        lambda: store.describe().counters["waiting_fetches"],
    )
