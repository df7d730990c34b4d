"""Writes the Grafana dashboards from tables of panels: `make manifests`."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "chart/files"
WIDTH, HEIGHT = 8, 7
P99 = "histogram_quantile(0.99, sum by (le, {}) (rate({}[5m])))"
PAIR = "{{consumer_group}} in {{topic}}"
PANELS = (
    ("Messages in a second", "short", "sum by (topic) (rate(rocketmq_messages_in_total[1m]))", "{{topic}}"),
    (
        "Messages out a second",
        "short",
        "sum by (topic, mode) (rate(rocketmq_messages_out_total[1m]))",
        "{{topic}} by {{mode}}",
    ),
    ("Bytes in a second", "Bps", "sum by (topic) (rate(rocketmq_throughput_in_total[1m]))", "{{topic}}"),
    ("Lag", "short", "sum by (topic, consumer_group) (rocketmq_consumer_lag_messages)", PAIR),
    ("Oldest message", "ms", "max by (topic, consumer_group) (rocketmq_consumer_lag_latency)", PAIR),
    ("In flight", "short", "sum by (consumer_group) (rocketmq_consumer_inflight_messages)", "{{consumer_group}}"),
    (
        "Requests a second",
        "reqps",
        "sum by (request_code, response_code) (rate(rocketmq_rpc_latency_count[1m]))",
        "{{request_code}} {{response_code}}",
    ),
    ("Slowest 1 % of calls", "ms", P99.format("request_code", "rocketmq_rpc_latency_bucket"), "{{request_code}}"),
    ("Flush duration", "s", "rate(ortoo_flush_seconds_total[1m]) / rate(ortoo_flushes_total[1m])", "{{instance}}"),
    ("Log size", "bytes", "rocketmq_storage_size", "{{instance}}"),
    ("Free disk space", "percentunit", "ortoo_disk_free_bytes / ortoo_disk_size_bytes", "{{instance}}"),
    ("Disk full in", "s", "ortoo_disk_full_in_seconds", "{{instance}}"),
    ("Certificates expire in", "s", "ortoo_certificate_expiry_timestamp_seconds - time()", "{{instance}} {{setting}}"),
    ("Live enodes", "short", "max by (node_id) (ortoo_process_alive)", "{{node_id}}"),
    ("Push sessions", "short", "sum by (consumer_group) (rocketmq_consumer_connections)", "{{consumer_group}}"),
    ("Popping consumers", "short", "sum by (consumer_group) (ortoo_pop_consumers)", "{{consumer_group}}"),
    ("Evicted slow consumers", "short", "increase(ortoo_slow_consumers_evicted_total[10m])", "{{instance}}"),
    ("Event loop late (p99)", "s", P99.format("instance", "ortoo_event_loop_delay_seconds_bucket"), "{{instance}}"),
    ("Memory", "bytes", "process_resident_memory_bytes and on (instance, job) ortoo_build_info", "{{instance}}"),
)
SEND_QUANTILE = "histogram_quantile({}, sum by (le) (rate(ortoo_send_latency_bucket[5m])))"
OLDEST = "max by (topic, consumer_group) (rocketmq_consumer_lag_latency)"
OBJECTIVES = (
    ("Sends that fail: burn rate (1 = the budget lasts a month)", "short", "ortoo:send_errors:ratio60m / 0.001", "1 h"),
    ("The same over 5 minutes", "short", "ortoo:send_errors:ratio5m / 0.001", "5 min"),
    ("The same over 6 hours", "short", "ortoo:send_errors:ratio360m / 0.001", "6 h"),
    ("Sends above 100 ms: burn rate", "short", "ortoo:send_slow:ratio60m / 0.01", "1 h"),
    ("The same over 5 minutes", "short", "ortoo:send_slow:ratio5m / 0.01", "5 min"),
    ("The same over 6 hours", "short", "ortoo:send_slow:ratio360m / 0.01", "6 h"),
    ("Sends by method and status", "reqps",
     "sum by (request_code, response_code) (rate(ortoo_send_latency_count[5m]))", "{{request_code}} {{response_code}}"),
    ("Median of sends", "ms", SEND_QUANTILE.format(0.5), "p50"),
    ("Slowest 1 % of sends", "ms", SEND_QUANTILE.format(0.99), "p99"),
    ("Oldest waiting message of a group", "ms", f"topk(10, {OLDEST})", PAIR),
    ("Groups with a message older than 10 s", "percentunit", f"avg({OLDEST} > bool 10000)", "late"),
    ("Dead letters in 15 minutes", "short",
     "sum by (topic, consumer_group) (increase(rocketmq_send_to_dlq_messages_total[15m]))", PAIR),
    ("Failures reported to callers", "short", "sum by (kind) (rate(ortoo_failures_total[5m]))", "{{kind}}"),
    ("Firing alerts", "short", 'sum by (alertname) (ALERTS{alertname=~"Ortoo.*",alertstate="firing"})',
     "{{alertname}}"),
    ("Writable enodes", "percentunit", "avg(ortoo_writable)", "writable"),
)  # fmt: skip
Panels = Sequence[tuple[str, str, str, str]]
DASHBOARDS: Mapping[str, tuple[str, str, Panels]] = {
    "dashboard.json": ("ortoo", "Ortoo", PANELS),
    "objectives.json": ("ortoo-objectives", "Ortoo: objectives", OBJECTIVES),
}
"""File to the dashboard's id, its title and its panels."""


VARIABLES = ("namespace", "ortoo_cluster")
"""The labels by which a dashboard selects clusters; the value for all also matches processes without these labels."""
_METRIC = re.compile(r"\b((?:ortoo|rocketmq|process)[_:]\w[\w:]*|ALERTS)(?![\w:(])(\{)?")


def of_chosen(expression: str) -> str:
    """The expression for the clusters that are selected at the top of the dashboard."""
    chosen = ",".join(f'{name}=~"${name}"' for name in VARIABLES)
    return _METRIC.sub(lambda found: f"{found[1]}{{{chosen}{',' if found[2] else '}'}", expression)


def dashboard(uid: str, title: str, panels: Panels) -> dict[str, Any]:
    """A dashboard as Grafana reads it."""
    made = [
        {
            "id": number + 1,
            "title": heading,
            "type": "timeseries",
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "gridPos": {"x": number % 3 * WIDTH, "y": number // 3 * HEIGHT, "w": WIDTH, "h": HEIGHT},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [{"refId": "A", "expr": of_chosen(expression), "legendFormat": legend}],
        }
        for number, (heading, unit, expression, legend) in enumerate(panels)
    ]
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    source_of = {"type": "prometheus", "uid": "${datasource}"}
    variables = [
        {
            "name": name,
            "type": "query",
            "datasource": source_of,
            "query": f"label_values(ortoo_build_info, {name})",
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }
        for name in VARIABLES
    ]
    return {
        "uid": uid,
        "title": title,
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [source, *variables]},
        "panels": made,
    }


if __name__ == "__main__":
    for name, about in DASHBOARDS.items():
        board = dashboard(*about)
        # One panel a line, so that a change of one panel changes one line.
        lines = ",\n".join(json.dumps(panel) for panel in board.pop("panels"))
        (FOLDER / name).write_text(f'{json.dumps(board)[:-1]}, "panels": [\n{lines}\n]}}\n')
        sys.stdout.write(f"{name}: {len(about[2])} panels\n")
