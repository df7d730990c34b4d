"""A strict environment installs the chart without a copy of it: `examples/bank.yaml`, `overrides` and `extra...`.

Each need is one check of the rendered objects. The validators of test_chart.py accept the same objects.
"""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ortoo.snode.membership.redis_url import redis_client
from ortoo.verification.servers.cluster import open_cluster
from tests.deploy.test_chart import CASES, CHART, HELMS, objects, rendered, run, tool
from tests.deploy.test_chart_placement import found, named
from tests.deploy.test_chart_upgrade import attempt, upgraded

Objects = list[dict[str, Any]]
FULL = "payments-mq"


def bank() -> Objects:
    """The objects of the example."""
    return objects(rendered("helm", *CASES["bank"]))


def enode_pod(all_of_them: Objects) -> dict[str, Any]:
    """The spec of the enodes' pods."""
    spec: dict[str, Any] = named(all_of_them, "StatefulSet", f"{FULL}-enode")["spec"]["template"]["spec"]
    return spec


def enode(all_of_them: Objects) -> dict[str, Any]:
    """The enode's container."""
    container: dict[str, Any] = enode_pod(all_of_them)["containers"][0]
    return container


def variables(container: dict[str, Any]) -> dict[str, Any]:
    """The values of a container's environment."""
    return {one["name"]: one.get("value") for one in container["env"]}


def snode_spec(all_of_them: Objects) -> dict[str, Any]:
    """The spec of the snodes' Deployment."""
    spec: dict[str, Any] = named(all_of_them, "Deployment", f"{FULL}-snode")["spec"]
    return spec


def cron(all_of_them: Objects, name: str) -> dict[str, Any]:
    """The spec of the pods of a backup."""
    job: dict[str, Any] = named(all_of_them, "CronJob", f"{FULL}-backup-{name}")["spec"]["jobTemplate"]
    spec: dict[str, Any] = job["spec"]["template"]["spec"]
    return spec


def of_chart(all_of_them: Objects) -> Objects:
    """The objects of the chart, without those that the values add."""
    return [one for one in all_of_them if one["kind"] != "ExternalSecret"]


def pods(all_of_them: Objects) -> Objects:
    """The specs of all pods."""
    specs = [one["spec"] for one in all_of_them if one["kind"] == "Pod"]
    templates = [one["spec"].get("template") for one in all_of_them if "spec" in one]
    return specs + [template["spec"] for template in templates if template] + [cron(all_of_them, "directory")]


NEEDS: dict[str, Callable[[Objects], bool]] = {
    "names of one's own": lambda all_: all(one["metadata"]["name"].startswith(FULL) for one in all_),
    "labels of every object": lambda all_: all(
        one["metadata"]["labels"]["cost-center"] == "4711" for one in of_chart(all_)
    ),
    "annotations of every object": lambda all_: all(
        one["metadata"]["annotations"]["owner"] == "payments@bank.example" for one in of_chart(all_)
    ),
    "labels of pods": lambda all_: (
        named(all_, "StatefulSet", f"{FULL}-enode")["spec"]["template"]["metadata"]["labels"]["backup-policy"] == "gold"
    ),
    "users that the platform chooses": lambda all_: all(
        not {"runAsUser", "runAsGroup", "fsGroup"} & pod["securityContext"].keys() for pod in pods(all_)
    ),
    "security context of pods": lambda all_: all(
        pod["securityContext"]["supplementalGroups"] == [2000] and pod["securityContext"]["runAsNonRoot"]
        for pod in pods(all_)
    ),
    "security context of containers": lambda all_: all(
        pod["containers"][0]["securityContext"].items() >= {"privileged": False, "readOnlyRootFilesystem": True}.items()
        for pod in pods(all_)
    ),
    "dual-stack Services": lambda all_: all(
        (one["spec"]["ipFamilyPolicy"], one["spec"]["ipFamilies"]) == ("PreferDualStack", ["IPv6", "IPv4"])
        for one in all_
        if one["kind"] == "Service"
    ),
    "listening on both families": lambda all_: variables(enode(all_))["ORTOO_ENODE_LISTEN_ADDRESS"] == "[::]:8091",
    "addresses of pods in brackets": lambda all_: (
        variables(snode_spec(all_)["template"]["spec"]["containers"][0])["ORTOO_SNODE_ADVERTISED_ADDRESS"]
        == "[$(POD_IP)]:8081"
    ),
    "own roots of certificates": lambda all_: (
        variables(enode(all_))["SSL_CERT_FILE"] == "/etc/ortoo/trusted-ca/ca.crt"
        and {
            "name": "trusted-ca",
            "configMap": {"name": "bank-roots", "items": [{"key": "roots.pem", "path": "ca.crt"}]},
        }
        in enode_pod(all_)["volumes"]
    ),
    "own service account": lambda all_: (
        {pod["serviceAccountName"] for pod in pods(all_)} == {"payments-mq-workload"}
        and not [one for one in all_ if one["kind"] == "ServiceAccount"]
    ),
    "variables": lambda all_: variables(enode(all_))["TZ"] == "UTC",
    "sources of variables": lambda all_: (
        named(all_, "StatefulSet", f"{FULL}-namesrv")["spec"]["template"]["spec"]["containers"][0]["envFrom"]
        == [{"configMapRef": {"name": "proxy-settings"}}]
    ),
    "volumes": lambda all_: "audit" in {one["name"] for one in enode_pod(all_)["volumes"]},
    "mounts": lambda all_: {"name": "audit", "mountPath": "/var/log/audit"} in enode(all_)["volumeMounts"],
    "init containers": lambda all_: [one["name"] for one in enode_pod(all_)["initContainers"]] == ["await-vault"],
    "sidecars": lambda all_: [one["name"] for one in enode_pod(all_)["containers"]] == ["enode", "log-shipper"],
    "timing of probes": lambda all_: (
        enode(all_)["startupProbe"]["failureThreshold"] == 900
        and enode(all_)["livenessProbe"]["timeoutSeconds"] == 20
        and enode(all_)["livenessProbe"]["grpc"] == {"port": 8091, "service": "live"}
    ),
    "Redis behind Sentinels": lambda all_: (
        redis_client(named(all_, "Secret", f"{FULL}-redis")["stringData"]["url"]).connection_pool.service_name
        == "groups"
    ),
    "an Ingress for gRPC": lambda all_: (
        named(all_, "Ingress", FULL)["spec"]["rules"][0]["http"]["paths"][0]["backend"]
        == {"service": {"name": FULL, "port": {"number": 8081}}}
    ),
    "a route of a Gateway": lambda all_: (
        named(all_, "GRPCRoute", FULL)["spec"]["rules"][0]["backendRefs"] == [{"name": FULL, "port": 8081}]
    ),
    "limited outgoing connections": lambda all_: all(
        one["spec"]["policyTypes"] == ["Ingress", "Egress"] and len(one["spec"]["egress"]) == 4
        for one in all_
        if one["kind"] == "NetworkPolicy"
    ),
    "backup of the directory": lambda all_: (
        cron(all_, "directory")["containers"][0]["command"][2].startswith("exec ortoo-namesrv backup")
        and "affinity" not in cron(all_, "directory")
    ),
    "backup of each enode": lambda all_: (
        [cron(all_, f"enode-{n}")["containers"][0]["command"][-1] for n in range(2)]
        == ["/backup/enode-0", "/backup/enode-1"]
    ),
    "declared topics and groups": lambda all_: (
        named(all_, "Job", f"{FULL}-declarations")["spec"]["template"]["spec"]["containers"][0]["command"][:2]
        == ["ortoo", "apply"]
    ),
    "merged fields of pods": lambda all_: (
        enode_pod(all_)["runtimeClassName"] == "gvisor"
        and enode_pod(all_)["hostAliases"][0]["ip"] == "10.20.0.9"
        and enode_pod(all_)["automountServiceAccountToken"] is False
    ),
    "patched claims": lambda all_: (
        named(all_, "StatefulSet", f"{FULL}-enode")["spec"]["volumeClaimTemplates"][0]["metadata"]["annotations"]
        == {"encryption": "hsm"}
    ),
    "patched strategy and lifecycle": lambda all_: (
        snode_spec(all_)["strategy"]["rollingUpdate"] == {"maxSurge": "25%", "maxUnavailable": 0}
        and "preStop" in snode_spec(all_)["template"]["spec"]["containers"][0]["lifecycle"]
    ),
    "removed and changed fields": lambda all_: (
        named(all_, "PodDisruptionBudget", f"{FULL}-snode")["spec"].items() >= {"minAvailable": 2}.items()
        and "maxUnavailable" not in named(all_, "PodDisruptionBudget", f"{FULL}-snode")["spec"]
    ),
    "a load balancer of another class": lambda all_: (
        named(all_, "Service", FULL)["spec"]["loadBalancerClass"] == "internal"
    ),
    "objects of other operators": lambda all_: (
        named(all_, "ExternalSecret", "payments-mq-secrets")["spec"]["dataFrom"] == [{"extract": {"key": "payments/r"}}]
    ),
}


@pytest.mark.parametrize("need", NEEDS)
def test_a_bank_needs_no_copy_of_the_chart(need: str) -> None:
    """The rendered objects of the example have this."""
    assert NEEDS[need](bank())


OVERRIDES: dict[str, tuple[dict[str, Any], str]] = {
    "another component": ({"kind": "StatefulSet", "component": "enodes", "merge": {}}, "selects no object"),
    "a missing key": (
        {"kind": "Service", "component": "snode", "patch": [{"op": "replace", "path": "/spec/typ", "value": "x"}]},
        'there is no "typ"; expected one of ports, selector, type',
    ),
    "an index beyond the end": (
        {"kind": "Service", "component": "snode", "patch": [{"op": "remove", "path": "/spec/ports/1"}]},
        'there is no "1"; expected a number below 1, or - to add at the end',
    ),
    "a value that is no map": (
        {"kind": "Service", "component": "snode", "patch": [{"op": "add", "path": "/spec/type/x", "value": 1}]},
        "neither a map nor a list",
    ),
    "no value": ({"kind": "Service", "component": "snode", "patch": [{"op": "add", "path": "/spec/x"}]}, "missing"),
    "another step": ({"kind": "Service", "patch": [{"op": "move", "path": "/spec/x"}]}, "op"),
}


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("wrong", OVERRIDES)
def test_overrides_that_cannot_apply_are_refused(helm: str, wrong: str) -> None:
    """A misspelt selection and a missing place stop the installation, and the text says what is there."""
    override, said = OVERRIDES[wrong]
    done = run(tool(helm), "template", "r", str(CHART), "--set-json", f"overrides={json.dumps([override])}")
    assert done.returncode != 0
    assert said in done.stderr


def test_steps_of_a_patch_follow_the_standard() -> None:
    """Steps insert before an index, add at the end, replace and remove; / and ~ of a key are escaped."""
    steps = [
        {"op": "add", "path": "/spec/ports/0", "value": {"name": "a", "port": 1}},
        {"op": "add", "path": "/spec/ports/-", "value": {"name": "z", "port": 9}},
        {"op": "replace", "path": "/spec/ports/1/port", "value": 5},
        {"op": "add", "path": "/metadata/labels/x.y~1z~0", "value": "1"},
        {"op": "remove", "path": "/metadata/labels/app.kubernetes.io~1version"},
    ]
    override = {"kind": "Service", "component": "snode", "patch": steps}
    service = named(
        objects(rendered("helm", "--set-json", f"overrides={json.dumps([override])}")), "Service", "r-ortoo"
    )
    assert [(one["name"], one["port"]) for one in service["spec"]["ports"]] == [("a", 1), ("grpc", 5), ("z", 9)]
    assert service["metadata"]["labels"]["x.y/z~"] == "1"
    assert "app.kubernetes.io/version" not in service["metadata"]["labels"]


LONG = ("payments-settlement-northern-europe-production-a", "payments-settlement-northern-europe-production-b")


@pytest.mark.parametrize("helm", HELMS)
def test_releases_with_long_names_have_different_objects(helm: str) -> None:
    """A hash replaces the part of a name that is cut, and no name exceeds the limit of its kind."""
    names = []
    for release in LONG:
        options = ("--set", "backup.enabled=true", "--set", "enode.replicas=101")
        done = run(tool(helm), "template", release, str(CHART), "--namespace", "n", *options)
        made = objects(done.stdout)
        names.append({(one["kind"], one["metadata"]["name"]) for one in made})
        assert max(len(name) for kind, name in names[-1] if kind == "CronJob") <= 52
        assert max(len(name) for _, name in names[-1]) <= 63
        assert len(names[-1]) == len(made)
    assert not names[0] & names[1]


@pytest.mark.parametrize("helm", HELMS)
def test_a_release_keeps_the_names_that_its_volumes_have(helm: str) -> None:
    """A release of a former version, whose long name was cut without a hash, is upgraded in place."""
    former = f"{LONG[0]}-ortoo"[:40]
    set_ = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": f"{former}-namesrv", "labels": {"app.kubernetes.io/instance": LONG[0]}},
        "spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]},
    }
    for release, kept in ((LONG[0], True), (LONG[1], False)):
        done = attempt(helm, [set_], release=release)
        assert done.returncode == 0, done.stderr
        names = {one["metadata"]["name"] for one in objects(done.stdout)}
        assert (f"{former}-namesrv" in names) is kept
    assert upgraded(helm, ())


def test_backups_are_beside_the_volumes_that_they_read() -> None:
    """They share the machine and the volume of a pod, for the files of an enode without a right to write."""
    made = found("backup.enabled=true", "enode.replicas=2")
    for name, pod in (
        ("directory", "r-ortoo-namesrv-0"),
        ("enode-0", "r-ortoo-enode-0"),
        ("enode-1", "r-ortoo-enode-1"),
    ):
        job = named(made, "CronJob", f"r-ortoo-backup-{name}")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        [near] = job["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert near["labelSelector"]["matchLabels"] == {"statefulset.kubernetes.io/pod-name": pod}
        volumes = {one["name"]: one["persistentVolumeClaim"]["claimName"] for one in job["volumes"]}
        assert volumes == {"data": f"data-{pod}", "backup": f"r-ortoo-backup-{name}"}
        mounts = {one["name"]: one.get("readOnly", False) for one in job["containers"][0]["volumeMounts"]}
        assert mounts == {"data": name != "directory", "backup": False}
        assert job["automountServiceAccountToken"] is False
        claim = named(made, "PersistentVolumeClaim", f"r-ortoo-backup-{name}")
        assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    shared = found("backup.enabled=true", "backup.storage.existingClaim=mine")
    assert [one for one in shared if one["kind"] == "PersistentVolumeClaim"] == []
    replicated = found("backup.enabled=true", "enode.replicasPerEnode=3")
    names = {one["metadata"]["name"] for one in replicated if one["kind"] == "CronJob"}
    assert names == {"r-ortoo-backup-directory"}, "a lost replica is replaced, and needs no backup"


async def test_backups_run_with_a_read_only_root(tmp_path: Path) -> None:
    """The commands of the CronJobs back up a running cluster, and write nowhere but into the volume of the backup."""
    unshare = shutil.which("unshare")
    if unshare is None or run(unshare, "--mount", "true").returncode:
        pytest.skip("NOT CHECKED, this user may not mount; run the test as root")
    made = found("backup.enabled=true")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    (backups := tmp_path / "backups").mkdir()
    volumes = {"directory": tmp_path / "cluster/namesrv", "enode-0": tmp_path / "cluster/enode-0"}
    script = 'mount --bind "$B" "$B" && mount --bind "$D" "$D" && { [ "$M" = rw ] || mount -o remount,bind,ro "$D"; }'
    script += ' && mount -o remount,bind,ro / && exec "$@"'
    async with open_cluster(tmp_path / "cluster"):
        for name, data in volumes.items():
            assert data.is_dir()
            spec = named(made, "CronJob", f"r-ortoo-backup-{name}")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
            (container,) = spec["containers"]
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
            placed = [
                word.replace("/var/lib/ortoo", str(data)).replace("/backup", str(backups))
                for word in container["command"]
            ]
            env = {one["name"]: str(data) for one in container.get("env", ())} | {"PATH": path, "B": str(backups)}
            env |= {"D": str(data), "M": "ro" if mounts["/var/lib/ortoo"].get("readOnly") else "rw"}
            process = await asyncio.create_subprocess_exec(
                *(unshare, "--mount", "sh", "-c", script, "sh", *placed), env=env, stderr=asyncio.subprocess.PIPE
            )
            _, said = await process.communicate()
            assert process.returncode == 0, said
    assert [one.name.rpartition("-")[0] for one in sorted(backups.iterdir())] == ["directory", "enode"]
