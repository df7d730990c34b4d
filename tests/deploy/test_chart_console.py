"""The console of the chart: off by default, without secrets, and with settings that it accepts."""

from typing import Any

import pytest

from ortoo.console.settings import load
from tests.deploy.test_chart import CASES, CHART, objects, rendered, run, tool

NAME = "r-ortoo-console"


def consoles(*options: str) -> dict[str, dict[str, Any]]:
    """The objects of the console, by kind."""
    return {one["kind"]: one for one in objects(rendered("helm", *options)) if one["metadata"]["name"] == NAME}


def test_there_is_no_console_by_default() -> None:
    """An operator asks for it."""
    assert consoles() == {}


@pytest.mark.parametrize("case", ["console", "plain"])
def test_the_console_starts_with_the_settings_of_its_pod(case: str) -> None:
    """The variables are settings of the console, and name the Service of the snodes. The pod holds no token."""
    options = CASES["console"] if case == "console" else ("--set", "console.enabled=true")
    found = consoles(*options)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environ = {one["name"]: one.get("value", "pod-1") for one in container["env"]}
    settings = load({name: value for name, value in environ.items() if name.startswith("ORTOO_CONSOLE_")}).settings
    assert settings.snode_addresses == ["r-ortoo:8443" if case == "console" else "r-ortoo:8081"]
    assert bool(settings.tls_ca_file) == (case == "console")
    assert not settings.is_local
    assert settings.metrics_address == "0.0.0.0:9464"
    assert {"name": "metrics", "containerPort": 9464} in container["ports"], "the port that the PodMonitor scrapes"
    assert container["readinessProbe"]["httpGet"] == {"port": "http", "path": "/healthz"}
    secrets = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
    assert secrets == (["roots"] if case == "console" else [])


def test_browsers_reach_the_console_by_its_names_alone() -> None:
    """The Ingress has its hosts and certificate; the policy opens one port to them."""
    found = consoles(*CASES["console"])
    assert [rule["host"] for rule in found["Ingress"]["spec"]["rules"]] == ["queues.example"]
    assert found["Ingress"]["spec"]["tls"] == [{"secretName": "web", "hosts": ["queues.example"]}]
    pages, metrics = found["NetworkPolicy"]["spec"]["ingress"]
    assert pages["ports"] == [{"port": 8088, "protocol": "TCP"}]
    assert metrics["ports"] == [{"port": "metrics", "protocol": "TCP"}]


def test_the_chart_without_metrics_opens_no_port_for_them() -> None:
    """The value for all roles counts for the console too."""
    found = consoles(*CASES["console"], "--set", "metrics.enabled=false")
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert [one["name"] for one in container["ports"]] == ["http"]
    assert "ORTOO_CONSOLE_METRICS_ADDRESS" not in {one["name"] for one in container["env"]}
    assert len(found["NetworkPolicy"]["spec"]["ingress"]) == 1


def test_plaintext_calls_that_snodes_refuse_are_noticed_before_the_start() -> None:
    """The error names the value to set."""
    options = ("console.enabled=true", "snode.tls.required=true", "snode.tls.existingSecret.name=cert")
    done = run(tool("helm"), "template", "r", str(CHART), *(word for one in options for word in ("--set", one)))
    assert done.returncode != 0
    assert "set console.tls.existingSecret.name" in done.stderr
