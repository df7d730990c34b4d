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
    assert container["readinessProbe"]["httpGet"] == {"port": "http", "path": "/healthz"}
    secrets = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
    assert secrets == (["roots"] if case == "console" else [])


def test_browsers_reach_the_console_by_its_names_alone() -> None:
    """The Ingress has its hosts and certificate; the policy opens one port."""
    found = consoles(*CASES["console"])
    assert [rule["host"] for rule in found["Ingress"]["spec"]["rules"]] == ["queues.example"]
    assert found["Ingress"]["spec"]["tls"] == [{"secretName": "web", "hosts": ["queues.example"]}]
    (ingress,) = found["NetworkPolicy"]["spec"]["ingress"]
    assert ingress["ports"] == [{"port": 8088, "protocol": "TCP"}]


def test_plaintext_calls_that_snodes_refuse_are_noticed_before_the_start() -> None:
    """The error names the value to set."""
    options = ("console.enabled=true", "snode.tls.required=true", "snode.tls.existingSecret.name=cert")
    done = run(tool("helm"), "template", "r", str(CHART), *(word for one in options for word in ("--set", one)))
    assert done.returncode != 0
    assert "set console.tls.existingSecret.name" in done.stderr
