"""Immutable fields and generated secrets stay the same over every `helm upgrade`.

Helm queries a stand-in for Kubernetes' API, which has the objects of an earlier rendering. The API's own rules decide
which fields may differ.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.deploy.api_server import cluster_with
from tests.deploy.test_chart import CASES, CHART, HELMS, ROLES, objects, run, tool

MUTABLE = {
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
}
"""The fields of a StatefulSet's spec that Kubernetes allows to change."""
SERVER_SIDE = {"helm": ("--dry-run=server",), "helm3": ("--dry-run=server", "--validate")}
URL = "postgresql.url=postgresql+psycopg://ortoo@db/ortoo"


def attempt(helm: str, installed: Sequence[dict[str, Any]], *options: str, release: str = "r") -> Any:
    """Render an upgrade of the installed objects with helm, or a first installation."""
    with cluster_with(installed) as address:
        where = ("--namespace", "n", "--kube-apiserver", address, "--kube-version", "1.30.0")
        how = (*SERVER_SIDE[helm], "--disable-openapi-validation", *(("--is-upgrade",) if installed else ()))
        return run(tool(helm), "template", release, str(CHART), *where, *how, *options)


def upgraded(helm: str, installed: Sequence[dict[str, Any]], *options: str) -> list[dict[str, Any]]:
    """The objects of an upgrade, as the API stores them."""
    done = attempt(helm, installed, *options)
    assert done.returncode == 0, done.stderr
    return [as_kept(one) for one in objects(done.stdout)]


def as_kept(one: dict[str, Any]) -> dict[str, Any]:
    """An object as the API returns it: secrets encoded, defaults of claims filled in."""
    kept: dict[str, Any] = json.loads(json.dumps(one))
    if "stringData" in kept:
        given = kept.pop("stringData").items()
        kept["data"] = {name: base64.b64encode(text.encode()).decode() for name, text in given}
    for claim in kept.get("spec", {}).get("volumeClaimTemplates", ()):
        claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}}
        claim["spec"]["volumeMode"] = "Filesystem"
    return kept


def fixed(found: Sequence[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """(kind, name) to the fields of each object that an upgrade must not change."""
    fields: dict[tuple[str, str], Any] = {}
    for one in found:
        key, spec = (one["kind"], one["metadata"]["name"]), one.get("spec", {})
        if one["kind"] == "StatefulSet":
            fields[key] = {name: value for name, value in spec.items() if name not in MUTABLE}
        elif one["kind"] == "Deployment":
            fields[key] = spec["selector"]
        elif one["kind"] == "Service":
            fields[key] = spec.get("clusterIP")
    return fields


UPGRADES = {
    "disks": (
        ("namesrv.storage.size=5Gi", "enode.storage.size=40Gi", "enode.storage.className=fast"),
        ("postgresql.bundled.enabled=true", "postgresql.bundled.storage.size=8Gi"),
    ),
    "database": ((URL,), ("postgresql.existingSecret.name=db",)),
    "others": (
        ("enode.replicas=4", *(f"clusterTls.existingSecrets.{role}=tls" for role in ROLES), "metrics.enabled=false"),
        ("enode.podAnnotations.a=b", "enode.priorityClassName=high", "image.tag=2.0.0"),
    ),
}


def sets(options: Sequence[str]) -> tuple[str, ...]:
    """The `--set` options of helm for values."""
    return tuple(word for option in options for word in ("--set", option))


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("case", ["default", "ha", "bundled"])
def test_upgrades_change_nothing_that_kubernetes_keeps(helm: str, case: str) -> None:
    """With other disks, another database and other pods, claims, selectors and names of sets stay the same."""
    before = upgraded(helm, (), *CASES[case])
    kept = fixed(before)
    assert ("StatefulSet", "r-ortoo-namesrv") in kept
    for steps in UPGRADES.values():
        installed = before
        for step in steps:
            installed = upgraded(helm, installed, *CASES[case], *sets(step))
            now = fixed(installed)
            assert {key: kept[key] for key in kept if key in now} == {key: now[key] for key in kept if key in now}
            assert {key for key in kept if key[1].endswith(("-enode", "-enode-0", "-namesrv"))} <= now.keys()


def test_the_comparison_sees_a_change() -> None:
    """Without the set in the cluster another size does change the claims; this is how they are recreated."""
    first, second = (upgraded("helm", (), *sets((f"enode.storage.size={size}",))) for size in ("20Gi", "40Gi"))
    assert fixed(first) != fixed(second)


@pytest.mark.parametrize("helm", HELMS)
def test_what_no_upgrade_can_do_is_refused_with_a_way(helm: str) -> None:
    """Name servers without volumes get no SQLite file, and an enode of one replica does not become one of three."""
    with_database = upgraded(helm, (), "--set", URL)
    done = attempt(helm, with_database)
    assert done.returncode != 0
    assert "r-ortoo-namesrv was made without volumes" in done.stderr
    assert "--cascade=orphan" in done.stderr
    for before, after in (("1", "3"), ("3", "1")):
        installed = upgraded(helm, (), "--set", f"enode.replicasPerEnode={before}")
        done = attempt(helm, installed, "--set", f"enode.replicasPerEnode={after}")
        assert done.returncode != 0
        assert "enode.replicasPerEnode is chosen when an enode is made" in done.stderr


def test_without_a_cluster_volumes_can_be_kept() -> None:
    """A user of `helm template` moves to a database with `namesrv.storage.keep`."""
    kept = sets((URL, "namesrv.storage.keep=true"))
    before, after = (objects(run(tool("helm"), "template", "r", str(CHART), *options).stdout) for options in ((), kept))
    assert fixed(before) == fixed(after)


@pytest.mark.parametrize("helm", HELMS)
def test_a_password_that_was_made_is_kept(helm: str) -> None:
    """It survives every upgrade. Without a cluster helm cannot read it, so one has to be given."""
    first = upgraded(helm, (), *sets(GENERATED))
    second = upgraded(helm, first, *sets(GENERATED), "--set", "postgresql.bundled.storage.size=9Gi")
    secrets = [[one for one in found if one["kind"] == "Secret"] for found in (first, second)]
    assert secrets[0] == secrets[1]
    assert len(secrets[0]) == 1
    assert secrets[0] != [one for one in upgraded(helm, (), *sets(GENERATED)) if one["kind"] == "Secret"]
    done = run(tool(helm), "template", "r", str(CHART), *sets(GENERATED))
    assert done.returncode != 0
    assert "set postgresql.bundled.password" in done.stderr
    twice = [run(tool(helm), "template", "r", str(CHART), *CASES["bundled"]).stdout for _ in range(2)]
    assert twice[0] == twice[1] != ""


GENERATED = ("postgresql.bundled.enabled=true", "redis.bundled.enabled=true")
