"""Placement of pods, network policies, triggers of replacement, and the settings in the values."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ortoo.verification.servers.cluster import open_cluster
from tests.deploy.test_chart import CASES, CHART, ROLES, containers, objects, rendered, run, tool
from tests.repo.chart_schema import filled, text_of


def found(*options: str) -> list[dict[str, Any]]:
    """The objects of the chart for some `--set` options."""
    return objects(rendered("helm", *(word for option in options for word in ("--set", option))))


def named(all_of_them: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """One object."""
    (one,) = (one for one in all_of_them if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return one


def pod(all_of_them: list[dict[str, Any]], role: str) -> dict[str, Any]:
    """The template of a role's pods."""
    template: dict[str, Any] = named(
        all_of_them, "Deployment" if role == "snode" else "StatefulSet", f"r-ortoo-{role}"
    )["spec"]["template"]
    return template


@pytest.mark.parametrize("role", ROLES)
def test_pods_of_a_role_are_spread_and_can_be_placed(role: str) -> None:
    """Spread over machines and zones by default; the priority class and annotations come from the values."""
    template = pod(found(), role)
    labels = template["metadata"]["labels"]
    spread = template["spec"]["topologySpreadConstraints"]
    assert [one["topologyKey"] for one in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    for one in spread:
        assert one["whenUnsatisfiable"] == "ScheduleAnyway"
        assert one["labelSelector"]["matchLabels"].items() <= labels.items()
        assert one["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == role
    assert "priorityClassName" not in template["spec"]

    own = f"{role}.topologySpreadConstraints[0]"
    options = (f"{own}.maxSkew=2", f"{own}.topologyKey=rack", f"{own}.whenUnsatisfiable=DoNotSchedule")
    more = (f"{role}.priorityClassName=high", f"{role}.podAnnotations.team=queues", f"{role}.service.annotations.dns=x")
    chosen = found(*options, *more)
    template = pod(chosen, role)
    (one,) = template["spec"]["topologySpreadConstraints"]
    assert (one["maxSkew"], one["topologyKey"], one["whenUnsatisfiable"]) == (2, "rack", "DoNotSchedule")
    assert one["labelSelector"]["matchLabels"].items() <= labels.items()
    assert template["spec"]["priorityClassName"] == "high"
    assert template["metadata"]["annotations"]["team"] == "queues"
    service = named(chosen, "Service", "r-ortoo" if role == "snode" else f"r-ortoo-{role}")
    assert service["metadata"]["annotations"] == {"dns": "x"}


def test_pods_are_replaced_when_what_they_read_at_their_start_changes() -> None:
    """A changed URL or token key replaces pods.

    Rules, limits and numbers of pods do not: pods follow them while they run.
    """

    def sums(*options: str) -> dict[str, str]:
        return {role: pod(found(*options), role)["metadata"]["annotations"]["checksum/config"] for role in ROLES}

    def changed(*options: str) -> set[str]:
        after = sums(*options)
        return {role for role in ROLES if after[role] != before[role]}

    before = sums("postgresql.url=postgresql+psycopg://a/b", "redis.url=redis://a/0")
    assert changed("postgresql.url=postgresql+psycopg://c/b", "redis.url=redis://a/0") == {"namesrv"}
    assert changed("postgresql.url=postgresql+psycopg://a/b", "redis.url=redis://c/0") == {"snode"}
    both = ("postgresql.url=postgresql+psycopg://a/b", "redis.url=redis://a/0")
    assert changed(*both, "secrets.existingSecret.name=mine") == set(ROLES)
    rules = ("insecure=true", "snode.access.rules=x")
    assert changed(*both, *rules, "snode.flowControl.limits=y", "enode.replicas=3") == set()


def test_a_snode_without_redis_is_replaced_and_never_doubled() -> None:
    """Two snodes that do not share group members would each assign all queues."""

    def strategy(*options: str) -> str:
        deployment = named(found(*options), "Deployment", "r-ortoo-snode")
        return str(deployment["spec"].get("strategy", {}).get("type", "RollingUpdate"))

    assert strategy() == "Recreate"
    assert strategy("redis.url=redis://a/0") == "RollingUpdate"


def test_policies_let_load_balancers_in_and_name_the_port_of_metrics() -> None:
    """Traffic from outside belongs to no namespace; metrics are open to the namespaces that may scrape."""

    def ingress(role: str, *options: str) -> list[dict[str, Any]]:
        rules: list[dict[str, Any]] = named(found(*options), "NetworkPolicy", f"r-ortoo-{role}")["spec"]["ingress"]
        return rules

    def blocks(role: str, *options: str) -> list[str]:
        return [peer["ipBlock"]["cidr"] for peer in ingress(role, *options)[0]["from"] if "ipBlock" in peer]

    cidr = "networkPolicy.clientCidrs[0]=10.0.0.0/8"
    assert blocks("snode") == []
    for kind in ("LoadBalancer", "NodePort"):
        assert blocks("snode", f"snode.service.type={kind}") == ["0.0.0.0/0", "::/0"]
        assert blocks("snode", f"snode.service.type={kind}", cidr) == ["10.0.0.0/8"]
        assert blocks("enode", f"snode.service.type={kind}") == blocks("namesrv", f"snode.service.type={kind}") == []
    assert blocks("snode", cidr) == ["10.0.0.0/8"]
    only = "networkPolicy.metricsNamespaceSelector.matchLabels.name=monitoring"
    for role in ROLES:
        ports = {port["name"] for port in pod(found(), role)["spec"]["containers"][0]["ports"]}
        (rule,) = (rule for rule in ingress(role, only) if rule["ports"][0]["port"] == "metrics")
        assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
        assert "metrics" in ports
        assert len(ingress(role, "metrics.enabled=false")) == 1
    service = named(
        found(
            "snode.service.type=LoadBalancer",
            "snode.service.externalTrafficPolicy=Local",
            "snode.service.loadBalancerSourceRanges[0]=10.0.0.0/8",
        ),
        "Service",
        "r-ortoo",
    )["spec"]
    assert (service["externalTrafficPolicy"], service["loadBalancerSourceRanges"]) == ("Local", ["10.0.0.0/8"])
    bundled = objects(rendered("helm", *CASES["bundled"]))
    for name, user in (("postgresql", "namesrv"), ("redis", "snode")):
        (rule,) = named(bundled, "NetworkPolicy", f"r-ortoo-{name}")["spec"]["ingress"]
        (peer,) = rule["from"]
        assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == user


def test_schema_has_every_setting_of_the_code() -> None:
    """The schema (values.schema.json) is the output of `make manifests`: each role's settings with type and range."""
    text = (CHART / "values.schema.json").read_text(encoding="utf-8")
    assert text == text_of(filled(json.loads(text)))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("enode.settings.store\\.flush_mod=sync", "store.flush_mod"),
        ("enode.settings.store\\.flush_mode=never", "store.flush_mode"),
        ("snode.settings.enode_timeout_ms=1", "enode_timeout_ms"),
        ("snode.settings.enode_timeout_ms=soon", "enode_timeout_ms"),
        ("namesrv.settings.lease_s=0", "lease_s"),
        ("snode.settings.tls_required=perhaps", "tls_required"),
        ("enode.settings.store\\.enode=x", "store.enode"),
        ("enode.topologySpreadConstraints[0].maxSkew=1", "topologyKey"),
        ("networkPolicy.clientCidrs[0]=everybody", "clientCidrs"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: str, said: str) -> None:
    """An unknown setting, a wrong type and a number out of range stop the installation and are named."""
    done = run(tool("helm"), "template", "r", str(CHART), "--set", wrong)
    assert done.returncode != 0
    assert said in done.stderr


def test_settings_arrive_as_they_are_given() -> None:
    """Fractions stay fractions, large numbers have no exponent, and numbers in text are unchanged."""
    given = found("namesrv.settings.lease_s=2.5", "enode.settings.store\\.retention_bytes=5000000000000")
    values = {
        one["name"]: one.get("value") for _, _, container in containers(given) for one in container.get("env", ())
    }
    assert values["ORTOO_NAMESRV_LEASE_S"] == "2.5"
    assert values["ORTOO_ENODE_STORE_RETENTION_BYTES"] == "5000000000000"
    text = objects(rendered("helm", "--set-string", "namesrv.settings.lease_s=2.5"))
    assert {"name": "ORTOO_NAMESRV_LEASE_S", "value": "2.5"} in pod(text, "namesrv")["spec"]["containers"][0]["env"]


async def test_helm_test_sends_messages_through_the_cluster(tmp_path: Path) -> None:
    """The hook's command creates its topic, works a second time, and fails where there is no cluster."""
    one = named(found("tests.existingSecret.name=user"), "Pod", "r-ortoo-test")
    (container,) = one["spec"]["containers"]
    env = {variable["name"]: variable for variable in container["env"]}
    assert one["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert one["spec"]["restartPolicy"] == "Never"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert env["ORTOO_ADDRESS"]["value"] == "r-ortoo:8081"
    assert env["ORTOO_ACCESS_KEY"]["valueFrom"]["secretKeyRef"] == {"name": "user", "key": "access-key"}
    assert named(found(), "Service", "r-ortoo")["spec"]["ports"][0]["port"] == 8081

    async def status(address: str) -> int:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        given = {"TOPIC": env["TOPIC"]["value"], "ORTOO_ADDRESS": address, "HOME": str(tmp_path), "PATH": path}
        environ = {**os.environ, **given}
        silent = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*container["command"], env=environ, stdout=silent, stderr=silent)
        return await process.wait()

    async with open_cluster(tmp_path / "cluster") as cluster:
        address = cluster.address
        assert [await status(address) for _ in range(2)] == [0, 0]
    assert await status(address) != 0


def test_helm_test_is_left_out_where_only_tls_is_spoken() -> None:
    """It would be refused there. The manifests for users without Helm do not contain it either."""
    tls = found("snode.tls.existingSecret.name=c", "snode.tls.required=true")
    assert not [one for one in tls if one["kind"] == "Pod"]
    assert not list((CHART.parent / "manifests").glob("*/test.yaml"))
