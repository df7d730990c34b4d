"""The contents of the image are listed, and the release job builds for both architectures and signs."""

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from deploy import sbom
from tests.deploy.requirements import requirements
from tests.repo.tree import ROOT


@pytest.mark.image
@pytest.mark.timeout(900)
def test_everything_installed_is_listed_with_its_version_and_licence(tmp_path: Path) -> None:
    """Nothing that the image needs is missing from the list; listing takes a minute, so `make image-check` does it."""
    sbom.write_list(Path(sys.executable), tmp_path / "list.json")
    listed = json.loads((tmp_path / "list.json").read_text())
    assert (listed["bomFormat"], listed["specVersion"]) == ("CycloneDX", "1.6")
    known = {re.sub(r"[-_.]+", "-", one["name"]).lower(): one for one in listed["components"]}
    for text in requirements():
        name = re.sub(r"[-_.]+", "-", Requirement(text).name).lower()
        assert known[name]["version"] == metadata.version(name)
    assert sum("licenses" in one for one in listed["components"]) > len(listed["components"]) * 0.9
    assert {"ortoo-enode", "ortoo-snode", "ortoo-namesrv"} <= known.keys()


def test_the_list_is_of_what_the_dockerfile_installs() -> None:
    """Both name the same packages of the project."""
    text = (ROOT / "deploy/docker/Dockerfile").read_text()
    assert set(re.findall(r"\./((?:libs|services)/[\w\[\],]+)", text)) == set(sbom.OURS)


def test_a_release_builds_for_both_architectures_and_signs() -> None:
    """A dry run prints each step: two builds, one push, a signature and the list, all for one digest."""
    environ = {**os.environ, "REGISTRY": "registry.example/ortoo", "VERSION": "1.2.3", "COSIGN_KEY": "/key"}
    script = ROOT / "deploy/release.sh"
    done = subprocess.run((str(script), "--dry-run"), env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "registry.example/ortoo@sha256:DIGEST\n"), done.stderr
    steps = done.stderr
    assert re.findall(r"--platform linux/(\w+)", steps) == ["amd64", "arm64"]
    assert steps.count("cosign sign --yes --key /key registry.example/ortoo@sha256:DIGEST") == 1
    assert "cosign attest --yes --key /key --type cyclonedx --predicate build/sbom.cdx.json" in steps
    del environ["COSIGN_KEY"]
    done = subprocess.run((str(script), "--dry-run"), env=environ, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "name the key that signs" in done.stderr
