"""Images and containers without a running engine: buildah builds, podman with runc runs, as root on a plain machine.

Base images would come from a registry; here a Debian of the same release, made with mmdebstrap, replaces them.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BASE_IMAGE = "docker.io/library/python:3.11-slim-bookworm"
TOOLS = ("buildah", "podman", "runc", "mmdebstrap")
# Without CAP_SYS_RESOURCE runc may not raise limits, and podman requests that; this script removes the request.
RUNC_WITHOUT_LIMITS = """#!/usr/bin/env python3
import json, os, sys
arguments, file = sys.argv[1:], None
for at, word in enumerate(arguments):
    for option, name in (("--bundle", "/config.json"), ("-b", "/config.json"), ("--process", ""), ("-p", "")):
        if word == option:
            file = arguments[at + 1] + name
        elif word.startswith(option + "=") and option.startswith("--"):
            file = word.partition("=")[2] + name
if file and os.path.isfile(file):
    with open(file) as stream:
        wanted = json.load(stream)
    wanted.get("process", wanted).pop("rlimits", None)
    with open(file, "w") as stream:
        json.dump(wanted, stream)
os.execv("RUNC", ["runc", *arguments])
"""


def missing_tools() -> list[str]:
    """The tools that are needed and not installed here."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    exit_code: int
    out: str


class Containers:
    """Builds and runs in its own folder, so that other images of the machine are not touched."""

    def __init__(self, folder: Path) -> None:
        """Keep everything in `folder`."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        runc = folder / "runc-without-limits"
        runc.write_text(RUNC_WITHOUT_LIMITS.replace("RUNC", shutil.which("runc") or "/usr/sbin/runc"))
        runc.chmod(0o755)
        self._config = folder / "containers.conf"
        self._config.write_text(
            '[engine]\nruntime="limitless"\ncgroup_manager="cgroupfs"\nevents_logger="file"\n'
            f'[engine.runtimes]\nlimitless=["{runc}"]\n'
        )

    def make_base(self) -> None:
        """Make the base image unless it exists. Errors: CalledProcessError."""
        if BASE_IMAGE in self.buildah("images", "--format", "{{.Name}}:{{.Tag}}").out:
            return
        tar = self._folder / "base.tar"
        packages = "--include=python3,python3-venv,ca-certificates"
        command = ["mmdebstrap", "--variant=minbase", packages, "bookworm", str(tar)]
        subprocess.run(command, check=True, capture_output=True)
        container = self.buildah("from", "scratch").out.strip()
        self.buildah("add", "-q", container, str(tar), "/")
        self.buildah("commit", "-q", container, BASE_IMAGE)
        self.buildah("rm", container)
        tar.unlink()

    def build(self, context: Path, dockerfile: Path, image: str, arguments: Mapping[str, str]) -> None:
        """Build an image. Errors: AssertionError with the output of the build."""
        options = [option for name, value in arguments.items() for option in ("--build-arg", f"{name}={value}")]
        self.buildah(
            *(
                "bud",
                "--isolation",
                "chroot",
                "--pull-never",
                "-f",
                str(dockerfile),
                "-t",
                image,
                *options,
                str(context),
            )
        )

    def buildah(self, *arguments: str) -> Ran:
        """Run buildah. Errors: AssertionError with its output."""
        return self._run("buildah", arguments, must=True)

    def podman(self, *arguments: str, must: bool = True) -> Ran:
        """Run podman. Errors: AssertionError with its output, unless failures are allowed."""
        return self._run("podman", arguments, must=must)

    def inspect(self, image: str) -> dict[str, object]:
        """The image's configuration."""
        found: dict[str, object] = json.loads(self.podman("image", "inspect", image).out)[0]["Config"]
        return found

    def _run(self, tool: str, arguments: Sequence[str], *, must: bool) -> Ran:
        roots = ("--root", str(self._folder / "storage"), "--runroot", str(self._folder / "run"))
        done = subprocess.run(
            [tool, *roots, *arguments],
            env=os.environ | {"CONTAINERS_CONF": str(self._config)},
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0 or not must, f"{tool} {' '.join(arguments)}\n{said[-5000:]}"
        return Ran(done.returncode, done.stdout if must else said)
