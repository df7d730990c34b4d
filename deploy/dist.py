"""Builds the wheel and the source archive of every published distribution: `make dist`."""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNPUBLISHED = ("verification",)


def distributions() -> list[Path]:
    """The folders of the published distributions."""
    found = [*ROOT.glob("libs/*/pyproject.toml"), *ROOT.glob("services/*/pyproject.toml")]
    return sorted(file.parent for file in found if file.parent.name not in UNPUBLISHED)


def build(folder: Path) -> None:
    """Replace the content of `folder` by the archives. Errors: CalledProcessError with the output of the build."""
    shutil.rmtree(folder, ignore_errors=True)
    command = (sys.executable, "-m", "hatchling", "build", "-d", str(folder.absolute()))
    for distribution in distributions():
        subprocess.run(command, cwd=distribution, check=True, capture_output=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="folder for the archives")
    folder = parser.parse_args().into
    try:
        build(folder)
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr.decode())
    sys.stdout.write(f"{len(list(folder.iterdir()))} archives in {folder}\n")


if __name__ == "__main__":
    main()
