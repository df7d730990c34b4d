"""The snode's metrics: who is connected, what went through, who was evicted."""

from collections import Counter
from collections.abc import Callable

from ortoo.common.telemetry.metrics import Metrics
from ortoo.snode.clients.sessions import ClientSessions
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.observe.trace_topic import TraceTopic
from ortoo.snode.observe.traffic import Traffic
from ortoo.snode.policy.access import Access
from ortoo.snode.policy.flow_control import FlowControl
from ortoo.snode.push.sessions import Sessions

PAIR = ("topic", "consumer_group")


def register(metrics: Metrics, directory: Directory, sessions: Sessions, traffic: Traffic) -> None:
    """Name what is read. Names beginning with rocketmq_ are those of RocketMQ 5."""
    _register_pushes(metrics, directory, traffic)
    _register_sessions(metrics, sessions)
    metrics.gauge("rocketmq_proxy_up", "Always 1 while the snode runs.", lambda: 1)
    metrics.gauge(
        "ortoo_enode_alive",
        "Whether this snode believes that an enode is alive.",
        lambda: {(enode.name,): int(enode.alive) for enode in directory.enodes()},
        labels=("enode",),
    )
    metrics.gauge(
        "ortoo_directory_version", "The version of this snode's copy of the directory.", lambda: directory.version
    )


def register_access(metrics: Metrics, access: Access) -> None:
    """Name what is read of access control."""
    metrics.counter("ortoo_access_refused_total", "Requests beyond their users' rights.", lambda: access.refused)
    metrics.gauge("ortoo_access_users", "Users that the file of access names.", lambda: len(access.rules.users))


def register_trace_topic(metrics: Metrics, trace: TraceTopic) -> None:
    """Name what is read of the trace topic."""
    metrics.counter("ortoo_trace_records_total", "Records stored in the trace topic.", lambda: trace.written)
    metrics.counter(
        "ortoo_trace_records_dropped_total", "Records of the trace topic that were lost.", lambda: trace.dropped
    )


def register_clients(
    metrics: Metrics, clients: ClientSessions, flow: FlowControl, shares_membership: Callable[[], bool] | None
) -> None:
    """Name what is read of sessions and limits; `shares_membership` says whether the shared store answers, if any."""
    metrics.gauge("ortoo_client_sessions", "Open sessions of clients.", lambda: len(clients.all()))
    metrics.counter("ortoo_client_ids_changed_total", "Sessions that took another client id.", lambda: clients.renamed)
    metrics.counter(
        "ortoo_flow_control_refused_total",
        "Calls that a limit has refused or made wait.",
        lambda: {
            (rule.unit.name.lower(), rule.method, rule.topic): refused
            for rule, refused in zip(flow.rules, flow.refused, strict=True)
        },
        labels=("unit", "method", "topic"),
    )
    if shares_membership is not None:
        metrics.gauge(
            "ortoo_membership_store_up",
            "1 while the shared membership store answers.",
            lambda: int(shares_membership()),
        )


def _register_pushes(metrics: Metrics, directory: Directory, traffic: Traffic) -> None:
    def totals(column: int) -> dict[tuple[str, ...], int]:
        traffic.forget(lambda topic, group: bool(directory.find_topic(topic) and directory.group(group)))
        return {pair: numbers[column] for pair, numbers in traffic.pushed_totals.items()}

    metrics.counter(
        "rocketmq_messages_out_total", "Messages delivered in push sessions.", lambda: totals(0), labels=PAIR
    )
    metrics.counter(
        "rocketmq_throughput_out_total", "Bytes delivered in push sessions.", lambda: totals(1), labels=PAIR
    )
    metrics.counter(
        "ortoo_messages_lost_total",
        "Messages passed over in push sessions because they are damaged where they are stored.",
        lambda: dict(traffic.lost_totals),
        labels=PAIR,
    )
    metrics.counter(
        "ortoo_messages_expired_total",
        "Messages left out of pushes and pulls because their time was over.",
        lambda: dict(traffic.expired_totals),
        labels=PAIR,
    )
    metrics.counter("ortoo_pushes_total", "Batches delivered in push sessions.", lambda: totals(2), labels=PAIR)


def _register_sessions(metrics: Metrics, sessions: Sessions) -> None:
    def in_flight() -> dict[tuple[str, ...], int]:
        counts: Counter[tuple[str, ...]] = Counter()
        for session in sessions.all():
            for cursor, _ in session.cursors():
                if cursor.acknowledged is not None:
                    counts[cursor.queue.topic, session.group] += max(0, cursor.sent_offset - cursor.acknowledged)
        return counts

    metrics.gauge(
        "rocketmq_consumer_connections",
        "Open push sessions.",
        lambda: Counter((session.group,) for session in sessions.all()),
        labels=("consumer_group",),
    )
    metrics.gauge(
        "rocketmq_consumer_inflight_messages",
        "Messages delivered in push sessions and not acknowledged yet.",
        in_flight,
        labels=PAIR,
    )
    metrics.counter(
        "ortoo_slow_consumers_evicted_total",
        "Push sessions ended because they were slow.",
        lambda: sessions.evicted_slow,
    )
