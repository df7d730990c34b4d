"""The chart renders, validates and keeps its guarantees, on Helm 3 and 4, without a cluster.

Tests that need the tools in .tools report NOT CHECKED when they are missing; `make deploy-tools` installs them.
"""

import enum
import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ortoo.common.cluster.role_names import CertificateNames, CertificateRoles, Role, RoleNames
from ortoo.common.process.settings import NumberRange, flatten, load, ranges
from ortoo.enode.settings import EnodeSettings
from ortoo.namesrv.settings import NamesrvSettings
from ortoo.snode.policy.access_rules import parse_access_rules
from ortoo.snode.policy.flow_control import parse_flow_rules
from ortoo.snode.settings import SnodeSettings
from tests.repo.tree import ROOT

CHART = ROOT / "deploy/k8s/chart"
EXAMPLES = ROOT / "deploy/k8s/examples"
MANIFESTS = ROOT / "deploy/k8s/manifests"
TOOLS = ROOT / ".tools"
HELMS = ("helm", "helm3")
KUBERNETES = ("1.28", "1.32", "1.36")
ROLES = {"namesrv": NamesrvSettings, "enode": EnodeSettings, "snode": SnodeSettings}
BUNDLED = {
    "namesrv.replicas": "2",
    "snode.replicas": "2",
    "postgresql.bundled.enabled": "true",
    "postgresql.bundled.password": "given",
    "redis.bundled.enabled": "true",
}
CONSOLE = tuple(
    word
    for value in (
        *("console.enabled=true", "networkPolicy.enabled=true", "console.tls.existingSecret.name=roots"),
        *("console.ingress.enabled=true", "console.ingress.hosts={queues.example}", "console.ingress.tlsSecret=web"),
    )
    for word in ("--set", value)
)
FOREIGN = ("PodMonitor", "PrometheusRule", "ServiceMonitor", "GRPCRoute", "ExternalSecret")
"""Kinds of other operators."""
CASES: dict[str, tuple[str, ...]] = {
    "default": (),
    "minimal": ("--values", str(EXAMPLES / "minimal.yaml")),
    "ha": ("--values", str(EXAMPLES / "ha.yaml")),
    "guarded": ("--values", str(EXAMPLES / "guarded.yaml")),
    "bank": ("--values", str(EXAMPLES / "bank.yaml")),
    "console": ("--values", str(EXAMPLES / "guarded.yaml"), *CONSOLE),
    "bundled": tuple(word for name, value in BUNDLED.items() for word in ("--set", f"{name}={value}")),
}


def tool(name: str) -> str:
    """The path of a tool; if it is missing the test is skipped with a warning."""
    for path in (TOOLS / name, TOOLS / "venv/bin" / name):
        if path.exists():
            return str(path)
    pytest.skip(f"NOT CHECKED, {name} is not in .tools; run `make deploy-tools`")


def run(*command: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a tool to its end."""
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=300)


@cache
def rendered(helm: str, *options: str) -> str:
    """The output of helm for the chart."""
    done = run(tool(helm), "template", "r", str(CHART), "--namespace", "n", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def objects(text: str) -> list[dict[str, Any]]:
    """The Kubernetes objects in a text."""
    script = "import json, sys, yaml\nload = yaml.CSafeLoader\n"
    script += "print(json.dumps([o for o in yaml.load_all(sys.stdin, load) if o]))"
    done = run(tool("python"), "-c", script, given=text)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def containers(found: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(owner's name, pod spec, container) of every container of the chart that keeps running."""
    return [
        (one["metadata"]["name"], one["spec"]["template"]["spec"], container)
        for one in found
        if "template" in one.get("spec", {}) and one["kind"] != "Job"
        for container in one["spec"]["template"]["spec"]["containers"]
        if "imagePullPolicy" in container  # sidecars of the values have none
    ]


@pytest.mark.parametrize("helm", HELMS)
def test_helm_finds_nothing_wrong(helm: str) -> None:
    """`helm lint --strict` accepts every example."""
    for options in CASES.values():
        done = run(tool(helm), "lint", "--strict", str(CHART), *options)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES)
def test_both_helms_make_the_same(case: str) -> None:
    """Helm 3 and Helm 4 render equal objects."""
    first, second = (objects(rendered(helm, *CASES[case])) for helm in HELMS)
    assert first == second
    assert len(first) >= 7


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_satisfies_the_schema(version: str) -> None:
    """The check is strict, for three versions of Kubernetes; only kinds of other operators have no schema."""
    found = [one for options in CASES.values() for one in objects(rendered("helm", *options))]
    known = [one for one in found if one["kind"] not in FOREIGN]
    given = "\n---\n".join(map(json.dumps, known))
    done = run(tool("kubernetes-validate"), "-k", version, "--strict", "-", given=given)
    said = done.stdout + done.stderr
    assert (done.returncode, "WARN" in said) == (0, False), said
    assert said.count("passed for resource") == len(known)


def test_kubeconform_finds_every_object_valid(tmp_path: Path) -> None:
    """A second validator accepts the YAML itself, with the schemas of the newest version."""
    version = KUBERNETES[-1]
    known = next((TOOLS / "venv/lib").glob(f"*/site-packages/*/kubernetes-json-schema/v{version}.0-local-strict"), None)
    if known is None:
        pytest.skip("NOT CHECKED, no schemas are in .tools; run `make deploy-tools`")
    given = "\n---\n".join(rendered("helm", *options) for options in CASES.values())
    kinds = {one["kind"].lower() for one in objects(given)}
    for schema in known.glob("*.json"):  # references to other definitions, at addresses that do not exist
        if schema.name.split("-")[0] in {*kinds, "_definitions.json"}:
            text = re.sub(r'"\$id": "[^"]*"', '"$comment": ""', schema.read_text())
            (tmp_path / schema.name).write_text(text.replace('"/api/_definitions.json#', '"_definitions.json#'))
    place = f"{tmp_path}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    options = ("-strict", "-summary", "-output", "json", "-skip", ",".join(FOREIGN), "-n", "1")
    done = run(tool("kubeconform"), *options, "-schema-location", place, "-", given=given)
    found = json.loads(done.stdout)
    assert (done.returncode, found.get("resources", [])) == (0, []), done.stdout + done.stderr
    assert found["summary"]["valid"] + found["summary"]["skipped"] == len(objects(given))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("enode.replica=3", "replica"),
        ("enode.replicas=0", "replicas"),
        ("snode.service.type=Loadbalancer", "type"),
        ("namesrv.replicas=2", "several name servers need a database they share"),
        ("snode.replicas=2", "several snodes or workers share their groups through Redis"),
        ("postgresql.url=mysql://x", "url"),
        ("enode.settings.Bad-Name=1", "Bad-Name"),
        ("snode.tls.required=true", "needs a certificate"),
        ("clusterTls.existingSecret.name=all", "set the name of each role in clusterTls.roleNames.enode"),
        ("clusterTls.existingSecrets.enode=one", "set clusterTls.existingSecrets.namesrv too"),
        ("clusterTls.certManager.enabled=true", "set clusterTls.certManager.issuerRef.name"),
        ("snode.access.rules=x", "would answer every caller"),
        ("snode.access.existingSecret.name=x", "would answer every caller"),
    ],
)
def test_values_that_cannot_work_are_refused(wrong: str, said: str) -> None:
    """A misspelt or impossible value stops the installation and is named."""
    done = run(tool("helm"), "template", "r", str(CHART), "--set", wrong)
    assert done.returncode != 0
    assert said in done.stderr


def test_pods_have_no_rights_and_limits() -> None:
    """No root, no writable path but volumes, no capabilities, no token, bounded memory, both probes."""
    for case, options in CASES.items():
        for name, pod, container in containers(objects(rendered("helm", *options))):
            security = container["securityContext"]
            assert pod["securityContext"]["runAsNonRoot"] is True, (case, name)
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, (case, name)
            assert pod["automountServiceAccountToken"] is False, (case, name)
            assert security["readOnlyRootFilesystem"] is True, (case, name)
            assert security["allowPrivilegeEscalation"] is False, (case, name)
            assert security["capabilities"] == {"drop": ["ALL"]}, (case, name)
            assert "memory" in container["resources"]["limits"], (case, name)
            assert container["readinessProbe"], (case, name)
            assert container["livenessProbe"], (case, name)
            asked = container.get("startupProbe", {}).get("grpc", container["livenessProbe"].get("grpc"))
            assert asked == container["livenessProbe"].get("grpc"), (case, name)


def test_policies_find_nothing_high() -> None:
    """Checkov's rules, except those listed here with a reason; the pod of `helm test` ends and needs no probes."""
    exceptions = {
        "CKV_K8S_11": "no limit on processor time: throttling a queue delays all clients",
        "CKV_K8S_14": "the tag is the chart's version",
        "CKV_K8S_15": "a tag never changes its content, so it need not be pulled each time",
        "CKV_K8S_35": "URLs are secrets that the settings take from the environment",
        "CKV_K8S_43": "a digest is the installer's choice",
        "CKV2_K8S_6": "the network policy's selector is understood only when it is deployed",
        "CKV_K8S_21": "the namespace is the installer's",
        "CKV_K8S_40": "the user is 10001",
    }
    checkov = tool("checkov")
    files: list[str] = []
    for case in ("default", "ha"):
        text = "\n---\n".join(json.dumps(one) for one in objects(rendered("helm", *CASES[case], "--skip-tests")))
        (TOOLS / f"rendered-{case}.yaml").write_text(text)
        files += ["-f", str(TOOLS / f"rendered-{case}.yaml")]
    skipped = ",".join(exceptions)
    options = ("--framework", "kubernetes", "--compact", "--quiet", "--skip-download", "--skip-check", skipped)
    done = run(checkov, *files, *options, "-o", "json")
    report = json.loads(done.stdout)
    failed = [
        (f["check_id"], f["check_name"], f["resource"]) for f in report.get("results", {}).get("failed_checks", ())
    ]
    assert failed == []
    assert report["summary"]["passed"] > 100


def test_dockerfile_has_no_findings() -> None:
    """Hadolint accepts it; versions of pip's packages are pinned in constraints.txt."""
    done = run(tool("hadolint"), "--ignore", "DL3013", "--ignore", "DL3042", str(ROOT / "deploy/docker/Dockerfile"))
    assert (done.returncode, done.stdout) == (0, "")


def test_manifests_are_what_the_chart_gives() -> None:
    """deploy/k8s/manifests was rendered after the last change of the chart."""
    tool("helm")
    done = run(tool("python"), str(ROOT / "deploy/k8s/render.py"), "--check")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("role", ROLES)
def test_settings_in_the_manifests_are_settings_of_the_code(role: str) -> None:
    """Every variable of a pod is a setting of its role; its ports are the documented ones."""
    settings = ROLES[role]()
    prefix = f"ORTOO_{role.upper()}_"
    known = {prefix + name.replace(".", "_").upper() for name in flatten(settings)}
    for example in ("default", "minimal", "ha", "guarded"):
        text = (MANIFESTS / example / f"{role}.yaml").read_text()
        given = set(re.findall(rf"name: ({prefix}\w+)", text))
        assert f"{prefix}LISTEN_ADDRESS" in given
        assert given <= known, given - known
        port = settings.listen_address.rpartition(":")[2]
        assert f"containerPort: {port}" in text
        # Of several replicas only the leader accepts clients; all of them are ready as soon as they run.
        asked = {"port": int(port)} | ({"service": "in-sync"} if f"{prefix}REPLICAS" in given else {})
        assert all(one["readinessProbe"]["grpc"] == asked for _, _, one in containers(objects(text)))


def another(value: Any, allowed: NumberRange | None) -> Any:
    """A value of a setting that is not its default."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, enum.Enum):
        return next(one for one in type(value) if one is not value)
    if isinstance(value, int | float) and allowed is not None:
        return (
            min(int(allowed.minimum + allowed.maximum) // 3, 1 << 40)
            if isinstance(value, int)
            else allowed.minimum + 0.25
        )
    return type(value)("given")


@pytest.mark.parametrize("role", ROLES)
def test_every_setting_can_be_given(role: str, tmp_path: Path) -> None:
    """Each entry of `ROLE.settings` arrives as the variable that the code reads; files named by settings exist."""
    names = {name: f"ORTOO_{role.upper()}_{name.replace('.', '_').upper()}" for name in flatten(ROLES[role]())}
    names = {name: variable for name, variable in names.items() if name not in EnodeSettings.HIDDEN}
    allowed = ranges(ROLES[role])
    values = {
        name: another(value, allowed.get(name)) for name, value in flatten(ROLES[role]()).items() if name in names
    }
    file = tmp_path / "values.json"
    file.write_text(json.dumps({role: {"settings": values}}, default=str))
    name_of = f"r-ortoo-{role}"
    (env,) = (
        c["env"] for name, _, c in containers(objects(rendered("helm", "--values", str(file)))) if name == name_of
    )
    last = {one["name"]: one["value"] for one in env if one["name"] in names.values() and "value" in one}
    read = flatten(load(ROLES[role], environ_prefix=f"ORTOO_{role.upper()}_", environ=last).settings)
    assert {name: read[name] for name in names if read[name] != values[name]} == {}

    guarded = containers(objects(rendered("helm", *CASES["guarded"])))
    ((pod, container),) = ((pod, container) for name, pod, container in guarded if name == name_of)
    values = {variable["name"]: variable.get("value", "") for variable in container["env"]}
    volumes = {volume["name"] for volume in pod["volumes"]} if "volumes" in pod else set()
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    for name, variable in names.items():
        if name.endswith("_file"):
            mount = mounts[str(Path(values[variable]).parent)]
            assert mount["readOnly"], name
            assert mount["name"] in volumes, name
            assert "subPath" not in mount, f"{name} would not follow a change"


def test_members_of_an_enode_share_a_set_a_budget_and_no_machine() -> None:
    """Each enode of three replicas has pods that know their number and each other, of which one may be unavailable."""
    found = objects(rendered("helm", "--set", "enode.replicas=2", "--set", "enode.replicasPerEnode=3"))
    sets = [one for one in found if one["kind"] == "StatefulSet" and "-enode-" in one["metadata"]["name"]]
    budgets = {one["metadata"]["name"]: one["spec"] for one in found if one["kind"] == "PodDisruptionBudget"}
    assert [one["metadata"]["name"] for one in sets] == ["r-ortoo-enode-0", "r-ortoo-enode-1"]
    for one in sets:
        name, pod = one["metadata"]["name"], one["spec"]["template"]
        assert one["spec"]["replicas"] == 3
        assert pod["metadata"]["labels"]["ortoo/enode"] == name
        assert one["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        assert budgets[name]["maxUnavailable"] == 1
        assert budgets[name]["selector"]["matchLabels"]["ortoo/enode"] == name
        (container,) = pod["spec"]["containers"]
        values = {variable["name"]: variable.get("value", "") for variable in container["env"]}
        assert values["ORTOO_ENODE_NAME"] == name
        assert values["ORTOO_ENODE_REPLICAS"] == "3"
        listed = [f"{name}-{number}.r-ortoo-enode:8092" for number in range(3)]
        assert values["ORTOO_ENODE_REPLICA_ADDRESSES"].split(";") == listed
        asked = container["command"][2].replace("exec ortoo-enode", "printenv ORTOO_ENODE_REPLICA")
        assert run("sh", "-c", f"ORTOO_POD={name}-2; {asked}").stdout.strip() == "3"
        spread = pod["spec"]["topologySpreadConstraints"]
        assert {each["labelSelector"]["matchLabels"]["ortoo/enode"] for each in spread} == {name}
    assert "r-ortoo-enode" not in budgets


def test_workers_of_a_snode_are_probed_together_and_reach_each_other() -> None:
    """All workers answer the probes, also without scraping.

    Policies admit other pods to each worker; Redis is required.
    """
    assert (
        "share their groups through Redis"
        in run(tool("helm"), "template", "r", str(CHART), "--set", "snode.workers=3").stderr
    )
    options = ("snode.workers=3", "redis.bundled.enabled=true", "metrics.enabled=false")
    found = objects(rendered("helm", *(word for one in options for word in ("--set", one))))
    (container,) = (one for name, _, one in containers(found) if name == "r-ortoo-snode")
    values = {variable["name"]: variable.get("value", "") for variable in container["env"]}
    assert (values["ORTOO_SNODE_WORKERS"], values["ORTOO_SNODE_WORKER_PORT"]) == ("3", "8083")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert values["ORTOO_SNODE_METRICS_ADDRESS"] == f"0.0.0.0:{ports['metrics']}"
    assert container["startupProbe"]["httpGet"] == container["livenessProbe"]["httpGet"]
    assert container["livenessProbe"]["httpGet"] == {"port": "metrics", "path": "/healthz"}
    assert container["readinessProbe"]["httpGet"] == {"port": "metrics", "path": "/readyz"}
    (policy,) = (one for one in found if one["kind"] == "NetworkPolicy" and one["metadata"]["name"] == "r-ortoo-snode")
    assert {"port": 8083, "endPort": 8085, "protocol": "TCP"} in policy["spec"]["ingress"][0]["ports"]


def test_rules_of_access_reach_the_pod_from_either_secret() -> None:
    """The chart's own Secret contains the rules as they are given; a Secret of the operator replaces it."""
    found = objects(rendered("helm", *CASES["guarded"]))
    (secret,) = (one for one in found if one["metadata"]["name"] == "r-ortoo-access")
    rules = parse_access_rules(secret["stringData"]["access.toml"])
    assert rules.users.keys() == {"ann", "shop"}
    assert list(rules.users["shop"].roles) == list(rules.roles) == ["shop"]
    (limits,) = (one for one in found if one["metadata"]["name"] == "r-ortoo-limits")
    assert [rule.per_second for rule in parse_flow_rules(limits["data"]["limits.toml"])] == [1000]
    options = ("--set", "snode.access.existingSecret.name=mine", "--set", "snode.access.existingSecret.key=my.toml")
    found = objects(rendered("helm", *CASES["guarded"], *options))
    assert not [one for one in found if one["metadata"]["name"] == "r-ortoo-access"]
    (pod,) = (pod for name, pod, _ in containers(found) if name == "r-ortoo-snode")
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "access")
    assert volume["secret"]["secretName"] == "mine"
    assert volume["secret"]["items"] == [{"key": "my.toml", "path": "access.toml"}]


CLOSED: dict[str, tuple[str, ...]] = {
    "token": ("secrets.existingSecret.name=tokens",),
    "certificates": ("clusterTls.certManager.enabled=true", "clusterTls.certManager.issuerRef.name=ca"),
    "network": ("insecure=true",),
}


@pytest.mark.parametrize("how", CLOSED)
def test_rights_are_rendered_where_the_inner_ports_are_closed(how: str) -> None:
    """They need a token, certificates, or `insecure`, which the processes that require it receive as well."""
    options = [word for value in ("snode.access.rules=x", *CLOSED[how]) for word in ("--set", value)]
    found = containers(objects(rendered("helm", *options)))
    accepted = {name for name, _, one in found for each in one["env"] if each["name"].endswith("_INSECURE")}
    assert accepted == ({"r-ortoo-namesrv", "r-ortoo-snode"} if how == "network" else set())
    without = ("--set", "secrets.keys.clusterToken=")
    if how == "token":
        assert "would answer every caller" in run(tool("helm"), "template", "r", str(CHART), *options, *without).stderr


def test_certificates_of_cert_manager_are_those_that_processes_let_in() -> None:
    """Each has the shared name and the name of its role, which identifies that role by default, and no other name."""
    options = [word for value in CLOSED["certificates"] for word in ("--set", value)]
    found = objects(rendered("helm", *options))
    pods = {name: pod for name, pod, _ in containers(found)}
    made = {one["spec"]["secretName"]: one["spec"] for one in found if one["kind"] == "Certificate"}
    for role in (*ROLES, "operator"):
        spec = made.pop(f"r-ortoo-{role}-cluster-tls")
        assert ("ortoo.cluster" in spec["dnsNames"]) is (role != "operator")
        assert {"client auth", "server auth"} <= set(spec["usages"])
        assert spec["issuerRef"] == {"name": "ca", "kind": "Issuer", "group": "cert-manager.io"}
        presented = CertificateNames(tuple(spec["dnsNames"]), (), "")
        roles = CertificateRoles(RoleNames(), "ortoo.cluster").of(presented)
        assert roles == (set() if role == "namesrv" else {Role(role)})
        if role in ROLES:
            (volume,) = (one for one in pods[f"r-ortoo-{role}"]["volumes"] if one["name"] == "cluster-tls")
            assert volume["secret"]["secretName"] == f"r-ortoo-{role}-cluster-tls"
    assert made == {}
    both = run(tool("helm"), "template", "r", str(CHART), *options, "--set", "clusterTls.existingSecret.name=all")
    assert "come from one place" in both.stderr


def test_each_role_has_its_own_part_of_the_secrets() -> None:
    """Each role gets its own part only, readable by its user alone; a key that is not used is not required."""
    wanted = {
        "namesrv": {"admin_token_file", "cluster_token_file", "secrets_key_file"},
        "enode": {"cluster_token_file"},
        "snode": {"admin_token_file", "cluster_token_file"},
    }
    for options, less in (((), set()), (("--set", "secrets.keys.adminToken="), {"admin_token_file"})):
        found = containers(objects(rendered("helm", *CASES["guarded"], *options)))
        for role, files in wanted.items():
            ((pod, container),) = ((pod, one) for name, pod, one in found if name == f"r-ortoo-{role}")
            (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "secrets")
            assert volume["secret"]["defaultMode"] == 0o400
            assert {item["path"] for item in volume["secret"]["items"]} == files - less
            values = {one["name"]: one.get("value") for one in container["env"]}
            for file in files:
                path = f"/etc/ortoo/secrets/{file}" if file not in less else None
                assert values.get(f"ORTOO_{role.upper()}_{file.upper()}") == path


def test_addresses_of_name_servers_are_those_of_their_pods() -> None:
    """Each name server is listed by its own stable name, so replacing one does not change a list."""
    found = objects(rendered("helm", *CASES["ha"]))
    lists = {
        variable["value"]
        for _, _, container in containers(found)
        for variable in container["env"]
        if variable["name"].endswith("_NAMESRV_ADDRESS")
    }
    assert lists == {";".join(f"r-ortoo-namesrv-{n}.r-ortoo-namesrv:8071" for n in range(3))}


def test_schema_describes_every_value() -> None:
    """Each value in values.yaml has a description in the schema."""
    schema = json.loads((CHART / "values.schema.json").read_text())

    def missing(node: dict[str, Any], path: str) -> list[str]:
        found = [] if "description" in node or not path else [path]
        for name, child in node.get("properties", {}).items():
            found += missing(child, f"{path}.{name}")
        return found

    assert missing(schema, "") == []
    values = objects(Path(CHART / "values.yaml").read_text())[0]
    assert values.keys() <= schema["properties"].keys()
