"""Lists the packages of the image, as CycloneDX JSON: `make sbom`.

The packages are installed from `build/wheels` into a separate environment, with the versions of constraints.txt as in
the Dockerfile. The list has their licences and dependencies as installed.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LISTER = ROOT / ".tools/lister"
"""A separate environment, because the policy checker needs older versions of the same packages."""
REQUIREMENTS = ROOT / "deploy/requirements-sbom.txt"
WHEELS = ROOT / "build/wheels"
OURS = (
    *("libs/wire", "libs/common[zstd,lz4,tracing]", "libs/client", "services/namesrv[postgresql]"),
    *("services/enode", "services/snode", "services/console", "libs/cli"),
)
"""As in deploy/docker/Dockerfile."""


def installed(folder: Path) -> Path:
    """Create an environment with the packages of the image; return its interpreter. Errors: CalledProcessError."""
    subprocess.run((sys.executable, "-m", "venv", str(folder)), check=True)
    python = folder / "bin/python"
    pip = (str(python), "-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(WHEELS))
    constraints = ("-c", str(ROOT / "constraints.txt"))
    subprocess.run((*pip, *constraints, "hatchling"), check=True)
    ours = [str(ROOT / one) for one in OURS]
    subprocess.run((*pip, *constraints, "--no-build-isolation", *ours), check=True)
    gone = ("hatchling", "pathspec", "trove-classifiers", "pluggy", "setuptools", "pip")
    subprocess.run((str(python), "-m", "pip", "uninstall", "--quiet", "--yes", *gone), check=True)
    return python


def lister() -> Path:
    """Return the listing program, installing it if it is missing. Errors: CalledProcessError."""
    program = LISTER / "bin/cyclonedx-py"
    if not program.exists():
        subprocess.run((sys.executable, "-m", "venv", "--clear", str(LISTER)), check=True)
        command = (str(LISTER / "bin/python"), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS))
        subprocess.run(command, check=True)
    return program


def write_list(python: Path, output: Path) -> None:
    """List the packages of an interpreter, the same bytes for the same packages. Errors: CalledProcessError."""
    output.parent.mkdir(parents=True, exist_ok=True)
    options = ("--output-reproducible", "--of", "JSON", "--sv", "1.6", "-o", str(output), str(python))
    subprocess.run((str(lister()), "environment", *options), check=True, capture_output=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "build/sbom.cdx.json", help="file for the list")
    output = parser.parse_args().output
    with tempfile.TemporaryDirectory() as folder:
        write_list(installed(Path(folder) / "image"), output)
    sys.stdout.write(f"{output}\n")


if __name__ == "__main__":
    main()
