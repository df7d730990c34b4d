"""A real API server of Kubernetes with its etcd, without nodes and controllers: it checks and stores objects.

Objects of other operators, such as PodMonitor, are stored unchecked, because their definitions belong to those
operators.
"""

import contextlib
import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
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
"""Programs that `make deploy-tools` has not installed."""
TOKEN = "the-token-of-the-tests"
STARTS_WITHIN_S = 120.0
POLL_S = 0.1
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
    ca_file: Path
    _resources: dict[str, dict[str, str]] = field(default_factory=dict)
    """Version to (kind to plural)."""

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

    def create_pod(self, template: Mapping[str, Any], namespace: str) -> Answer:
        """Check a pod as the controller of a workload would create it, and store nothing."""
        metadata = {**template.get("metadata", {}), "name": "one"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
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
        for kind, (_, version) in FOREIGN.items():
            _until(lambda version=version, kind=kind: self._serves(version, kind), f"{kind} is not served")

    def _serves(self, version: str, kind: str) -> bool:
        found = self.request("GET", f"/apis/{version}").body.get("resources", [])
        return any(one["kind"] == kind for one in found)


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
            *("--service-account-issuer=https://tests", "--service-cluster-ip-range=10.0.0.0/24"),
        ),
    }
    with contextlib.ExitStack() as parts:
        for name, options in commands.items():
            log = parts.enter_context((folder / f"{name}.log").open("wb"))
            process = subprocess.Popen((TOOLS / name, *options), stdout=log, stderr=log)
            parts.callback(process.wait)
            parts.callback(process.kill)
        api = KubernetesApi(f"https://127.0.0.1:{port}", folder / "certificates/apiserver.crt")

        def is_ready() -> bool:
            if process.poll() is not None:
                raise RuntimeError((folder / "kube-apiserver.log").read_text()[-2_000:])
            with contextlib.suppress(OSError):  # it does not listen, or has no certificate yet
                ready = api.request("GET", "/readyz").status == 200
                return ready and api.request("GET", "/api/v1/namespaces/default").status == 200
            return False

        _until(is_ready, "the API server is not ready")
        yield api


def _body(text: bytes) -> Mapping[str, Any]:
    """The object in an answer; some answers are plain text."""
    return json.loads(text) if text.startswith(b"{") else {"message": text.decode()}


def _until(holds: Any, otherwise: str) -> None:
    end_s = time.monotonic() + STARTS_WITHIN_S
    while not holds():
        if time.monotonic() > end_s:
            raise RuntimeError(otherwise)
        time.sleep(POLL_S)
