"""Checks that applications can install Ortoo beside large packages with the same libraries: `make resolve-check`.

The resolver reads the package index and the wheels in `dist`. It installs nothing. Each row of the table is one
resolution: the newest version of a package together with `ortoo`, or with `ortoo[server]`.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOL = ROOT / ".tools/uv"
REQUIREMENTS = ROOT / "deploy/requirements-resolve.txt"
PACKAGES = (
    "tensorflow",
    "apache-airflow",
    "google-cloud-pubsub",
    "opentelemetry-instrumentation",
    "opentelemetry-exporter-otlp",
)
OURS = ("ortoo", "ortoo[server]")
SHOWN = ("grpcio", "protobuf")
"""The libraries whose versions are shown, because other packages bound them most often."""


@dataclass(frozen=True)
class Resolution:
    """The outcome for one set of requirements."""

    requirements: tuple[str, ...]
    versions: dict[str, str]
    """The chosen versions by name; empty if there is no solution."""
    conflict: str

    def row(self) -> str:
        """A line of the table, or the conflict."""
        if not self.versions:
            return f"{' + '.join(self.requirements)}: NO SOLUTION\n{self.conflict}"
        name = re.split(r"[=<>\[]", self.requirements[-1])[0]
        shown = " ".join(f"{one} {self.versions.get(one, '-')}" for one in (name, *SHOWN))
        return f"{self.requirements[0]} beside {shown}"


def resolver() -> Path:
    """The resolver, installed if it is missing. Errors: CalledProcessError."""
    program = TOOL / "bin/uv"
    if not program.exists():
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        subprocess.run((*pip, "--target", str(TOOL), "-r", str(REQUIREMENTS)), check=True)
    return program


def resolve(requirements: Sequence[str], *, python: str, archives: Path, constraints: str = "") -> Resolution:
    """Choose versions for a Python version, with the wheels in `archives` and perhaps the pins of a file or URL."""
    command = [str(resolver()), "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--no-strip-extras"]
    command += ["--python-version", python, "--find-links", str(archives)]
    command += ["--constraints", constraints] if constraints else []
    given = "".join(f"{one}\n" for one in requirements)
    done = subprocess.run((*command, "-"), input=given, capture_output=True, text=True, check=False)
    chosen = dict(re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", done.stdout, re.M)) if done.returncode == 0 else {}
    return Resolution(tuple(requirements), chosen, done.stderr.strip())


def main() -> int:
    """Run the command line; the exit code is the number of sets without a solution."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.11", help="version of Python")
    parser.add_argument("--archives", type=Path, default=ROOT / "dist", help="folder with the wheels of Ortoo")
    parser.add_argument("--constraints", default="", help="file or URL of constraints, such as Airflow's")
    parser.add_argument("packages", nargs="*", default=PACKAGES, help="other packages, with or without a version")
    options = parser.parse_args()
    failed = 0
    for package in options.packages:
        for ours in OURS if not options.constraints else OURS[:1]:
            found = resolve(
                (ours, package), python=options.python, archives=options.archives, constraints=options.constraints
            )
            sys.stdout.write(found.row() + "\n")
            failed += not found.versions
    return failed


if __name__ == "__main__":
    sys.exit(main())
