"""Writes the Grafana dashboard from a table of panels: `make dashboard`."""

import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "chart/files/dashboard.json"
WIDTH, HEIGHT = 8, 7
P99 = "histogram_quantile(0.99, sum by (le, {}) (rate({}[5m])))"
PAIR = "{{consumer_group}} in {{topic}}"
PANELS = (
    ("Messages in a second", "short", "sum by (topic) (rate(rocketmq_messages_in_total[1m]))", "{{topic}}"),
    ("Messages out a second", "short", "sum by (topic) (rate(rocketmq_messages_out_total[1m]))", "{{topic}}"),
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
    ("A flush takes", "s", "rate(ortoo_flush_seconds_total[1m]) / rate(ortoo_flushes_total[1m])", "{{instance}}"),
    ("Log size", "bytes", "rocketmq_storage_size", "{{instance}}"),
    ("Enodes that are there", "short", "max by (node_id) (ortoo_process_alive)", "{{node_id}}"),
    ("Push sessions", "short", "sum by (consumer_group) (rocketmq_consumer_connections)", "{{consumer_group}}"),
    ("Evicted as slow", "short", "increase(ortoo_slow_consumers_evicted_total[10m])", "{{instance}}"),
    ("Event loop late (p99)", "s", P99.format("instance", "ortoo_event_loop_delay_seconds_bucket"), "{{instance}}"),
    ("Memory", "bytes", "process_resident_memory_bytes", "{{instance}}"),
)


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana reads it."""
    panels = [
        {
            "id": number + 1,
            "title": title,
            "type": "timeseries",
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "gridPos": {"x": number % 3 * WIDTH, "y": number // 3 * HEIGHT, "w": WIDTH, "h": HEIGHT},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [{"refId": "A", "expr": expression, "legendFormat": legend}],
        }
        for number, (title, unit, expression, legend) in enumerate(PANELS)
    ]
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "uid": "ortoo",
        "title": "Ortoo",
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [source]},
        "panels": panels,
    }


if __name__ == "__main__":
    made = dashboard()
    # One panel a line: a change of one is a change of one line.
    panels = ",\n".join(json.dumps(panel) for panel in made.pop("panels"))
    FILE.write_text(f'{json.dumps(made)[:-1]}, "panels": [\n{panels}\n]}}\n')
    sys.stdout.write(f"{len(PANELS)} panels\n")
