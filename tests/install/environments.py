"""Environments with the built packages: made from wheels as a user's are, without this workspace."""

import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import Parser
from pathlib import Path
from signal import SIGINT

from packaging.requirements import Requirement

from tests.repo.tree import ROOT

PYTHON = os.environ.get("ORTOO_INSTALL_PYTHON") or sys.executable
"""The Python of the environments, which may be newer than the one of this workspace."""
TIMEOUT_S = 300
SERVERS_START_TIMEOUT_S = 60


def build_archives(folder: Path) -> Path:
    """Build every published distribution into `folder`, as `make dist` does."""
    run((sys.executable, str(ROOT / "deploy/dist.py"), "--into", str(folder)))
    return folder


def has_lowest_wheels() -> bool:
    """Whether the lowest versions of all libraries have wheels for the Python of the environments."""
    return run((PYTHON, "-c", "import sys; print(sys.version_info < (3, 12))")).stdout.strip() == "True"


def lowest_versions(archives: Path, wanted: str) -> dict[str, str]:
    """The lowest version of each library that an installation of `wanted` allows: the highest of its lower bounds."""
    wheels = {wheel.name.split("-")[0].replace("_", "-"): metadata_of(wheel) for wheel in archives.glob("*.whl")}
    found: dict[str, str] = {}
    waiting, seen = [Requirement(wanted)], set()
    while waiting:
        requirement = waiting.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        for bound in requirement.specifier:
            if bound.operator == ">=":
                known = found.get(requirement.name, bound.version)
                found[requirement.name] = max(known, bound.version, key=_numbers)
        for needed in map(Requirement, wheels.get(requirement.name, {}).get("Requires-Dist", [])):
            extras = requirement.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)
    return found


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def metadata_of(wheel: Path) -> dict[str, list[str]]:
    """The metadata of a wheel: the values of each field."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        message = Parser().parsestr(archive.read(name).decode())
    return {"Requires-Dist": []} | {key: message.get_all(key, []) for key in set(message.keys())}


def run(
    command: tuple[str, ...], environ: dict[str, str] | None = None, cwd: Path | None = None, *, is_checked: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Errors: AssertionError with its output when it fails, unless `is_checked` is off."""
    done = subprocess.run(
        command,
        env=environ,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0 or not is_checked, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done


class Environment:
    """One virtual environment without pip; the pip of this workspace installs into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin/python"
        run((PYTHON, "-m", "venv", "--without-pip", str(folder)))

    def pip(self, *arguments: str) -> str:
        """Run pip on this environment."""
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self.python))
        return run((*pip, *arguments)).stdout

    def install(self, *requirements: str, archives: Path, pins: dict[str, str]) -> None:
        """Install packages from a folder and from pip's index; `pins` are the versions to choose."""
        constraints = self.folder / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        options = ("--quiet", "--no-compile", "--find-links", str(archives), "-c", str(constraints))
        self.pip("install", *options, *requirements)

    def versions(self) -> dict[str, str]:
        """The installed packages."""
        return {one["name"]: one["version"] for one in json.loads(self.pip("list", "--format", "json"))}

    def size_mib(self) -> float:
        """The size of the installed files."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file()) / (1 << 20)

    def environ(self, address: str = "") -> dict[str, str]:
        """The variables of a terminal in which the environment is active."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("ORTOO_", "PYTHON"))}
        own = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "XDG_CONFIG_HOME": os.devnull, "COLUMNS": "200"}
        return clean | own | {"NO_COLOR": "1"} | ({"ORTOO_ADDRESS": address} if address else {})

    def run(self, *command: str, address: str = "", is_checked: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command with the environment active, outside of this repository."""
        return run(command, self.environ(address), self.folder, is_checked=is_checked)

    @contextmanager
    def cluster(self) -> Iterator[str]:
        """Run `ortoo dev` of this environment on a free port; the address of its snode."""
        options = ("--listen-address", "127.0.0.1:0", "--data-dir", str(self.folder / "data"))
        with self._running("ortoo", "dev", *options) as address:
            yield address

    @contextmanager
    def console(self, snode_address: str) -> Iterator[str]:
        """Run `ortoo-console` of this environment on a free port; its address."""
        variables = {
            "ORTOO_CONSOLE_LISTEN_ADDRESS": "127.0.0.1:0",
            "ORTOO_CONSOLE_SNODE_ADDRESS": snode_address,
        }
        with self._running("ortoo-console", variables=variables) as address:
            yield address

    @contextmanager
    def _running(self, *command: str, variables: dict[str, str] | None = None) -> Iterator[str]:
        """Run a process until the end of the block; the address in the line that says that it is ready."""
        environ = self.environ() | (variables or {})
        with subprocess.Popen(command, env=environ, cwd=self.folder, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                found = re.match(r"ready \S+ (\S+:\d+)", process.stdout.readline())
                assert found, f"{command[0]} ended before it was ready"
                yield found[1]
            finally:
                process.send_signal(SIGINT)
                assert process.wait(SERVERS_START_TIMEOUT_S) == 0
