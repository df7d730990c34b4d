"""Builds the wheel and the source archive of every published distribution: `make dist`."""

import argparse
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
    """Replace the archives in `folder`. Errors: CalledProcessError with the output of the build."""
    for archive in (*folder.glob("ortoo*.whl"), *folder.glob("ortoo*.tar.gz")):
        archive.unlink()  # pip would take a higher version of an earlier build
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
    sys.stdout.write(f"{2 * len(distributions())} archives in {folder}\n")


if __name__ == "__main__":
    main()
