"""The part of Kubernetes' API that helm queries before it renders: the kinds, and the installed objects."""

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
        ("persistentvolumeclaims", "PersistentVolumeClaim"),
    ),
    "apps/v1": (("statefulsets", "StatefulSet"), ("deployments", "Deployment")),
    "batch/v1": (("cronjobs", "CronJob"), ("jobs", "Job")),
    "policy/v1": (("poddisruptionbudgets", "PodDisruptionBudget"),),
    "networking.k8s.io/v1": (("networkpolicies", "NetworkPolicy"),),
    "monitoring.coreos.com/v1": (("podmonitors", "PodMonitor"), ("prometheusrules", "PrometheusRule")),
    "autoscaling/v2": (("horizontalpodautoscalers", "HorizontalPodAutoscaler"),),
}
"""API version to (path, kind) of the objects in the chart."""


def discovery() -> dict[str, Any]:
    """Path to the answer of the discovery API."""
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
    """The path of an object in the namespace `n`."""
    version = one["apiVersion"]
    resource = next(path for path, kind in KINDS[version] if kind == one["kind"])
    return f"{'/apis' if '/' in version else '/api'}/{version}/namespaces/n/{resource}/{one['metadata']['name']}"


@contextlib.contextmanager
def cluster_with(installed: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Start a server whose namespace `n` has these objects, and yield its address."""
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
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
