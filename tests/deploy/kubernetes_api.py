"""A real API server of Kubernetes with its etcd, without nodes and controllers: it checks and stores objects.

Objects of other operators, such as PodMonitor, are stored unchecked, because their definitions belong to those
operators.
"""

import contextlib
import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ortoo.verification.servers.ports import free_ports
from tests.repo.tree import ROOT

TOOLS = ROOT / ".tools"
PROGRAMS = ("etcd", "kube-apiserver")
MISSING = [name for name in PROGRAMS if not (TOOLS / name).exists()]
"""Programs that `make api-server` has not built."""
TOKEN = "the-token-of-the-tests"
POLL_S = 0.1
POLLS_MAX = 1_200
FOREIGN = {
    "PodMonitor": ("podmonitors", "monitoring.coreos.com/v1"),
    "PrometheusRule": ("prometheusrules", "monitoring.coreos.com/v1"),
    "GRPCRoute": ("grpcroutes", "gateway.networking.k8s.io/v1"),
    "ExternalSecret": ("externalsecrets", "external-secrets.io/v1"),
}
"""Kinds of other operators in the examples: plural and version."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request."""

    status: int
    body: Mapping[str, Any]
    warnings: Sequence[str]


@dataclass(slots=True)
class KubernetesApi:
    """The running server."""

    address: str
    folder: Path
    process: subprocess.Popen[bytes]
    _resources: dict[str, dict[str, str]] = field(default_factory=dict)
    """Version to (kind to plural)."""

    @property
    def ca_file(self) -> Path:
        """The root of the server's certificate."""
        return self.folder / "certificates/apiserver.crt"

    @property
    def helm_options(self) -> tuple[str, ...]:
        """The options with which helm uses this server."""
        return "--kube-apiserver", self.address, "--kube-token", TOKEN, "--kube-ca-file", str(self.ca_file)

    def request(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Answer:
        """The answer to one call. Errors: OSError when the server cannot be reached."""
        request = urllib.request.Request(f"{self.address}{path}", method=method)
        request.add_header("Authorization", f"Bearer {TOKEN}")
        request.add_header("Content-Type", content)
        context = ssl.create_default_context(cafile=str(self.ca_file))
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, context=context) as answer:
                return Answer(answer.status, _body(answer.read()), answer.headers.get_all("Warning", []))
        except urllib.error.HTTPError as error:
            return Answer(error.code, _body(error.read()), error.headers.get_all("Warning", []))

    def apply(self, one: Mapping[str, Any], namespace: str) -> Answer:
        """Check an object strictly as a server-side apply, and store nothing."""
        options = "?dryRun=All&fieldManager=tests&force=true&fieldValidation=Strict"
        return self.request("PATCH", f"{self.path_of(one, namespace)}{options}", one, "application/apply-patch+yaml")

    def create_pod(self, template: Mapping[str, Any], namespace: str, claims: Sequence[str] = ()) -> Answer:
        """Check a pod as the controller of a workload would create it, with these claims, and store nothing."""
        metadata = {**template.get("metadata", {}), "name": "one"}
        volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
        spec = {**template["spec"], "volumes": [*template["spec"].get("volumes", ()), *volumes]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict"
        return self.request("POST", path, pod)

    def create_namespace(self, name: str) -> None:
        """Create a namespace in which only pods of the restricted security standard may run."""
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
        one = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        assert self.request("POST", "/api/v1/namespaces", one).status == 201

    def path_of(self, one: Mapping[str, Any], namespace: str) -> str:
        """The path of an object in a namespace."""
        version = one["apiVersion"]
        begin = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if version not in self._resources:
            known = self.request("GET", begin).body["resources"]
            self._resources[version] = {each["kind"]: each["name"] for each in known if "/" not in each["name"]}
        plural = self._resources[version][one["kind"]]
        return f"{begin}/namespaces/{namespace}/{plural}/{one['metadata']['name']}"

    def define_foreign_kinds(self) -> None:
        """Let the server store the kinds of other operators, with any fields."""
        for kind, (plural, version) in FOREIGN.items():
            group, _, name = version.partition("/")
            schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            versions = [{"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
            names = {"kind": kind, "plural": plural}
            one = {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {
                    "name": f"{plural}.{group}",
                    "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
                },
                "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
            }
            answer = self.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", one)
            assert answer.status == 201, answer.body
        self.wait_until(self._serves_foreign_kinds, "the kinds of other operators are not served")

    def wait_until(self, holds: Callable[[], bool], otherwise: str) -> None:
        """Return when the condition holds. Errors: RuntimeError with the end of the log when the server has ended."""
        for _ in range(POLLS_MAX):
            if holds():
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(POLL_S)
                raise RuntimeError((self.folder / "kube-apiserver.log").read_text()[-2_000:])
        raise RuntimeError(otherwise)

    def is_ready(self) -> bool:
        """Whether the server listens and has created its own objects."""
        with contextlib.suppress(OSError):  # it does not listen, or has no certificate yet
            paths = ("/readyz", "/api/v1/namespaces/default")
            return all(self.request("GET", path).status == 200 for path in paths)
        return False

    def _serves_foreign_kinds(self) -> bool:
        served = {
            one["kind"]
            for _, version in FOREIGN.values()
            for one in self.request("GET", f"/apis/{version}").body.get("resources", [])
        }
        return FOREIGN.keys() <= served


@contextlib.contextmanager
def kubernetes_api(folder: Path) -> Iterator[KubernetesApi]:
    """Start etcd and the API server in `folder`; leave nothing running. Errors: RuntimeError with the server's log."""
    etcd_port, peer_port, port = free_ports(3)
    etcd, peer = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    (folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
    commands = {
        "etcd": (
            *(f"--data-dir={folder}/etcd", "--unsafe-no-fsync"),
            *(f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            f"--initial-cluster=default={peer}",
        ),
        "kube-apiserver": (
            *(f"--etcd-servers={etcd}", f"--cert-dir={folder}/certificates", f"--token-auth-file={folder}/tokens.csv"),
            *("--bind-address=127.0.0.1", f"--secure-port={port}", "--advertise-address=127.0.0.1"),
            "--endpoint-reconciler-type=none",  # the address of a loopback interface would be refused
            *("--authorization-mode=AlwaysAllow", "--disable-admission-plugins=ServiceAccount"),
            *(f"--service-account-key-file={folder}/key.pem", f"--service-account-signing-key-file={folder}/key.pem"),
            *("--service-account-issuer=https://tests", "--service-cluster-ip-range=10.0.0.0/24,fd00::/112"),
        ),
    }
    with contextlib.ExitStack() as parts:
        processes = []
        for name, options in commands.items():
            log = parts.enter_context((folder / f"{name}.log").open("wb"))
            processes.append(subprocess.Popen((TOOLS / name, *options), stdout=log, stderr=log))
            parts.callback(processes[-1].wait)
            parts.callback(processes[-1].kill)
        api = KubernetesApi(f"https://127.0.0.1:{port}", folder, processes[-1])
        api.wait_until(api.is_ready, "the API server is not ready")
        yield api


def _body(text: bytes) -> Mapping[str, Any]:
    """The object in an answer; some answers are plain text."""
    return json.loads(text) if text.startswith(b"{") else {"message": text.decode()}
