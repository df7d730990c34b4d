"""Every alert fires in its fault and is silent in a clean run; a real Prometheus scrapes real processes."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.alert_faults import FAULTS, alert_faults, damaged_log, dead_enode, full_disk
from tests.deploy.prometheus import MISSING, PROMTOOL, RULES
from tests.deploy.test_chart import objects, rendered
from tests.repo.tree import ROOT

DASHBOARDS = [ROOT / "deploy/k8s/chart/files" / name for name in ("dashboard.json", "objectives.json")]
with_prometheus = pytest.mark.skipif(bool(MISSING), reason=f"NO {', '.join(MISSING)}; install Prometheus")
PRODUCE = 'request_code="ortoo.v1.ProducerService/Produce"'
SENDMESSAGE = 'request_code="apache.rocketmq.v2.MessagingService/SendMessage"'
YEAR_S = 365 * 86_400


def certificate(
    left_days: float, lifetime_s: int, clean_left_days: float, clean_lifetime_s: int = YEAR_S
) -> list[tuple[str, str, str]]:
    """The series of a certificate, in the fault and in a clean run; 35 minutes are small against its validity."""
    ends_s, clean_s = int(left_days * 86_400), int(clean_left_days * 86_400)
    return [
        ('ortoo_certificate_expiry_timestamp_seconds{setting="s",instance="a"}', f"{ends_s}x40", f"{clean_s}x40"),
        (
            'ortoo_certificate_begin_timestamp_seconds{setting="s",instance="a"}',
            f"{ends_s - lifetime_s}x40",
            f"{clean_s - clean_lifetime_s}x40",
        ),
    ]


# Alert to (series, values in the fault, values in a clean run), one value a minute.
SERIES: dict[str, list[tuple[str, str, str]]] = {
    "OrtooProcessDown": [('up{job="ortoo",instance="a"}', "0x40", "1x40")],
    "OrtooNoNameServer": [('ortoo_build_info{node_type="namesrv"}', "1x5 _x35", "1x40")],
    "OrtooNoEnode": [('ortoo_build_info{node_type="enode"}', "1x5 _x35", "1x40")],
    "OrtooNoSnode": [('ortoo_build_info{node_type="snode"}', "1x5 _x35", "1x40")],
    "OrtooEnodeAway": [('ortoo_process_alive{node_type="enode",node_id="e"}', "0x40", "1x40")],
    "OrtooLeaderless": [('ortoo_enode_leaderless{enode="e",instance="a"}', "1x40", "0x40")],
    "OrtooUnderReplicated": [('ortoo_enode_under_replicated{enode="e",instance="a"}', "1x40", "0x40")],
    "OrtooTakeOvers": [('ortoo_enode_take_overs_total{enode="e",instance="a"}', "0+1x40", "4x40")],
    "OrtooNotWritable": [('ortoo_writable{instance="a"}', "0x40", "1x40")],
    "OrtooIndexNearlyFull": [
        ('ortoo_index_bytes{instance="a"}', "900x40", "700x40"),
        ('ortoo_index_bytes_max{instance="a"}', "1000x40", "1000x40"),
    ],
    "OrtooDamagedLog": [('ortoo_damaged_places{instance="a"}', "1x40", "0x40")],
    "OrtooNotReady": [('ortoo_ready{instance="a"}', "0x40", "1x40")],
    "OrtooDatabaseAway": [('ortoo_changes_total{outcome="failed",instance="a"}', "0+1x40", "5x40")],
    "OrtooMembershipStoreAway": [('ortoo_membership_store_up{instance="a"}', "0x40", "1x40")],
    "OrtooGroupFallsBehind": [
        ('rocketmq_consumer_lag_messages{topic="t",consumer_group="g"}', "9000+1000x40", "50000-1000x40")
    ],
    "OrtooOldMessage": [('rocketmq_consumer_lag_latency{topic="t",consumer_group="g"}', "700000x40", "1000x40")],
    "OrtooOldTransaction": [
        ('ortoo_oldest_transaction_seconds{topic="t",producer_group="g",instance="a"}', "1000+60x40", "20x40")
    ],
    "OrtooSlowConsumer": [('ortoo_slow_consumers_evicted_total{instance="a"}', "0+1x40", "3x40")],
    "OrtooDeadLetters": [
        ('rocketmq_send_to_dlq_messages_total{topic="t",consumer_group="g",instance="a"}', "_x25 1x15", "7x40")
    ],
    "OrtooManyDeadLetters": [
        ('rocketmq_send_to_dlq_messages_total{topic="t",consumer_group="g",instance="b"}', "0+10x40", "7x40")
    ],
    "OrtooHandlerFails": [
        ('ortoo_group_failed_attempts{topic="%RETRY%g",consumer_group="g"}', "1x5 5x35", "1x40"),
        ('ortoo_group_messages{topic="%RETRY%g",consumer_group="g",state="retrying"}', "7x40", "7x40"),
        ('ortoo_group_messages{topic="t",consumer_group="g",state="waiting"}', "7000x40", "7000x40"),
    ],
    "OrtooRetentionNearlyUsed": [
        ('ortoo_group_retention_used_ratio{topic="t",consumer_group="g"}', "0.5+0.02x40", "0.6x40")
    ],
    "OrtooMessagesLost": [('ortoo_group_lost_messages_total{topic="t",consumer_group="g"}', "_x25 3x15", "3x40")],
    "OrtooSendsFail": [
        (f'ortoo_send_latency_count{{{PRODUCE},response_code="OK"}}', "0+97x40", "0+97x40"),
        (f'ortoo_send_latency_count{{{PRODUCE},response_code="UNAVAILABLE"}}', "0+3x40", "3x40"),
        (f'ortoo_send_latency_count{{{SENDMESSAGE},response_code="NOT_FOUND"}}', "0x40", "0+50x40"),
    ],
    "OrtooSendsSlow": [
        (f'ortoo_send_latency_count{{{PRODUCE},response_code="OK"}}', "0+97x40", "0+97x40"),
        (f'ortoo_send_latency_bucket{{{PRODUCE},le="100",response_code="OK"}}', "0+80x40", "0+97x40"),
        (f'ortoo_send_latency_bucket{{{SENDMESSAGE},le="100.0",response_code="NOT_FOUND"}}', "0x40", "0+50x40"),
    ],
    "OrtooDefect": [
        ('ortoo_failures_total{kind="INTERNAL",instance="a"}', "0+1x40", "2x40"),
        ('ortoo_failures_total{kind="UNAVAILABLE",instance="a"}', "0x40", "0+9x40"),
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
    "OrtooDiskFillsUp": [
        ('ortoo_disk_free_bytes{instance="a"}', "9x40", "20x40"),
        ('ortoo_disk_size_bytes{instance="a"}', "100x40", "100x40"),
    ],
    "OrtooDiskNearlyFull": [
        ('ortoo_disk_free_inodes{instance="a"}', "4x40", "20x40"),
        ('ortoo_disk_inodes{instance="a"}', "100x40", "100x40"),
        ('ortoo_disk_full_in_seconds{instance="b"}', "80000x40", "300000x40"),
    ],
    "OrtooFewDescriptors": [
        ('process_open_fds{instance="a",job="ortoo"}', "90x40", "70x40"),
        ('process_max_fds{instance="a",job="ortoo"}', "100x40", "100x40"),
        ('ortoo_build_info{node_type="snode",instance="a",job="ortoo"}', "1x40", "1x40"),
    ],
    # The clock of promtool begins at 0, and each value is one minute later.
    "OrtooClockDiffers": [
        ('ortoo_clock_seconds{instance="a"}', "5+60x40", "5+60x40"),
        ('scrape_duration_seconds{instance="a"}', "0.1x40", "4x40"),
    ],
    "OrtooCertificateExpiresIn21Days": certificate(20, YEAR_S, 22),
    "OrtooCertificateExpiresIn7Days": certificate(6, YEAR_S, 8),
    "OrtooCertificateExpiresIn1Day": certificate(-0.1, YEAR_S, 0.5, clean_lifetime_s=86_400),
    "OrtooTooManySeries": [('ortoo_metric_series_over_budget{instance="a"}', "7x40", "0x40")],
}


def alert_names() -> list[str]:
    """The alerts in the file."""
    return re.findall(r"- alert: (\w+)", RULES.read_text())


def test_every_alert_has_a_fault_and_a_runbook() -> None:
    """Every alert has a test, and a page that tells the operator what to do."""
    assert sorted(SERIES) == sorted(alert_names())
    page = (ROOT / "docs/operations/alerts.md").read_text()
    for name in alert_names():
        assert f"\n## {name}\n" in page
        assert f"runbook_url: docs/operations/alerts.md#{name.lower()}" in RULES.read_text()


@with_prometheus
def test_every_alert_fires_in_its_fault_and_only_there(tmp_path: Path) -> None:
    """Promtool plays forty minutes of each fault in one cluster, beside another cluster without a fault."""

    def case(series: list[tuple[str, str]], checks: list[tuple[str, str, bool]]) -> dict[str, Any]:
        return {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}",namespace="{cluster}",alertstate="firing"}}) > bool 0 '
                    "or vector(0)",
                    "eval_time": "35m",
                    "exp_samples": [{"labels": "{}", "value": int(fires)}],
                }
                for alert, cluster, fires in checks
            ],
        }

    def of(cluster: str, name: str) -> str:
        return name.replace("{", f'{{namespace="{cluster}",', 1)

    tests = []
    for alert, series in SERIES.items():
        clean = [(of("healthy", name), good) for name, _, good in series]
        tests.append(
            case(
                [*((of("faulty", name), bad) for name, bad, _ in series), *clean],
                [(alert, "faulty", True), (alert, "healthy", False)],
            )
        )
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    checked = subprocess.run((PROMTOOL, "check", "rules", str(RULES)), capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    done = subprocess.run((PROMTOOL, "test", "rules", str(file)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@with_prometheus
def test_a_few_failed_sends_of_a_quiet_cluster_fire_nothing(tmp_path: Path) -> None:
    """One send a minute: nine that fail, or that are slow, are many of the last hour's sends, and still no accident."""
    failed, slow = (f'ortoo_send_latency_count{{namespace="{name}",response_code=' for name in ("fails", "slow"))
    fast = 'ortoo_send_latency_bucket{namespace="slow",le="100",response_code="OK"}'
    series = {f'{failed}"OK"}}': "0+1x90", f'{failed}"UNAVAILABLE"}}': "0x60 1+1x8 9x22"}
    series |= {f'{slow}"OK"}}': "0+1x90", fast: "0+1x60 60x8 61+1x21"}
    fired = {
        "expr": 'count(count_over_time(ALERTS{alertname=~"OrtooSends.*",alertstate="firing"}[90m])) or vector(0)',
        "eval_time": "90m",
        "exp_samples": [{"labels": "{}", "value": 0}],
    }
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    tests = [{"interval": "1m", "input_series": inputs, "promql_expr_test": [fired]}]
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run((PROMTOOL, "test", "rules", str(file)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@with_prometheus
def test_a_prometheus_that_scrapes_nothing_misses_each_role(tmp_path: Path) -> None:
    """Without a series no other alert has a value."""
    roles = ("OrtooNoEnode", "OrtooNoNameServer", "OrtooNoSnode")
    fired = {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": "10m",
        "exp_samples": [{"labels": f'{{alertname="{role}"}}', "value": 1} for role in roles],
    }
    file = tmp_path / "tests.yaml"
    tests = [{"interval": "1m", "input_series": [], "promql_expr_test": [fired]}]
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run((PROMTOOL, "test", "rules", str(file)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_keeps_the_labels_of_its_cluster() -> None:
    """An aggregation without them would mix two clusters, and say for neither which one has the fault."""
    rules = RULES.read_text()
    by = re.findall(r"\bby \(([^)]*)\)", rules)
    assert len(by) > 20
    matched = re.findall(r"\bon \(([^)]*)\)", rules)
    assert [labels for labels in by + matched if not labels.startswith("cluster, namespace, ortoo_cluster")] == []
    assert not re.search(r"\b(?:sum|max|min|avg|count) ?\((?!\S* by)", rules)


def test_every_panel_can_show_one_cluster() -> None:
    """Each metric of a panel has the labels that are selected at the top of the dashboard."""
    for file in DASHBOARDS:
        board = json.loads(file.read_text())
        assert {one["name"] for one in board["templating"]["list"]} == {"datasource", "namespace", "ortoo_cluster"}
        for panel in board["panels"]:
            expression = panel["targets"][0]["expr"]
            names = re.findall(r"\b(?:ortoo|rocketmq|process)[_:]\w+|ALERTS", re.sub(r"\{[^}]*\}", "", expression))
            names = [one for one in names if one != "ortoo_cluster"]
            assert names
            assert expression.count('ortoo_cluster=~"$ortoo_cluster"') == len(names), expression


def test_rules_and_dashboard_name_metrics_that_exist() -> None:
    """Each metric in an alert or a panel is registered by some role."""
    registered = "\n".join(
        file.read_text()
        for folder in ("libs/common/src/ortoo/common", "services")
        for file in (ROOT / folder).rglob("*.py")
    )
    panels = [panel for file in DASHBOARDS for panel in json.loads(file.read_text())["panels"]]
    expressions = [panel["targets"][0]["expr"] for panel in panels]
    wanted = set(re.findall(r"\b(?:ortoo|rocketmq|process)_\w+", RULES.read_text() + " ".join(expressions)))
    plain = {re.sub(r"_(?:bucket|count|sum)$", "", name) for name in wanted} - {"ortoo_group", "ortoo_cluster"}
    assert len(plain) > 15
    dynamic = {"ortoo_flushes_total": '"flushes"'}
    assert [name for name in plain if dynamic.get(name, f'"{name}"') not in registered] == []


@with_prometheus
@pytest.mark.timeout(400)
async def test_alerts_fire_in_real_processes_and_go_with_the_fault(tmp_path: Path) -> None:
    """No alert at first; then an enode is killed, a disk is full, a log is damaged. `make alerts` runs all faults."""
    nights = [fault for fault in FAULTS if fault.make in (dead_enode, full_disk, damaged_log)]
    report = await alert_faults(tmp_path, nights, clean_s=3, say=lambda _: None)
    assert report.wrong == []
    assert {one.alert for one in report.rows} == {alert for fault in nights for alert in fault.alerts}


def test_runbook_links_are_full_where_the_installer_says_where() -> None:
    """Each alert of the installed rules links to an existing section of the page, at the URL of the values."""
    url = "https://docs.example/ortoo/alerts"
    options = ("--set", "metrics.prometheusRule.enabled=true", "--set", f"metrics.prometheusRule.runbooks={url}")
    (made,) = (one for one in objects(rendered("helm", *options)) if one["kind"] == "PrometheusRule")
    rules = [rule for group in made["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs/operations/alerts.md").read_text(), re.MULTILINE)
    links = {f"{url}#{heading.lower()}" for heading in headings}
    assert {rule["annotations"]["runbook_url"] for rule in rules} == links


def test_scraped_processes_have_the_name_of_their_release() -> None:
    """Prometheus gets it from the label of the pods; two releases of one namespace are two clusters."""
    options = ("--set", "metrics.serviceMonitor.enabled=true")
    found = objects(rendered("helm", *options))
    (monitor,) = (one for one in found if one["kind"] == "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    label = "app.kubernetes.io/instance"
    source = "__meta_kubernetes_pod_label_" + re.sub(r"\W", "_", label)
    assert endpoint["relabelings"] == [{"sourceLabels": [source], "targetLabel": "ortoo_cluster"}]
    pods = [one["spec"]["template"] for one in found if one["kind"] in ("StatefulSet", "Deployment")]
    assert pods
    assert {pod["metadata"]["labels"][label] for pod in pods} == {"r"}


def test_every_alert_has_a_real_fault() -> None:
    """`make alerts` fires each alert."""
    assert {alert for fault in FAULTS for alert in fault.alerts} == set(alert_names())
