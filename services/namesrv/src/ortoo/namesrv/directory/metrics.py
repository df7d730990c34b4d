"""The name server's metrics: the size of the directory, processes, and replicas."""

from ortoo.common.telemetry.metrics import Metrics
from ortoo.namesrv.directory.directory import Directory
from ortoo.namesrv.directory.elections import Elections


def register(metrics: Metrics, directory: Directory, elections: Elections) -> None:
    """Register the metrics of `directory` and `elections`."""
    metrics.gauge("rocketmq_topic_number", "Topics.", lambda: len(directory.topics))
    metrics.gauge("rocketmq_consumer_group_number", "Consumer groups.", lambda: len(directory.groups))
    metrics.counter(
        "ortoo_directory_version_total", "Changes of topics and groups ever made.", lambda: directory.version
    )
    metrics.gauge(
        "ortoo_process_alive",
        "1 for each process with a valid lease, 0 for an enode without one that has queues of topics.",
        lambda: {(kind, name): int(alive) for kind, name, alive in directory.processes()},
        labels=("node_type", "node_id"),
    )
    metrics.gauge("ortoo_route_watchers", "Processes that watch the routes.", lambda: directory.watches.count)
    metrics.counter(
        "ortoo_changes_total",
        "Changes of topics and groups requested from this name server, by outcome.",
        lambda: {(outcome,): count for outcome, count in directory.outcomes.items()},
        labels=("outcome",),
    )
    metrics.gauge(
        "ortoo_enode_under_replicated",
        "Voters of an enode that do not report.",
        lambda: {(one.enode,): len(one.missing_voters()) for one in elections.sets()},
        labels=("enode",),
    )
    metrics.gauge(
        "ortoo_enode_leaderless",
        "1 for an enode whose replicas report and have no leader.",
        lambda: {(one.enode,): int(one.leader() is None) for one in elections.sets() if one.live_reports()},
        labels=("enode",),
    )
    metrics.gauge(
        "ortoo_enode_epoch",
        "The epoch of the last leader that an enode's replicas reported.",
        lambda: {(one.enode,): one.last_leader_epoch for one in elections.sets()},
        labels=("enode",),
    )
    metrics.counter(
        "ortoo_enode_take_overs_total",
        "Leader changes of an enode, as seen by this name server.",
        lambda: {(one.enode,): one.leader_changes for one in elections.sets()},
        labels=("enode",),
    )
