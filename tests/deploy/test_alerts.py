"""Every alert fires in its fault and is silent in a clean run; a real Prometheus scrapes real processes."""

import asyncio
import json
import re
import shutil
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from ortoo.client import connect
from ortoo.common.clock import SystemClock
from ortoo.testing.processes import process_cluster
from ortoo.testing.scrape import get, scraped
from tests.integration.test_metrics import free_ports
from tests.repo.tree import ROOT

RULES = ROOT / "deploy/k8s/chart/files/alerts.yaml"
DASHBOARD = ROOT / "deploy/k8s/chart/files/dashboard.json"
MISSING = [tool for tool in ("prometheus", "promtool") if shutil.which(tool) is None]
with_prometheus = pytest.mark.skipif(bool(MISSING), reason=f"NOT CHECKED: {', '.join(MISSING)} not installed here")

# Alert to (series, values in the fault, values in a clean run), one value a minute.
FAULTS: dict[str, list[tuple[str, str, str]]] = {
    "OrtooProcessDown": [('up{job="ortoo",instance="a"}', "0x40", "1x40")],
    "OrtooEnodeAway": [('ortoo_process_alive{node_type="enode",node_id="e"}', "0x40", "1x40")],
    "OrtooNotWritable": [('ortoo_writable{instance="a"}', "0x40", "1x40")],
    "OrtooDamagedLog": [('ortoo_damaged_places{instance="a"}', "1x40", "0x40")],
    "OrtooNotReady": [('ortoo_ready{instance="a"}', "0x40", "1x40")],
    "OrtooDatabaseAway": [('ortoo_changes_total{outcome="failed",instance="a"}', "0+1x40", "5x40")],
    "OrtooGroupFallsBehind": [
        ('rocketmq_consumer_lag_messages{topic="t",consumer_group="g"}', "9000+1000x40", "50000-1000x40")
    ],
    "OrtooOldMessage": [('rocketmq_consumer_lag_latency{topic="t",consumer_group="g"}', "700000x40", "1000x40")],
    "OrtooSlowConsumer": [('ortoo_slow_consumers_evicted_total{instance="a"}', "0+1x40", "3x40")],
    "OrtooDefect": [
        ('rocketmq_rpc_latency_count{request_code="m",response_code="INTERNAL",instance="a"}', "0+1x40", "2x40")
    ],
    "OrtooOverloaded": [
        ('ortoo_event_loop_delay_seconds_bucket{le="0.1",instance="a"}', "0+0x40", "0+100x40"),
        ('ortoo_event_loop_delay_seconds_bucket{le="1",instance="a"}', "0+100x40", "0+100x40"),
        ('ortoo_event_loop_delay_seconds_bucket{le="+Inf",instance="a"}', "0+100x40", "0+100x40"),
    ],
    "OrtooSlowDisk": [
        ('ortoo_flush_seconds_total{instance="a"}', "0+20x40", "0+1x40"),
        ('ortoo_flushes_total{instance="a"}', "0+100x40", "0+100x40"),
    ],
    "OrtooTooManySeries": [('ortoo_metric_series_over_budget{instance="a"}', "7x40", "0x40")],
}


def alert_names() -> list[str]:
    """The alerts in the file."""
    return re.findall(r"- alert: (\w+)", RULES.read_text())


def test_every_alert_has_a_fault_and_a_runbook() -> None:
    """No alert without a test, nor without a page that says what to do."""
    assert sorted(FAULTS) == sorted(alert_names())
    page = (ROOT / "docs/operations/alerts.md").read_text()
    for name in alert_names():
        assert f"\n## {name}\n" in page
        assert f"runbook: docs/operations/alerts.md#{name.lower()}" in RULES.read_text()


@with_prometheus
def test_every_alert_fires_in_its_fault_and_only_there(tmp_path: Path) -> None:
    """Promtool plays forty minutes of each fault, and of a clean run."""

    def case(series: list[tuple[str, str]], checks: list[tuple[str, bool]]) -> dict[str, Any]:
        return {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
                    "eval_time": "35m",
                    "exp_samples": [{"labels": "{}", "value": int(fires)}],
                }
                for alert, fires in checks
            ],
        }

    tests = [case([(n, bad) for n, bad, _ in series], [(alert, True)]) for alert, series in FAULTS.items()]
    clean = [(name, good) for series in FAULTS.values() for name, _, good in series]
    tests.append(case(clean, [(alert, False) for alert in FAULTS]))
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    checked = subprocess.run(("promtool", "check", "rules", str(RULES)), capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    done = subprocess.run(("promtool", "test", "rules", str(file)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_and_dashboard_name_metrics_that_exist() -> None:
    """Each metric in an alert or a panel is one that some role registers."""
    registered = "\n".join(
        file.read_text()
        for folder in ("libs/common/src/ortoo/common", "services")
        for file in (ROOT / folder).rglob("*.py")
    )
    panels = json.loads(DASHBOARD.read_text())["panels"]
    expressions = [panel["targets"][0]["expr"] for panel in panels]
    wanted = set(re.findall(r"\b(?:ortoo|rocketmq|process)_\w+", RULES.read_text() + " ".join(expressions)))
    plain = {re.sub(r"_(?:bucket|count|sum)$", "", name) for name in wanted} - {"ortoo_group"}
    assert len(plain) > 15
    dynamic = {"ortoo_flushes_total": '"flushes"'}
    assert [name for name in plain if dynamic.get(name, f'"{name}"') not in registered] == []


async def value_of(prometheus: str, expression: str) -> float | None:
    """What Prometheus answers; None when it has nothing."""
    answer = await get(prometheus, f"/api/v1/query?query={urllib.parse.quote(expression)}")
    body = answer.body
    if b"chunked" in answer.headers.lower().encode():
        body = b"".join(re.split(rb"\r\n[0-9a-f]+\r\n", b"\r\n" + body))
    found = json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])["data"]["result"]
    return float(found[0]["value"][1]) if found else None


@with_prometheus
async def test_prometheus_scrapes_every_process_and_notices_a_dead_enode(tmp_path: Path) -> None:
    """A real Prometheus sees three processes up and their messages; killing the enode fires its alert, nothing else."""
    *ports, own = free_ports(4)
    roles = ("namesrv", "enode", "snode")
    addresses = {role: f"127.0.0.1:{port}" for role, port in zip(roles, ports, strict=True)}
    environ: dict[str, dict[str, object]] = {role: {"METRICS_ADDRESS": addresses[role]} for role in roles}
    environ["namesrv"]["LEASE_S"] = 1.0
    environ["enode"] |= {"STORE_SEGMENT_BYTES": 4 << 20, "STORE_HEADROOM_BYTES": 0}
    rules = tmp_path / "rules.yaml"
    rules.write_text(re.sub(r"for: \w+", "for: 0s", RULES.read_text()))
    config = tmp_path / "prometheus.yaml"
    targets = [{"targets": list(addresses.values())}]
    jobs = [{"job_name": "ortoo", "static_configs": targets}]
    times = {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"}
    config.write_text(json.dumps({"global": times, "rule_files": [str(rules)], "scrape_configs": jobs}))
    prometheus = f"127.0.0.1:{own}"
    async with process_cluster(tmp_path / "cluster", environ=environ) as cluster:
        process = await asyncio.create_subprocess_exec(
            *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"),
            f"--web.listen-address={prometheus}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with connect(cluster.address) as mq:
                await mq.admin.create_topic("t")
                async with mq.producer("t") as producer:
                    await producer.send(b"seen by Prometheus")
            assert (await scraped(addresses["enode"]))["rocketmq_messages_in_total"] == {(("topic", "t"),): 1}
            await until(prometheus, 'sum(up{job="ortoo"})', 3)
            await until(prometheus, 'rocketmq_messages_in_total{topic="t"}', 1)
            firing = 'count(ALERTS{alertstate="firing"}) or vector(0)'
            assert await value_of(prometheus, firing) == 0
            await cluster.enode.kill()
            await until(prometheus, 'count(ALERTS{alertname="OrtooEnodeAway",alertstate="firing"})', 1)
            await until(prometheus, 'count(ALERTS{alertname="OrtooProcessDown",alertstate="firing"})', 1)
            await cluster.enode.start()
            await until(prometheus, firing, 0)
        finally:
            process.kill()
            await process.wait()


async def until(prometheus: str, expression: str, value: float) -> None:
    """Wait until Prometheus answers so."""
    async with asyncio.timeout(60):
        while True:
            try:
                if await value_of(prometheus, expression) == value:
                    return
            except (OSError, ValueError, KeyError):
                pass
            await SystemClock().sleep(0.3)
