"""A real API server of Kubernetes accepts what the chart renders, strictly, and its upgrades."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy.kubernetes_api import FOREIGN, MISSING, KubernetesApi, kubernetes_api
from tests.deploy.test_chart import CASES, CHART, HELMS, objects, rendered, run, tool
from tests.deploy.test_chart_upgrade import UPGRADES, sets

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"NOT CHECKED, no {MISSING}; run `make api-server` (needs Go)")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesApi]:
    """One server for all tests; each test has a namespace of its own."""
    with kubernetes_api(tmp_path_factory.mktemp("kubernetes")) as server:
        server.define_foreign_kinds()
        gvisor = {"metadata": {"name": "gvisor"}, "handler": "runsc"}  # the bank's clusters have it
        made = server.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", gvisor)
        assert made.status == 201, made.body["message"]
        yield server


def install(api: KubernetesApi, helm: str, namespace: str, *options: str, how: str = "install") -> str:
    """Install or upgrade the release `r`; the error of helm, empty if there is none. No hook can run without nodes."""
    where = ("--namespace", namespace, *api.helm_options)
    done = run(tool(helm), how, "r", str(CHART), "--no-hooks", *where, *options)
    return done.stderr if done.returncode else ""


def templates(found: list[dict[str, Any]]) -> list[tuple[dict[str, Any], list[str]]]:
    """The templates of all pods, each with the names of the volumes that its workload claims."""
    specs = [one["spec"].get("jobTemplate", one).get("spec", {}) for one in found if "spec" in one]
    return [
        (spec["template"], [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())])
        for spec in specs
        if "template" in spec
    ]


@pytest.mark.parametrize("case", CASES)
def test_the_server_accepts_every_object_strictly(api: KubernetesApi, case: str) -> None:
    """No unknown, deprecated or wrong field; the pods satisfy the restricted security standard."""
    api.create_namespace(f"strict-{case}")
    found = objects(rendered("helm", *CASES[case]))
    for one in found:
        answer = api.apply(one, f"strict-{case}")
        what = (one["kind"], one["metadata"]["name"], answer.body, answer.warnings)
        assert (answer.status in (200, 201), list(answer.warnings)) == (True, []), what
    pods = templates(found)
    assert len(pods) >= 3
    for template, claims in pods:
        answer = api.create_pod(template, f"strict-{case}", claims)
        assert (answer.status, list(answer.warnings)) == (201, []), answer.body["message"]


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("case", CASES)
def test_helm_installs_every_example(api: KubernetesApi, helm: str, case: str) -> None:
    """Each object that is rendered is stored."""
    namespace = f"{helm}-{case}"
    api.create_namespace(namespace)
    assert install(api, helm, namespace, *CASES[case]) == ""
    for one in objects(rendered(helm, *CASES[case])):
        if "helm.sh/hook" not in one["metadata"].get("annotations", {}):
            stored = api.request("GET", api.path_of(one, namespace))
            assert stored.status == 200, (one["kind"], one["metadata"]["name"])


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("case", ["default", "ha"])
def test_the_server_accepts_upgrades(api: KubernetesApi, helm: str, case: str) -> None:
    """Other disks, another database, other pods: no change of an immutable field."""
    for name, steps in UPGRADES.items():
        namespace = f"{helm}-{case}-{name}"
        api.create_namespace(namespace)
        assert install(api, helm, namespace, *CASES[case]) == ""
        for step in steps:
            assert install(api, helm, namespace, *CASES[case], *sets(step), how="upgrade") == "", (name, step)


def test_the_server_refuses_what_is_wrong(api: KubernetesApi) -> None:
    """A misspelt field, a wrong type, a privileged pod, a changed selector: each is an error."""
    namespace = "wrong"
    api.create_namespace(namespace)
    found = objects(rendered("helm"))
    (deployment,) = (one for one in found if one["kind"] == "Deployment")
    misspelt = {**deployment, "spec": {**deployment["spec"], "replicsa": 2}}
    answer = api.apply(misspelt, namespace)
    assert (answer.status, "replicsa" in answer.body["message"]) == (500, True), answer.body
    answer = api.apply({**deployment, "spec": {**deployment["spec"], "replicas": "two"}}, namespace)
    assert answer.status >= 400
    pod = deployment["spec"]["template"]
    container = {**pod["spec"]["containers"][0], "securityContext": {}}
    answer = api.create_pod({**pod, "spec": {**pod["spec"], "containers": [container]}}, namespace)
    assert (answer.status, "PodSecurity" in answer.body["message"]) == (403, True), answer.body["message"]
    assert install(api, "helm", namespace) == ""
    changed = {**deployment, "spec": {**deployment["spec"], "selector": {"matchLabels": {"a": "b"}}}}
    assert "immutable" in api.apply(changed, namespace).body["message"]


def test_every_foreign_kind_is_rendered_by_an_example() -> None:
    """The list of unchecked kinds is not longer than necessary."""
    kinds = {one["kind"] for options in CASES.values() for one in objects(rendered("helm", *options))}
    assert FOREIGN.keys() <= kinds
