"""As much of Kubernetes' API as helm asks before it renders: which kinds there are, and what is installed already."""

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KINDS: dict[str, tuple[tuple[str, str], ...]] = {
    "v1": (
        ("secrets", "Secret"),
        ("services", "Service"),
        ("serviceaccounts", "ServiceAccount"),
        ("configmaps", "ConfigMap"),
        ("pods", "Pod"),
    ),
    "apps/v1": (("statefulsets", "StatefulSet"), ("deployments", "Deployment")),
    "policy/v1": (("poddisruptionbudgets", "PodDisruptionBudget"),),
    "networking.k8s.io/v1": (("networkpolicies", "NetworkPolicy"),),
    "monitoring.coreos.com/v1": (("podmonitors", "PodMonitor"), ("prometheusrules", "PrometheusRule")),
    "autoscaling/v2": (("horizontalpodautoscalers", "HorizontalPodAutoscaler"),),
}
"""Version of an API to (path, kind) of what the chart makes."""


def discovery() -> dict[str, Any]:
    """Path to what it answers about kinds."""
    groups = []
    answers: dict[str, Any] = {
        "/version": {"major": "1", "minor": "30", "gitVersion": "v1.30.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
    }
    for version, kinds in KINDS.items():
        group, _, short = version.rpartition("/")
        answers[f"/apis/{version}" if group else "/api/v1"] = {
            "kind": "APIResourceList",
            "groupVersion": version,
            "resources": [
                {"name": path, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get", "list"]}
                for path, kind in kinds
            ],
        }
        if group:
            one = {"groupVersion": version, "version": short}
            groups.append({"name": group, "versions": [one], "preferredVersion": one})
    return answers | {"/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}}


def path_of(one: dict[str, Any]) -> str:
    """Where an object of the namespace `n` is found."""
    version = one["apiVersion"]
    resource = next(path for path, kind in KINDS[version] if kind == one["kind"])
    return f"{'/apis' if '/' in version else '/api'}/{version}/namespaces/n/{resource}/{one['metadata']['name']}"


@contextlib.contextmanager
def cluster_with(installed: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A server whose namespace `n` has these objects; yields its address."""
    answers = discovery() | {path_of(one): one for one in installed}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found = answers.get(path)
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            body = json.dumps(missing if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
