"""The name server's metrics: how large the directory is, and who is there."""

from ortoo.common.telemetry.metrics import Metrics
from ortoo.namesrv.directory.directory import Directory


def register(metrics: Metrics, directory: Directory) -> None:
    """Name what is read from `directory`."""
    metrics.gauge("rocketmq_topic_number", "Topics.", lambda: len(directory.topics()))
    metrics.gauge("rocketmq_consumer_group_number", "Consumer groups.", lambda: len(directory.groups()))
    metrics.counter(
        "ortoo_directory_version_total", "Changes of topics and groups ever made.", lambda: directory.version
    )
    metrics.gauge(
        "ortoo_process_alive",
        "1 for each process whose lease runs, 0 for an enode whose lease ran out.",
        lambda: {(kind, name): int(alive) for kind, name, alive in directory.processes()},
        labels=("node_type", "node_id"),
    )
    metrics.gauge("ortoo_route_watchers", "Processes that follow the routes.", lambda: directory.watcher_count)
    metrics.counter(
        "ortoo_changes_total",
        "Changes of topics and groups asked of this name server, by outcome.",
        lambda: {(outcome,): count for outcome, count in directory.outcomes.items()},
        labels=("outcome",),
    )
